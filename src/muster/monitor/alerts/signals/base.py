"""What a signal is, and what it may read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from muster.core.job import Job
from muster.core.state import State
from muster.core.units import format_duration
from muster.monitor.alerts.figures import Figures, MachineFigures, RunFigures
from muster.monitor.alerts.recent import Recent
from muster.monitor.alerts.rule import Reading, Subject, SubjectKind

Unit = Literal["ratio", "seconds", "count", "times", "money"]


class BudgetFigures(NamedTuple):
    """A budget in its present period: parts of its limit, and texts for its runbook."""

    project: str
    used: float
    forecast: float
    facts: Mapping[str, str]


class Money(NamedTuple):
    """Costs, in units of the currency; empty where nothing has a price."""

    budgets: Mapping[str, BudgetFigures] = {}
    hourly: Mapping[str, float] = {}  # running job → its cost for an hour
    usual: Mapping[str, float] = {}  # project → what it costs for an hour, in the mean of the last days
    currency: str = ""


@dataclass(slots=True)
class View:
    """Everything that signals read at one time. `server`: figures of the server itself, by name."""

    state: State
    now: float
    figures: Figures = field(default_factory=Figures)
    recent: Recent = field(default_factory=Recent)
    server: Mapping[str, float] = field(default_factory=dict)
    machines: Mapping[str, MachineFigures] = field(default_factory=dict)  # nodes with a fresh sample
    money: Money = field(default_factory=Money)
    # Many signals go through the same jobs: the first one makes the list.
    _running: list[tuple[Job, Subject]] | None = None
    _programs: list[tuple[Job, Subject, RunFigures]] | None = None
    _queued: list[tuple[Job, Subject]] | None = None

    def running(self) -> list[tuple[Job, Subject]]:
        """Jobs that run on all of their nodes and are not being stopped."""
        if self._running is None:
            jobs = map(self.state.jobs.__getitem__, self.state.active)
            self._running = [(job, subject_of(job)) for job in jobs if job.phase == "running" and job.stop is None]
        return self._running

    def programs(self) -> list[tuple[Job, Subject, RunFigures]]:
        """Those of them that have reported something in this attempt."""
        if self._programs is None:
            self._programs = [
                (job, subject, found)
                for job, subject in self.running()
                if job.spec.kind != "session" and job.attempt is not None
                if (found := self.figures.of(job.id, job.attempt.number)) is not None
            ]
        return self._programs

    def queued(self) -> list[tuple[Job, Subject]]:
        """Jobs that wait for their turn, not for other jobs."""
        if self._queued is None:
            ids = (job_id for line in self.state.lines.values() for job_id in line)
            jobs = map(self.state.jobs.__getitem__, ids)
            self._queued = [(job, subject_of(job)) for job in jobs if not job.awaits]
        return self._queued


@dataclass(frozen=True, slots=True)
class Signal:
    """`read` returns a value for each subject that has one; a subject without one is absent. `says`: for a sentence."""

    name: str
    unit: Unit
    about: SubjectKind
    says: str
    read: Callable[[View], Iterator[Reading]]

    def show(self, value: float) -> str:
        if self.unit == "ratio":
            return f"{value:.0%}" if value >= 0.1 else f"{value:.1%}"
        if self.unit == "seconds":
            return format_duration(float(round(value)))
        if self.unit == "money":
            return f"{value:,.2f}"
        return f"{value:.2f} times" if self.unit == "times" else f"{value:g}"


def subject_of(job: Job) -> Subject:
    attempt = job.attempt if job.active else None
    nodes = tuple(dict.fromkeys(worker.node for worker in attempt.workers if worker.placed)) if attempt else ()
    pool = attempt.pool if attempt is not None else ""
    return Subject("run", job.id, job.name, job.project, job.queue, pool, nodes, job.spec.tags)
