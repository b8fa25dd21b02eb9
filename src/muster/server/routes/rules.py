"""The policy: get the rules in force, in plain language and as a file, and set them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pydantic import BaseModel, ConfigDict, Field

from muster.api.rules import RuleChange, RuleSection, RulesSet, RulesView
from muster.control.rules import missing_queues, problems_here, read_rules, set_rules
from muster.core.document import MAX_BYTES
from muster.core.entities.price_book import book_of
from muster.core.errors import NotFound, SpecError
from muster.core.policy_dump import dump_rules
from muster.core.policy_file import HINT
from muster.core.rules import GuardRule, Rules
from muster.core.state import State
from muster.sched.describe import Section, describe
from muster.server.auth import Identity
from muster.server.context import Caller, Leading
from muster.server.routes.cluster import NAME
from muster.server.typed_routes import needs, typed_router

router = typed_router(prefix="/v1", tags=["rules"])


class RulesBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: str = Field(max_length=MAX_BYTES, description="the whole policy file, as YAML")
    dry_run: bool = Field(False, description="only check it, and say what would change")
    create: str | None = Field(None, pattern=NAME, description="create queues that are missing, in this project")
    source: str = Field("The policy", max_length=1000, description="what errors should call it")


@router.get("/rules", openapi_extra=needs("anyone"))
def get_rules(leader: Leading, caller: Caller) -> RulesView:
    """The rules in force; without those of projects that you can't see."""
    return leader.look(lambda state: _view(state, caller))


@router.put("/rules", openapi_extra=needs("superuser"))
def put_rules(body: RulesBody, leader: Leading, caller: Caller) -> RulesSet:
    """Sets a policy, all of it or nothing, and describes in plain language what changes."""
    caller.need_superuser()
    if body.create is not None and body.create not in leader.store.state().projects:
        raise NotFound(f"There is no project {body.create!r}.", "See `muster project ls`.")
    before, known = leader.look(lambda state: (_described(state), set(state.queues)))
    if body.dry_run:
        after = leader.look(lambda state: _would_be(state, body))
    else:
        now = leader.clock.now()
        leader.propose(set_rules(body.text, caller.user, now, source=body.source, create=body.create))
        after = leader.look(lambda state: _view(state, caller))
    named = Rules.model_validate(after["rules"]).queues
    created = [name for name in named if name not in known] if body.create is not None else []
    changes = _changes(before, after["described"])
    return {**after, "applied": not body.dry_run, "changes": changes, "created": created}


def _view(state: State, caller: Identity) -> RulesView:
    seen = caller.projects(state)
    rules, text = state.rules, state.in_force.text
    queues = [queue for queue in state.queues.values() if seen is None or queue.project in seen]
    if seen is not None:
        mine = {queue.name for queue in queues}
        parts = {
            "queues": {name: rule for name, rule in rules.queues.items() if name in mine},
            "projects": {name: rule for name, rule in rules.projects.items() if name in seen},
            "guards": _guards(rules, seen),
        }
        rules, text = rules.model_copy(update=parts), ""
    return _as_view(rules, text or dump_rules(rules), describe(rules, queues, book_of(state).pools))


def _would_be(state: State, body: RulesBody) -> RulesView:
    rules = read_rules(body.text, body.source)
    new = missing_queues(rules, state, body.create) if body.create is not None else []
    problems = problems_here(rules, state, new)
    if problems:
        raise SpecError(problems, body.source, HINT)
    return _as_view(rules, body.text, describe(rules, [*state.queues.values(), *new], book_of(state).pools))


def _as_view(rules: Rules, text: str, described: Sequence[Section]) -> RulesView:
    return {
        "rules": rules.model_dump(mode="json"),
        "text": text,
        "described": [section.to_dict() for section in described],
    }


def _described(state: State) -> list[RuleSection]:
    return [section.to_dict() for section in describe(state.rules, state.queues.values(), book_of(state).pools)]


def _changes(before: Sequence[RuleSection], after: Sequence[RuleSection]) -> list[RuleChange]:
    """The lines that were removed and added, by section."""
    old, new = ({section["title"]: section["lines"] for section in sections} for sections in (before, after))
    found: list[RuleChange] = []
    for title in {**new, **old}:
        gone = [line for line in old.get(title, ()) if line not in new.get(title, ())]
        added = [line for line in new.get(title, ()) if line not in old.get(title, ())]
        if gone or added or (title in old) != (title in new):
            found.append({"title": title, "removed": gone, "added": added})
    return found


def _guards(rules: Rules, seen: Collection[str]) -> tuple[GuardRule, ...]:
    """Without the names of projects that are not seen, and without the rules for these alone."""
    found = []
    for guard in rules.guards:
        projects = tuple(project for project in guard.projects if project in seen)
        if projects or not guard.projects:
            found.append(guard.model_copy(update={"projects": projects}))
    return tuple(found)
