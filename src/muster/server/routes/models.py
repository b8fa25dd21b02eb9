"""The model registry: models, versions, aliases and stages."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal, cast

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field

from muster.api.models import (
    ModelAliases,
    ModelDeleted,
    ModelDetail,
    ModelList,
    ModelView,
    PromotionView,
    VersionDeleted,
    VersionDetail,
    VersionView,
)
from muster.api.words import Stage
from muster.core.entities import Role
from muster.core.errors import Invalid, NotFound
from muster.server.auth import Identity
from muster.server.context import Caller, Leading, Tracked
from muster.server.leader import Leader
from muster.server.record_context import find_run
from muster.server.routes.lineage import resolve
from muster.server.typed_routes import needs, typed_router
from muster.track.lineage import run_in
from muster.track.model_rows import Model, Version, source_ref
from muster.track.models import NAME_MAX, taken
from muster.track.run_stages import check_why
from muster.track.tracking import Tracking

router = typed_router(prefix="/v1/models", tags=["models"])

ModelName = Annotated[str, Path(min_length=1, max_length=NAME_MAX, pattern=r"^[^\x00]*$")]
Number = Annotated[int, Path(ge=1, le=2**31 - 1)]
Alias = Annotated[str, Path(min_length=1, max_length=255, pattern=r"^[^\x00]*$")]
Description = Annotated[str, Field(max_length=100_000)]


class ModelBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=NAME_MAX)
    project: str = Field("default", max_length=100)
    description: Description = ""
    tags: dict[str, str] = {}


class ModelChange(BaseModel):
    """Null fields don't change; a tag with null is removed."""

    model_config = ConfigDict(extra="forbid")

    name: str | None = Field(None, min_length=1, max_length=NAME_MAX)
    description: Description | None = None
    tags: dict[str, str | None] = {}


class VersionBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    source: str = Field("", max_length=2000, description="`checkpoint:RUN/STEP`, `artifact:RUN/PATH`, or an address")
    run: str | None = Field(None, max_length=500, description="that made it; unless given, the one that `source` names")
    project: str | None = Field(None, max_length=100, description="where the model is made if there is none")
    description: Description = ""
    tags: dict[str, str] = {}


class StageBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    stage: Stage
    why: str = Field("", max_length=10_000)
    evidence: list[str] = Field([], max_length=100, description="runs that speak for it; their metrics are kept as now")
    metrics: list[str] = Field([], max_length=100, description="only these metrics of them")
    force: bool = Field(False, description="to production without evidence; `why` must say why")
    archive_others: bool = Field(False, description="archives what was in that stage")


class RollbackBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    stage: Literal["staging", "production"] = "production"
    version: int | None = Field(None, ge=1, le=2**31 - 1, description="else the one that was there before")
    why: str = Field(max_length=10_000)


class AliasBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    version: int = Field(ge=1, le=2**31 - 1)


@router.get("", openapi_extra=needs("anyone"))
def list_models(
    leader: Leading,
    track: Tracked,
    caller: Caller,
    project: Annotated[str | None, Query(max_length=100, pattern=r"^[^\x00]*$")] = None,
    contains: Annotated[str, Query(max_length=250, pattern=r"^[^\x00]*$", description="of the name")] = "",
) -> ModelList:
    visible = caller.projects(leader.store.state())
    if project is not None:
        visible = [project] if visible is None or project in visible else []
    return {"models": [_model_view(track, model) for model in track.models.search(visible, contains=contains)]}


@router.post("", status_code=201, openapi_extra=needs("member"))
def create_model(body: ModelBody, leader: Leading, track: Tracked, caller: Caller) -> ModelView:
    _project(leader, caller, body.project)
    made = track.models.create(body.name, body.project, description=body.description, tags=body.tags, actor=caller.user)
    return _model_view(track, made)


@router.get("/{name}", openapi_extra=needs("viewer"))
def get_model(name: ModelName, leader: Leading, track: Tracked, caller: Caller) -> ModelDetail:
    """A model with all its versions, oldest first."""
    model = find_model(leader, track, caller, name)
    versions = [_version_view(track, one) for one in track.models.versions(model.name)]
    return {**_model_view(track, model), "versions": versions}


@router.patch("/{name}", openapi_extra=needs("member"))
def change_model(name: ModelName, body: ModelChange, leader: Leading, track: Tracked, caller: Caller) -> ModelView:
    model = find_model(leader, track, caller, name, "member")
    new = body.name if body.name != model.name else None
    if new is not None or body.description is not None or body.tags:
        model = track.models.change(
            model.name, description=body.description, tags=body.tags, new=new, actor=caller.user
        )
    return _model_view(track, model)


@router.delete("/{name}", openapi_extra=needs("admin"))
def delete_model(name: ModelName, leader: Leading, track: Tracked, caller: Caller) -> ModelDeleted:
    model = find_model(leader, track, caller, name, "admin")
    track.models.delete(model.name, caller.user)
    return {"name": model.name, "deleted": True}


@router.post("/{name}/versions", status_code=201, openapi_extra=needs("member"))
def register(name: ModelName, body: VersionBody, leader: Leading, track: Tracked, caller: Caller) -> VersionView:
    """Registers the next version of a model. With `project`, creates the model if it doesn't exist."""
    known = track.models.get(name)
    if body.project is None or (known is not None and caller.role(leader.store.state(), known.project) is not None):
        find_model(leader, track, caller, name, "member")
    else:
        _project(leader, caller, body.project)
        if known is not None:  # as in `create_model`: names are unique in a server
            raise taken(name)
    source, run = body.source, body.run and find_run(leader, track, caller, body.run).id
    if ref := source_ref(source):
        ref = resolve(leader, track, caller, ref)
        if not source.startswith("runs:"):
            source = ref
            _exists(track, source)
        run = run or run_in(ref)
    made = track.models.register(
        name, user=caller.user, source=source, run=run or "", project=body.project, description=body.description,
        tags=body.tags,
    )  # fmt: skip
    return _version_view(track, made)


@router.get("/{name}/versions/{version}", openapi_extra=needs("viewer"))
def get_version(name: ModelName, version: Number, leader: Leading, track: Tracked, caller: Caller) -> VersionDetail:
    """A version with all its promotions and their evidence."""
    find_model(leader, track, caller, name)
    found = track.models.need_version(name, version)
    promotions = [cast(PromotionView, asdict(one)) for one in track.models.promotions.promotions(name, version)]
    scan = track.scans.worst(track.files_of_version(found.source, found.run))
    return {**_version_view(track, found), "promotions": promotions, "scan": scan}


@router.patch("/{name}/versions/{version}", openapi_extra=needs("member"))
def change_version(
    name: ModelName, version: Number, body: ModelChange, leader: Leading, track: Tracked, caller: Caller
) -> VersionView:
    find_model(leader, track, caller, name, "member")
    track.models.need_version(name, version)
    if body.description is not None or body.tags:
        track.models.change_version(name, version, description=body.description, tags=body.tags, actor=caller.user)
    return _version_view(track, track.models.need_version(name, version))


@router.delete("/{name}/versions/{version}", openapi_extra=needs("admin"))
def delete_version(name: ModelName, version: Number, leader: Leading, track: Tracked, caller: Caller) -> VersionDeleted:
    find_model(leader, track, caller, name, "admin")
    track.models.delete_version(name, version, caller.user)
    return {"name": name, "version": version, "deleted": True}


@router.post("/{name}/versions/{version}/stage", openapi_extra=needs("member"))
def promote(
    name: ModelName, version: Number, body: StageBody, leader: Leading, track: Tracked, caller: Caller
) -> PromotionView:
    """Moves a version to a stage and stores the evidence, which production and the policy's stages require."""
    model = find_model(leader, track, caller, name, "member")
    evidence = [find_run(leader, track, caller, ref).id for ref in body.evidence]
    given = body.model_dump(exclude={"stage", "evidence"})
    if body.force and body.stage in (state := leader.store.state()).rules.promotion:
        caller.need(state, model.project, "admin")
        check_why(body.why)
        given["override"] = True
    made = track.models.promote(name, version, body.stage, actor=caller.user, evidence=evidence, **given)
    return cast(PromotionView, asdict(made))


@router.post("/{name}/rollback", openapi_extra=needs("member"))
def roll_back(name: ModelName, body: RollbackBody, leader: Leading, track: Tracked, caller: Caller) -> PromotionView:
    """Puts a version back into a stage that it was in before; the one that is there is archived.

    What it had shown then is in its earlier promotion. A version that never was in the stage is promoted instead.
    """
    find_model(leader, track, caller, name, "member")
    check_why(body.why)
    version = body.version if body.version is not None else track.models.promotions.earlier(name, body.stage)
    if all(one.new != body.stage for one in track.models.promotions.promotions(name, version)):
        hint = f"Promote it: `muster models promote {name}/{version} {body.stage}`."
        raise Invalid(f"{name}/{version} never was in {body.stage}.", hint)
    made = track.models.promote(
        name, version, body.stage, actor=caller.user, why=body.why, archive_others=True, rollback=True
    )
    return cast(PromotionView, asdict(made))


@router.put("/{name}/aliases/{alias}", openapi_extra=needs("member"))
def set_alias(
    name: ModelName, alias: Alias, body: AliasBody, leader: Leading, track: Tracked, caller: Caller
) -> ModelAliases:
    find_model(leader, track, caller, name, "member")
    track.models.set_alias(name, alias, body.version, caller.user)
    return {"name": name, "aliases": track.models.aliases(name)}


@router.delete("/{name}/aliases/{alias}", openapi_extra=needs("member"))
def delete_alias(name: ModelName, alias: Alias, leader: Leading, track: Tracked, caller: Caller) -> ModelAliases:
    find_model(leader, track, caller, name, "member")
    track.models.delete_alias(name, alias, caller.user)
    return {"name": name, "aliases": track.models.aliases(name)}


def find_model(leader: Leader, track: Tracking, caller: Identity, name: str, role: Role = "viewer") -> Model:
    found, state = track.models.get(name), leader.store.state()
    if found is None or caller.role(state, found.project) is None:
        raise NotFound(f"There is no model {name!r} that you can see.", "See `muster models`.")
    caller.need(state, found.project, role)
    return found


def _project(leader: Leader, caller: Identity, project: str) -> None:
    state = leader.store.state()
    caller.need(state, project, "member")
    if project not in state.projects:
        raise NotFound(f"There is no project {project!r}.", "See `muster project ls`.")


def _exists(track: Tracking, source: str) -> None:
    """Raises NotFound unless the checkpoint or artifact of a new version exists."""
    kind, _, rest = source.partition(":")
    run, _, inner = rest.partition("/")
    if kind == "artifact" and not track.artifacts.list(run, inner):
        raise NotFound(f"Run {run} has no artifact {inner!r}.", f"See `muster runs artifacts {run}`.")
    if kind == "checkpoint" and inner not in {str(step) for step in track.runs.saved_steps(run)}:
        raise NotFound(f"Run {run} has no checkpoint at step {inner!r}.", f"See `muster status {run}`.")


def _model_view(track: Tracking, model: Model) -> ModelView:
    newest = track.models.latest(model.name)
    return {
        "name": model.name,
        "project": model.project,
        "created_at": model.created_at,
        "updated_at": model.updated_at,
        "description": model.description,
        "tags": model.tags,
        "aliases": track.models.aliases(model.name),
        "latest": {stage: one.version for stage, one in newest.items()},
    }


def _version_view(track: Tracking, one: Version) -> VersionView:
    return {
        "name": one.name,
        "version": one.version,
        "run": one.run,
        "source": one.source,
        "stage": cast(Stage, one.stage),
        "user": one.user,
        "created_at": one.created_at,
        "updated_at": one.updated_at,
        "description": one.description,
        "tags": one.tags,
        "status": one.status,
        "aliases": [alias for alias, version in track.models.aliases(one.name).items() if version == one.version],
    }
