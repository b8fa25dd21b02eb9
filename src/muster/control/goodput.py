"""Keeps the goodput ledger: the time of ended attempts in rows, that of live ones computed when somebody asks.

The follower computes the rows of an attempt once, when it has ended. Reports that arrive later mark them, and they are
computed again when they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from muster.core.event import Event
from muster.core.job import Attempt, Job
from muster.core.reasons import REASONS
from muster.core.resources import WHOLE
from muster.core.state import State
from muster.monitor.time_ledger import (
    DAY,
    SECOND,
    HeldAttempt,
    Interval,
    PhaseEntry,
    StepTrail,
    by_day,
    intervals,
    microseconds,
)
from muster.store.base import Entry, Store
from muster.track.goodput_rows import AttemptTime, DayTime, GoodputFilter, HeldDay, goodput_record, read_goodput
from muster.track.metrics.append import SYSTEM
from muster.track.metrics.milestones import Milestone
from muster.track.phase_rows import read_phases
from muster.track.tracking import Tracking

HUNG = "hung"  # the reason of an attempt that was stopped because it hung
_SILENT = tuple(code for code, kind in REASONS.items() if kind.category == "node")
_RETRIED = ("node", "worker", "preempted", "error")  # categories of ends after which a job waits for its next attempt


class GoodputLedger:
    def __init__(self, store: Store, track: Tracking, now: Callable[[], float]) -> None:
        self._store, self._track, self._now = store, track, now

    def fold(self, events: Sequence[Event]) -> Entry:
        """The fold of the follower `goodput`: the rows of attempts that have ended."""
        ended = list(dict.fromkeys((event.job, event.attempt) for event in events if event.kind == "attempt.ended"))
        times = [time for run, number in ended if (time := self._ended(run, number)) is not None]
        return Entry(records=[goodput_record(times)]) if times else Entry()

    def read(self, want: GoodputFilter, live: Sequence[Job]) -> list[HeldDay]:
        """The days of ended attempts, and of `live` jobs, that count."""
        held = self._rows(want)
        if stale := list(dict.fromkeys((one.run, one.attempt) for one in held if one.stale)):
            times = [time for run, number in stale if (time := self._ended(run, number)) is not None]
            self._track.db.write(goodput_record(times))
            held = self._rows(want)
        for job in live:
            held += _chosen(self._live(job, {one.attempt for one in held if one.run == job.id}), want)
        return held

    def _rows(self, want: GoodputFilter) -> list[HeldDay]:
        with self._track.db.reading() as connection:
            return list(read_goodput(connection, want))

    def _ended(self, run: str, number: int) -> AttemptTime | None:
        job = self._store.job(run)
        if job is None or self._track.intake.gone(run):
            return None
        attempts = self._store.attempts(run)
        one = next((each for each in attempts if each.number == number), None)
        return self._time(job, attempts, one) if one is not None and one.ended_at is not None else None

    def _live(self, job: Job, stored: set[int]) -> Iterator[AttemptTime]:
        """The attempts of a job that have no rows: the one that holds seats, and one that ended just now."""
        attempts = self._store.attempts(job.id)
        for one in attempts[-2:]:
            if one.number not in stored:
                yield self._time(job, attempts, one)

    def _time(self, job: Job, attempts: Sequence[Attempt], one: Attempt) -> AttemptTime:
        trail = self._trails(job, attempts).get(one.number)
        days = by_day(self._intervals(job, one, trail))
        steps = max(0, trail.last[0] - trail.first[0] + 1) if trail is not None else 0
        repeats = min(steps, trail.repeats) if trail is not None else 0
        planned = microseconds(one.planned_at) // DAY * DAY
        waited = _waited(attempts, one)
        unit, nodes = _units(job, one)
        found = (
            DayTime(day // SECOND, parts, waited if day == planned else 0, steps, repeats)
            for day, parts in sorted(days.items())
        )
        return AttemptTime(job.id, one.number, job.project, job.queue, unit, nodes, tuple(found))

    def _intervals(self, job: Job, one: Attempt, trail: StepTrail | None) -> list[Interval]:
        with self._track.db.reading() as connection:
            entries = [PhaseEntry(*entry) for entry in read_phases(connection, job.id, one.number)]
        failed = one.outcome == "failed"
        hung = one.reason is not None and one.reason.code == HUNG
        held = HeldAttempt(
            planned=microseconds(one.planned_at),
            ended=microseconds(one.ended_at if one.ended_at is not None else self._now()),
            running=microseconds(one.running_at) if one.running_at is not None else None,
            exited=_exited(one, failed or hung),
            failed=failed or hung,
            hung=hung,
            from_step=one.from_step,
            trail=trail,
        )
        return intervals(held, entries)

    def _trails(self, job: Job, attempts: Sequence[Attempt]) -> dict[int, StepTrail]:
        names = [one.name for one in self._track.metrics.series(job.id) if not one.name.startswith(SYSTEM)]
        if not names:
            return {}
        name = "loss" if "loss" in names else min(names)
        found = self._track.metrics.milestones(job.id, name, [one.number for one in attempts])
        trails, reached = {}, None
        for number in sorted(found):
            trails[number] = _trail(found[number], reached)
            reached = max(found[number][-1].step, reached if reached is not None else found[number][-1].step)
        return trails


def _trail(marks: Sequence[Milestone], reached: int | None) -> StepTrail:
    """`reached`: the last step of all attempts before."""
    (first, last), caught_up, repeats = (marks[0], marks[-1]), None, 0
    if reached is not None and first.step <= reached:
        repeats = min(last.step, reached) - first.step + 1
        # It is at the last of these steps when it reports the step, and not before.
        caught_up = next((microseconds(mark.time) for mark in marks if mark.step >= reached), None)
    ends = [(mark.step, microseconds(mark.time)) for mark in (first, last)]
    return StepTrail(ends[0], ends[1], caught_up, repeats)


def _exited(one: Attempt, failed: bool) -> int | None:
    exits = [worker.exit for worker in one.workers if worker.exit is not None]
    if failed:
        first = min((exit for exit in exits if exit.get("outcome") != "succeeded"), key=_time_of, default=None)
        # A worker that went away without a word has no time of its own: the server noticed it later.
        return microseconds(_time_of(first)) if first is not None and first.get("reason") not in _SILENT else None
    return microseconds(max(map(_time_of, exits))) if exits and len(exits) == len(one.workers) else None


def _time_of(exit: Mapping[str, Any]) -> float:
    return float(exit["time"])


def _waited(attempts: Sequence[Attempt], one: Attempt) -> int:
    """Microseconds from the end of the attempt before, if the job was queued again by itself then."""
    before = next((each for each in reversed(attempts) if each.number < one.number), None)
    if before is None or before.ended_at is None or before.reason is None:
        return 0
    kind = REASONS.get(before.reason.code)
    if kind is None or kind.category not in _RETRIED:
        return 0
    return max(0, microseconds(one.planned_at) - microseconds(before.ended_at))


def _units(job: Job, one: Attempt) -> tuple[str, dict[str, int]]:
    """What the attempt held on each node, in thousandths: accelerators, or CPUs if it asked for none."""
    nodes: dict[str, int] = {}
    for worker in one.workers:
        if job.ask.accelerators:
            held = (len(worker.seat.devices) or job.ask.accelerators) * worker.seat.share
        else:
            held = job.ask.milli_cpus or WHOLE
        nodes[worker.node] = nodes.get(worker.node, 0) + held
    return "accelerator" if job.ask.accelerators else "cpu", nodes


def _chosen(times: Iterator[AttemptTime], want: GoodputFilter) -> Iterator[HeldDay]:
    for one in times:
        units = one.units if want.node is None else one.nodes.get(want.node, 0)
        for each in one.days:
            if units and each.day >= want.since:
                yield HeldDay(one.run, one.attempt, one.unit, units, each)


def live_jobs(state: State, want: GoodputFilter) -> list[Job]:
    """Jobs that hold seats and count."""
    return [
        job
        for job in (state.jobs[one] for one in state.active)
        if (want.run is None or job.id == want.run)
        and (want.projects is None or job.project in want.projects)
        and (want.queue is None or job.queue == want.queue)
    ]
