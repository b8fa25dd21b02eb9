"""Certificates of preflight: that a job with these parts passed a rung, or that somebody who may do so waived it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from muster.api.words import Rung
from muster.core.entities.base import EntityType, from_fields
from muster.core.payload import Doc, Payload, payload

if TYPE_CHECKING:
    from muster.core.event import Event
    from muster.core.state_data import Changes, State

KEPT: Final = 500  # of a project; the oldest leave the state, and stay in the log


@dataclass(frozen=True, slots=True)
class Certificate:
    """`parts`: a digest of each part of the job, see `muster.core.preflight`. `why`: of a waiver, its reason."""

    id: str
    project: str
    rung: Rung
    job: str  # the name of the job that it is for
    parts: dict[str, str]
    at: float
    by: str
    jobs: list[str] = field(default_factory=list)  # those that ran as the rung: the evidence is in their records
    facts: Doc = field(default_factory=dict)  # what was found, and of a canary the forecast of the full run
    why: str = ""

    @property
    def waived(self) -> bool:
        return not self.jobs


CERTIFICATES = EntityType("certificate", from_fields(Certificate))


def certificates_of(state: State, project: str, rung: Rung) -> list[Certificate]:
    """The newest first."""
    found = [one for one in CERTIFICATES.all(state).values() if one.project == project and one.rung == rung]
    return sorted(found, key=lambda one: (one.at, one.id), reverse=True)


@payload("preflight.passed")
class PreflightPassed(Payload):
    """The server judged the jobs of a rung and found everything in order."""

    id: str
    rung: Rung
    name: str
    parts: Doc
    jobs: list[str]
    facts: Doc

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        parts = (self.rung, self.name, dict(self.parts), event.time, event.actor, self.jobs, self.facts)
        _put(state, Certificate(self.id, event.project, *parts), changes)

    def columns(self) -> tuple[str | None, ...]:
        return (self.id, self.rung)


@payload("preflight.waived")
class PreflightWaived(Payload):
    """An admin of the project lets a job run without this rung. `why` is the reason that was given."""

    id: str
    rung: Rung
    name: str
    parts: Doc
    why: str

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        parts = (self.rung, self.name, dict(self.parts), event.time, event.actor)
        _put(state, Certificate(self.id, event.project, *parts, why=self.why), changes)

    def columns(self) -> tuple[str | None, ...]:
        return (self.id, self.rung)


@payload("preflight.revoked")
class PreflightRevoked(Payload):
    """A certificate does not count any more."""

    id: str
    why: str

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        CERTIFICATES.drop(state, self.id, changes)

    def columns(self) -> tuple[str | None, ...]:
        return (self.id,)


def _put(state: State, made: Certificate, changes: Changes) -> None:
    CERTIFICATES.put(state, made.id, made, changes)
    mine = sorted((one.at, one.id) for one in CERTIFICATES.all(state).values() if one.project == made.project)
    for _, old in mine[: max(0, len(mine) - KEPT)]:
        CERTIFICATES.drop(state, old, changes)
