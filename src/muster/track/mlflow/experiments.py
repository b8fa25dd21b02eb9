"""MLflow's calls on experiments. Each belongs to the project that its name begins with, or to the caller's default."""

from __future__ import annotations

from typing import Any, Final

from muster.core.errors import Conflict
from muster.store.codec import loads
from muster.track.experiments import Experiment
from muster.track.mlflow.addresses import check_address
from muster.track.mlflow.context import MlflowContext
from muster.track.mlflow.faults import Fault, missing
from muster.track.mlflow.filters import EXPERIMENTS, parse_filter, parse_orders
from muster.track.mlflow.find_experiments import page_offset, page_token, search_experiments
from muster.track.mlflow.limits import EXPERIMENT_NAME_MAX, check_experiment_tag, check_length, page_size
from muster.track.mlflow.names import VIEWS, pairs
from muster.track.mlflow.views import experiment_view

Request = dict[str, Any]
Answer = dict[str, Any]
_LOCATION_MAX: Final = 2048
_PAGE_MAX: Final = 50_000
_PROJECT_OWN: Final = "default"  # the project whose experiments have no project in their names


def create(context: MlflowContext, request: Request) -> Answer:
    name, tags = _checked_name(request["name"]), pairs(request.get("tags"))
    kept = dict(check_experiment_tag(key, value) for key, value in tags.items())
    project, stored = _home(context, name)
    context.caller.need(project, "member")
    context.track.experiments.of_project(_PROJECT_OWN)  # creates experiment 0 first, as MLflow does
    try:
        made = context.track.experiments.create(
            stored, project, artifacts=_location(request), tags=kept, actor=context.caller.user
        )
    except Conflict:
        raise Fault(f"Experiment(name={name}) already exists.", "RESOURCE_ALREADY_EXISTS") from None
    return {"experiment_id": str(made.id)}


def get(context: MlflowContext, request: Request) -> Answer:
    return {"experiment": experiment_view(context.experiment(request["experiment_id"]))}


def get_by_name(context: MlflowContext, request: Request) -> Answer:
    found = by_name(context, request["experiment_name"])
    if found is None:
        raise missing(f"Could not find experiment with name '{request['experiment_name']}'")
    return {"experiment": experiment_view(found)}


def by_name(context: MlflowContext, name: str) -> Experiment | None:
    if name == "Default":
        context.track.experiments.of_project(_PROJECT_OWN)
    for stored in dict.fromkeys((name, _home(context, name)[1])):
        found = context.track.experiments.by_name(stored)
        if found is not None and context.caller.sees(found.project):
            return found
    return None


def delete(context: MlflowContext, request: Request) -> Answer:
    found = context.experiment(request["experiment_id"], "member")
    if found.deleted_at is not None:
        raise missing(f"No Experiment with id={found.id} exists")
    context.track.experiments.delete(found.id, context.caller.user)
    return {}


def restore(context: MlflowContext, request: Request) -> Answer:
    found = context.experiment(request["experiment_id"], "member")
    if found.deleted_at is None:
        raise missing(f"No Experiment with id={found.id} exists")
    context.track.experiments.restore(found.id, context.caller.user)
    return {}


def update(context: MlflowContext, request: Request) -> Answer:
    name = _checked_name(request["new_name"])
    found = context.experiment(request["experiment_id"], "member")
    if found.deleted_at is not None:
        raise Fault("Cannot rename a non-active experiment.", "INVALID_STATE")
    try:
        context.track.experiments.rename(found.id, name, context.caller.user)
    except Conflict:
        raise Fault(f"Experiment(name={name}) already exists.", "RESOURCE_ALREADY_EXISTS") from None
    return {}


def set_tag(context: MlflowContext, request: Request) -> Answer:
    key, value = check_experiment_tag(request["key"], request.get("value"))
    context.track.experiments.set_tags(_active(context, request).id, {key: value}, context.caller.user)
    return {}


def delete_tag(context: MlflowContext, request: Request) -> Answer:
    found, key = _active(context, request), request["key"]
    if key not in found.tags:
        raise missing(f"No tag with name: {key} in experiment with id {found.id}")
    context.track.experiments.set_tags(found.id, {key: None}, context.caller.user)
    return {}


def search(context: MlflowContext, request: Request) -> Answer:
    limit = page_size(request.get("max_results") or 0, _PAGE_MAX)
    offset = page_offset(request.get("page_token"))
    if context.caller.sees(_PROJECT_OWN):
        context.track.experiments.of_project(_PROJECT_OWN)
    statement = search_experiments(
        parse_filter(request.get("filter"), EXPERIMENTS),
        parse_orders(request.get("order_by") or (), EXPERIMENTS),
        view_of(request.get("view_type")),
        context.caller.projects(),
        context.kind,
    )
    with context.track.db.reading() as connection:
        rows = connection.execute(statement.limit(limit + 1).offset(offset)).all()
    found = [Experiment(**{**row._mapping, "tags": loads(row.tags)}) for row in rows[:limit]]
    answer: Answer = {"experiments": [experiment_view(one) for one in found]} if found else {}
    return {**answer, "next_page_token": page_token(offset + limit)} if len(rows) > limit else answer


def view_of(given: Any) -> str:
    """The view's name. Protobuf's JSON has an enum as its name or its number."""
    view = VIEWS.get(int(given), "") if str(given).isdigit() else str(given or "ACTIVE_ONLY")
    if view not in VIEWS.values():
        raise Fault(f"Invalid view type: {given!r}")
    return view


def _active(context: MlflowContext, request: Request) -> Experiment:
    found = context.experiment(request["experiment_id"], "member")
    if found.deleted_at is not None:
        raise Fault(f"The experiment {found.id} must be in the 'active' state. Current state is deleted.")
    return found


def _checked_name(name: Any) -> str:
    if not isinstance(name, str) or not name.strip():
        raise Fault(f"Invalid experiment name: '{name}'")
    return check_length("name", EXPERIMENT_NAME_MAX, name)


def _home(context: MlflowContext, name: str) -> tuple[str, str]:
    """The project of an experiment with this name, and its stored name.

    Names are unique in a server: the prefix prevents conflicts with projects that the caller can't see.
    """
    project, slash, rest = name.partition("/")
    if slash and rest and context.caller.known_project(project):
        return project, name
    project = context.caller.default_project()
    return project, name if project == _PROJECT_OWN else f"{project}/{name}"


def _location(request: Request) -> str:
    """A location in Muster's own store; empty: the default. Other locations are refused: see `check_address`."""
    given = str(request.get("artifact_location") or "")
    check_address("artifact_location", given)
    if "#" in given or ".." in given.split("/"):
        raise Fault(f"Invalid artifact location: '{given}'")
    if len(given) > _LOCATION_MAX:
        raise Fault(
            "Invalid artifact path length. The length of the artifact path cannot be greater than "
            f"{_LOCATION_MAX} characters."
        )
    return given
