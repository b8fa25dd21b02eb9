"""Watches running gangs for hangs: takes what launchers ship, asks for a verdict, has stacks shown, orders the stop.

It lives in memory: after a restart of the server every gang gets its full time again, and until its steps are known
the limit follows from the rate of its progress.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from muster.control.attempt_watch import Docs, Key, active_attempts, attempt_event
from muster.core.attempt_events import AttemptHung, AttemptMoves
from muster.core.event import Event
from muster.core.job import Attempt, Job
from muster.core.job_events import JobStopping
from muster.core.reasons import Reason, reason
from muster.core.state import State
from muster.monitor.activity import ROWS, GangActivity, RankActivity, StepTimes
from muster.monitor.hang import FACTOR, WARM_UP, Verdict, goes_on, judge, seconds
from muster.monitor.straggler import WAITING
from muster.store.base import StreamWrite
from muster.wire import Batch, Command

LOOK: Final = 1.0  # seconds between two looks
STACKS: Final = 6.0  # seconds for the launchers to write the stacks into the logs, before the gang is stopped
GRACE: Final = 5.0  # seconds between the request to stop and SIGKILL: collectives can't finish, nothing can be saved
PHASE_NAME: Final = 32  # characters
GUESSED: Final = 24.0  # seconds: the least that a step is taken to last, if only the mean rate is known
KEPT: Final = 4096  # runs whose step times are remembered

Frozen = Callable[[str, int], Collection[int]]  # workers of an attempt whose launcher's process is stopped
Progress = Callable[[str], Mapping[str, Any] | None]  # the progress of a run, as its document has it


@dataclass(slots=True)
class _Watched:
    gang: GangActivity
    verdict: Verdict | None = None
    hung_at: float = 0.0
    told: set[int] = field(default_factory=set)  # workers that were asked for stacks
    seeded: bool = False  # what an earlier server knew of its progress was looked up


class Hangs:
    """The launchers' requests call `take` and `command`, the control loop `look`."""

    def __init__(self, progress: Progress = lambda run: None) -> None:
        self._progress = progress
        self._watched: dict[Key, _Watched] = {}
        self._times: dict[str, StepTimes] = {}  # by run: an attempt learns from the ones before it
        self._lock = threading.Lock()
        self._next = 0.0

    def take(
        self, job_id: str, number: int, batch: Batch, writes: Iterable[StreamWrite], docs: Docs,
        known: Mapping[int, int], now: float,
    ) -> None:  # fmt: skip
        """Takes a batch that was stored. `known`: by rank, how many bytes of its reports the server has."""
        with self._lock:
            watched = self._open(job_id, number)
            self._seed(watched, job_id, number, batch.worker, now)
            steps, phases = _steps(writes, docs), _phases(docs)
            for rank in steps.keys() | phases.keys():
                watched.gang.report(batch.worker, rank, steps.get(rank, ()), phases.get(rank, ()), now)
            watched.gang.hear(batch.worker, batch.clock, batch.pulses, known, now)

    def activity(self, job_id: str, number: int) -> dict[int, RankActivity]:
        """What is known of the ranks of an attempt now."""
        with self._lock:
            watched = self._watched.get((job_id, number))
            return {rank: replace(one) for rank, one in watched.gang.ranks.items()} if watched is not None else {}

    def command(self, job_id: str, number: int, worker: int) -> Command | None:
        """The request for stacks, once for each worker of a gang that hangs."""
        with self._lock:
            watched = self._watched.get((job_id, number))
            if watched is None or watched.verdict is None or worker in watched.told:
                return None
            watched.told.add(worker)
            return Command(int(watched.hung_at * 1000), "stacks")

    def look(self, state: State, now: float, frozen: Frozen) -> list[Event]:
        """Verdicts on gangs that hang now, and orders to stop those whose stacks were asked for."""
        if now < self._next:
            return []
        self._next = now + LOOK
        with self._lock:
            active = active_attempts(state, self._watched)
            events: list[Event] = []
            for key, job in active.items():
                if job.attempt is not None and _is_watched(job):
                    watched = self._open(*key)
                    watched.gang.expect(_running(job.attempt), now)
                    watched.gang.look(now)
                    events += self._judge(job, watched, frozen, now)
            return events

    def _judge(self, job: Job, watched: _Watched, frozen: Frozen, now: float) -> list[Event]:
        assert job.attempt is not None
        wants, verdict = job.spec.hang, watched.verdict
        if verdict is None:
            found = judge(watched.gang, wants.least, wants.patience, frozen(job.id, job.attempt.number))
            if found is None:
                return []
            watched.verdict, watched.hung_at = found, now
            return [attempt_event(AttemptHung(_reason(job, found), found.to_doc(), wants.action), job, now)]
        if goes_on(watched.gang, verdict):
            watched.verdict, watched.told = None, set()
            return [attempt_event(AttemptMoves(), job, now)]
        asked = watched.told | set(verdict.workers if verdict.kind == "launcher silent" else ())
        wait = STACKS if asked.issuperset(_running(job.attempt)) else 2 * STACKS
        if wants.action != "restart" or now - watched.hung_at < wait:
            return []
        return [attempt_event(JobStopping(_reason(job, verdict), "queued", GRACE), job, now)]

    def _seed(self, watched: _Watched, run: str, number: int, worker: int, now: float) -> None:
        """For an attempt that made steps before this server started."""
        if watched.seeded:
            return
        watched.seeded = True
        known, times = self._progress(run), watched.gang.times
        if known and known["attempt"] == number and known["rate"] and not times.steps:
            times.steps.extend([max(GUESSED, FACTOR / known["rate"])] * WARM_UP)
            watched.gang.report(worker, known["rank"], [(0.0, known["step"])], [], now)

    def _open(self, run: str, number: int) -> _Watched:
        if (run, number) not in self._watched:
            self._watched[run, number] = _Watched(GangActivity(self._learnt(run)))
        return self._watched[run, number]

    def _learnt(self, run: str) -> StepTimes:
        if run not in self._times and len(self._times) >= KEPT:
            del self._times[next(iter(self._times))]
        return self._times.setdefault(run, StepTimes())


def message(job: Job, verdict: Verdict) -> str:
    """`no step for 3m12s (limit 45 s): rank 3 on n2 is behind`."""
    assert job.attempt is not None
    workers = job.attempt.workers
    nodes = ", ".join(dict.fromkeys(workers[one].node for one in verdict.workers if one < len(workers)))
    limit = f"(limit {seconds(verdict.limit)})"
    said = f"{verdict.signals[0]} {limit}; {'; '.join(verdict.signals[1:])}"
    if verdict.kind == "launcher silent":
        return f"{said} ({nodes})"
    ranks = ", ".join(map(str, verdict.behind[:8])) + (" and others" if len(verdict.behind) > 8 else "")
    if not verdict.behind:
        return f"{said}; no rank stands out"
    return f"{said}; rank {ranks} on {nodes} {'is' if len(verdict.behind) == 1 else 'are'} behind"


def _reason(job: Job, verdict: Verdict) -> Reason:
    told = message(job, verdict)
    return reason(
        "hung", told, kind=verdict.kind, ranks=list(verdict.behind), waited=verdict.waited, limit=verdict.limit
    )


def _running(attempt: Attempt) -> list[int]:
    return [number for number, worker in enumerate(attempt.workers) if worker.state == "running"]


def _is_watched(job: Job) -> bool:
    """A gang that is being stopped, or that has a worker which failed, is on its way out. The others of a worker that
    has done its work may still hang."""
    attempt, wants = job.attempt, job.spec.hang
    if job.phase != "running" or job.stop is not None or attempt is None or job.spec.kind == "session":
        return False
    return wants.action != "off" and all(
        worker.state == "running" or (worker.exit or {}).get("outcome") == "succeeded" for worker in attempt.workers
    )


def _steps(writes: Iterable[StreamWrite], docs: Docs) -> dict[int, list[tuple[float, int]]]:
    """The newest steps that ranks reported, with their times: of the metric with the most points, or of progress."""
    found: dict[int, list[tuple[float, int]]] = {}
    for write in writes:
        if write.stream == "spool" and write.columns:
            column = max(write.columns.values(), key=lambda one: len(one.steps))
            found.setdefault(write.rank, []).extend(zip(column.times[-ROWS:], column.steps[-ROWS:], strict=True))
    for rank, doc in docs:
        step = doc.get("step")
        if doc.get("type") == "progress" and isinstance(step, int) and abs(step) < 2**63 and rank not in found:
            found.setdefault(rank, []).append((_time(doc), step))
    return found


def _phases(docs: Docs) -> dict[int, list[tuple[float, str]]]:
    """The phases that ranks entered. Waiting for others is a part of a step, also of one that never ends."""
    found: dict[int, list[tuple[float, str]]] = {}
    for rank, doc in docs:
        if doc.get("type") == "phase" and isinstance(doc.get("name"), str) and doc["name"] != WAITING:
            found.setdefault(rank, []).append((_time(doc), doc["name"][:PHASE_NAME]))
    return found


def _time(doc: Mapping[str, Any]) -> float:
    """When a document was written; a program may have put anything there."""
    time = doc.get("time")
    return float(time) if isinstance(time, int | float) and abs(time) < 2**63 else 0.0
