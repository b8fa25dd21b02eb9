"""A noun that Muster does not have, in one file: what a project may spend. For `test_new_noun.py`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from muster.core.entities.base import EntityType, from_fields
from muster.core.event import Event
from muster.core.payload import Payload, payload
from muster.core.state import Changes, State


@dataclass(frozen=True, slots=True)
class Allowance:
    project: str
    limit: float  # accelerator hours
    spent: float = 0.0


ALLOWANCES = EntityType("allowance", from_fields(Allowance))


@payload("allowance.set")
class AllowanceSet(Payload):
    """What a project may spend; without a limit, it has no allowance any more."""

    project: str
    limit: float | None

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        old = ALLOWANCES.all(state).get(self.project)
        if self.limit is None:
            ALLOWANCES.drop(state, self.project, changes)
        else:
            new = replace(old, limit=self.limit) if old is not None else Allowance(self.project, self.limit)
            ALLOWANCES.put(state, self.project, new, changes)

    def columns(self) -> tuple[str | None, ...]:
        return (self.project,)


@payload("allowance.spent")
class AllowanceSpent(Payload):
    """A project has spent some of it."""

    project: str
    hours: float

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        old = ALLOWANCES.all(state)[self.project]
        ALLOWANCES.put(state, self.project, replace(old, spent=old.spent + self.hours), changes)
