"""Watches running gangs for stragglers: takes the times that ranks report, asks for a verdict, tells it.

It lives in memory: after a restart of the server a verdict takes its windows again. A straggler is only told. A job is
moved off a node right after a checkpoint where its pool's rules say so, and only if several programs were slow there
and nowhere else: most slowness is the program's.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from muster.control.attempt_watch import Docs, Key, active_attempts, attempt_event
from muster.control.node_health import may_take_out
from muster.core.attempt_events import AttemptSteady, AttemptStraggler, program_of
from muster.core.entities.node import NodeSlow
from muster.core.entities.node_record import follows_node
from muster.core.event import SYSTEM, Event
from muster.core.job import Job
from muster.core.job_events import JobStopping
from muster.core.reasons import Reason, reason
from muster.core.spec import ranks_per_node
from muster.core.state import State
from muster.monitor.straggler import WINDOW, WINDOWS, GangTimes, Straggler
from muster.store.base import StreamWrite
from muster.wire import Batch

LOOK: Final = 1.0  # seconds between two looks
LATELY: Final = 7 * 86400.0  # seconds in which verdicts of several programs on one node count together
NAMED: Final = 8  # ranks and nodes that a sentence names


@dataclass(slots=True)
class _Watched:
    times: GangTimes = field(default_factory=GangTimes)
    verdict: Straggler | None = None
    told_at: float = 0.0


class Stragglers:
    """The launchers' requests call `take`, the control loop `look`."""

    def __init__(self) -> None:
        self._watched: dict[Key, _Watched] = {}
        self._lock = threading.Lock()
        self._next = 0.0

    def take(self, job_id: str, number: int, batch: Batch, writes: Iterable[StreamWrite], docs: Docs) -> None:
        """Takes a batch that was stored: phases with the time spent waiting, CPU time, and whether there were steps."""
        with self._lock:
            times = self._watched.setdefault((job_id, number), _Watched()).times
            for pulse in batch.pulses:
                times.rank(pulse.rank, batch.worker).beat(batch.clock, pulse.cpu)
            for rank, doc in docs:
                if doc.get("type") == "phase" and (at := _time(doc)):
                    spent = doc.get("spent")
                    name = str(doc.get("name"))
                    times.rank(rank, batch.worker).report(at, name, spent if isinstance(spent, dict) else {})
                times.stepped = times.stepped or doc.get("type") == "progress"
            times.stepped = times.stepped or any(write.columns for write in writes)

    def look(self, state: State, now: float) -> list[Event]:
        """Verdicts that are new or over, and orders to move jobs off nodes that several programs are slow on."""
        if now < self._next:
            return []
        self._next = now + LOOK
        with self._lock:
            active = active_attempts(state, self._watched)
            events: list[Event] = []
            for key, watched in self._watched.items():
                job = active[key]
                if _is_watched(job):
                    events += _judge(job, watched, now) or _move(state, job, watched, now)
            return events


def message(job: Job, found: Straggler) -> str:
    """`rank 3 on n2 works 62% longer in each step than the others, which wait for it 38% of the time (...)`."""
    ranks = ", ".join(map(str, found.ranks[:NAMED])) + (" and others" if len(found.ranks) > NAMED else "")
    where, one = ", ".join(_nodes(job, found)[:NAMED]), len(found.ranks) == 1
    how = "they waited by their own measure" if found.evidence == "waiting" else "only CPU time is known: weak evidence"
    return (
        f"rank {ranks} on {where} {'works' if one else 'work'} {found.slower:.0%} longer in each step than the others, "
        f"which wait for {'it' if one else 'them'} {found.lost:.0%} of the time ({found.seen} of {WINDOWS} windows of "
        f"{WINDOW:.0f} s; {how})"
    )


def _judge(job: Job, watched: _Watched, now: float) -> list[Event]:
    assert job.attempt is not None
    ranks = ranks_per_node(job.spec) * len(job.attempt.workers)
    if ranks < 2 or not watched.times.close(now, ranks):
        return []
    before, found = watched.verdict, watched.times.verdict()
    if found is not None and (before is None or found.ranks != before.ranks):
        watched.verdict, watched.told_at = found, now
        told = reason("straggler", message(job, found), **found.to_doc())
        return [attempt_event(AttemptStraggler(told, found.to_doc(), _nodes(job, found)), job, now)]
    # One that an earlier server told is over too if there is none in as many windows.
    told_before = job.reason is not None and job.reason.code == "straggler"
    if found is None and (before is not None or told_before) and watched.times.over(before.ranks if before else ()):
        watched.verdict = None
        return [attempt_event(AttemptSteady(), job, now)]
    return []


def _move(state: State, job: Job, watched: _Watched, now: float) -> list[Event]:
    """Moves the job off its slow nodes if its pool's rules say so, it has just saved, and others are slow there too."""
    found, attempt, mark = watched.verdict, job.attempt, job.checkpoint
    if found is None or found.evidence != "waiting" or attempt is None or mark is None:
        return []
    if mark.attempt != attempt.number or mark.time <= watched.told_at:
        return []
    if state.rules.pool(attempt.pool).stragglers != "move":
        return []
    taken: dict[str, Event] = {}
    for name in _nodes(job, found):
        programs = follows_node(state, name, now - LATELY)
        node = state.find_node(name)
        if program_of(job) in programs and node is not None and may_take_out(state, node, taken):
            why = f"ranks of {len(programs)} programs were slower there than their peers, and on no other node"
            taken[name] = Event(NodeSlow(name, why, list(programs)), now, SYSTEM)
    if not taken:
        return []
    return [
        *taken.values(),
        attempt_event(JobStopping(_why_moved(taken, mark.step), "queued", _grace(state)), job, now),
    ]


def _why_moved(nodes: Iterable[str], step: int) -> Reason:
    names = ", ".join(nodes)
    text = f"it leaves {names}, where several programs are slow, after its checkpoint of step {step}"
    return reason("straggler_node", text, nodes=list(nodes))


def _grace(state: State) -> float:
    return float(state.rules.preemption.grace)


def _nodes(job: Job, found: Straggler) -> list[str]:
    assert job.attempt is not None
    workers = job.attempt.workers
    return list(dict.fromkeys(workers[one].node for one in found.workers if one < len(workers)))


def _is_watched(job: Job) -> bool:
    running = job.phase == "running" and job.stop is None and job.spec.kind != "session"
    return running and job.attempt is not None and all(one.state == "running" for one in job.attempt.workers)


def _time(doc: dict[str, Any]) -> float:
    """When a document was written; 0 if the program put something else there."""
    time = doc.get("time")
    return float(time) if isinstance(time, int | float) and 0 < time < 2**33 else 0.0
