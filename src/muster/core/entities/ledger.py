"""What each project has used of each pool since the first event. Unlike an account, it never decays.

All amounts are whole numbers, so that sums are exact and the same in any order. An attempt counts from its plan to its
end, with the seats that it had; a gang that is resized is a new attempt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from muster.core.entities.base import EntityType
from muster.core.payload import Doc
from muster.core.resources import Resources

if TYPE_CHECKING:
    from muster.core.job import Job
    from muster.core.state_data import Changes, State

_MILLI: Final = 1000
_MICRO: Final = 1_000_000


@dataclass(slots=True)
class Use:
    """Nodes, accelerators and CPUs, each multiplied by the time for which they were held."""

    node_ms: int = 0  # nodes × milliseconds
    accelerator_us: int = 0  # thousandths of an accelerator × milliseconds
    cpu_us: int = 0  # thousandths of a CPU × milliseconds

    @property
    def node_seconds(self) -> float:
        return self.node_ms / _MILLI

    @property
    def accelerator_seconds(self) -> float:
        return self.accelerator_us / _MICRO

    @property
    def cpu_seconds(self) -> float:
        return self.cpu_us / _MICRO

    def hold(self, ask: Resources, workers: int, since: float, until: float) -> None:
        """Adds the use of this many workers between two times."""
        held = workers * (round(until * _MILLI) - round(since * _MILLI))
        self.node_ms += held
        self.cpu_us += held * ask.milli_cpus
        if ask.accelerators:
            self.accelerator_us += held * ask.accelerators * ask.share

    def add(self, other: Use) -> None:
        self.node_ms += other.node_ms
        self.accelerator_us += other.accelerator_us
        self.cpu_us += other.cpu_us


@dataclass(slots=True)
class Ledger:
    """The use of one pool by one project, of attempts that have ended."""

    project: str
    pool: str  # "" if the node of an attempt had left before its plan
    use: Use


def ledger_name(project: str, pool: str) -> str:
    return f"{project}/{pool}"


def enter(state: State, job: Job, time: float, changes: Changes) -> None:
    """Adds the attempt of the job, which ends now, to the ledger of its project and pool."""
    attempt = job.attempt
    assert attempt is not None
    name = ledger_name(job.project, attempt.pool)
    ledger = state.ledgers.get(name)
    if ledger is None:
        ledger = state.ledgers[name] = Ledger(job.project, attempt.pool, Use())
    ledger.use.hold(job.ask, len(attempt.workers), attempt.planned_at, time)
    changes.entities[(LEDGERS.kind, name)] = ledger


def _decode(doc: Doc) -> Ledger:
    return Ledger(doc["project"], doc["pool"], Use(**doc["use"]))


LEDGERS = EntityType("ledger", _decode, place=lambda state: state.ledgers)
