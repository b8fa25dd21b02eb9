"""Keeps the goodput ledger: the time of ended attempts in rows, that of live ones computed when somebody asks.

The follower computes the rows of an attempt once, when it has ended. Reports that arrive later mark them, and they are
computed again when they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from muster.core.event import Event
from muster.core.job import Attempt, Job
from muster.core.reasons import REASONS
from muster.core.resources import WHOLE
from muster.core.state import State
from muster.cost.ledger import TimeClass
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
from muster.store.base import Entry, JobFilter, Store
from muster.track.goodput_rows import AttemptTime, DayTime, GoodputFilter, HeldDay, goodput_record, read_goodput
from muster.track.job_rows import read_job_rows
from muster.track.metrics.milestones import Milestone, step_metrics
from muster.track.phase_rows import Entry as PhaseRow
from muster.track.phase_rows import read_phases
from muster.track.tracking import Tracking

HUNG = "hung"  # the reason of an attempt that was stopped because it hung
_SILENT = tuple(code for code, kind in REASONS.items() if kind.category == "node")
_RETRIED = ("node", "worker", "preempted", "error")  # categories of ends after which a job waits for its next attempt


class _Facts(NamedTuple):
    """What is known of a run's time, by attempt."""

    job: Job
    attempts: Sequence[Attempt]
    phases: dict[int, list[PhaseRow]]
    trails: dict[int, StepTrail]


class GoodputLedger:
    def __init__(self, store: Store, track: Tracking, now: Callable[[], float]) -> None:
        self._store, self._track, self._now = store, track, now

    def fold(self, events: Sequence[Event]) -> Entry:
        """The fold of the follower `goodput`: the rows of attempts that have ended."""
        ended = dict.fromkeys((event.job, event.attempt) for event in events if event.kind == "attempt.ended")
        times = self._ended(list(ended))
        return Entry(records=[goodput_record(times)]) if times else Entry()

    def read(self, want: GoodputFilter, live: Sequence[str]) -> list[HeldDay]:
        """The days of ended attempts, and of `live` jobs, that count."""
        held = self._rows(want)
        if stale := list(dict.fromkeys((one.run, one.attempt) for one in held if one.stale)):
            self._track.db.write(goodput_record(self._ended(stale)))
            held = self._rows(want)
        found = self._facts(live)
        stored = {(one.run, one.attempt) for one in held} if found else set()
        for run, facts in found.items():
            # The one that holds seats, and one before it that ended just now.
            for one in facts.attempts[-2:]:
                if (run, one.number) not in stored:
                    held += _chosen(self._time(facts, one), want)
        return held

    def classes(self, wanted: Sequence[tuple[str, int]]) -> dict[tuple[str, int], list[TimeClass]]:
        """What the time of these attempts went to, and the reason of what was lost; without runs that were purged."""
        found = self._facts(list(dict.fromkeys(run for run, _ in wanted if not self._track.intake.gone(run))))
        times: dict[tuple[str, int], list[TimeClass]] = {}
        for run, number in wanted:
            before = ""
            for one in found[run].attempts if run in found else ():
                code = one.reason.code if one.reason is not None else ""
                if one.number == number:
                    cause = {"lost": code, "hung": code, "done_again": before}
                    times[(run, number)] = [
                        TimeClass(*part, before if part.kind.startswith("starting.") else cause.get(part.kind, ""))
                        for part in self._intervals(found[run], one)
                    ]
                before = code
        return times

    def _rows(self, want: GoodputFilter) -> list[HeldDay]:
        with self._track.db.reading() as connection:
            return list(read_goodput(connection, want))

    def _ended(self, wanted: Sequence[tuple[str, int]]) -> list[AttemptTime]:
        """The time of these attempts, of those that have ended and whose run was not purged."""
        found = self._facts(list(dict.fromkeys(run for run, _ in wanted if not self._track.intake.gone(run))))
        ended = (
            (found[run], one)
            for run, number in wanted
            if run in found
            for one in found[run].attempts
            if one.number == number and one.ended_at is not None
        )
        return [self._time(facts, one) for facts, one in ended]

    def _facts(self, runs: Sequence[str]) -> dict[str, _Facts]:
        """What the ledger needs of these runs, with few statements for all of them."""
        if not runs:
            return {}
        jobs = self._store.jobs(JobFilter(ids=runs, limit=len(runs)))
        with self._track.db.reading() as connection:
            rows = read_job_rows(connection, runs)
            phases = read_phases(connection, runs)
            metrics = step_metrics(connection, runs)
        attempts: dict[str, list[Attempt]] = {}
        for (run, _), one in sorted(rows.attempts.items()):
            attempts.setdefault(run, []).append(one)
        return {
            job.id: _Facts(
                job,
                attempts.get(job.id, []),
                {one.number: phases.get((job.id, one.number), []) for one in attempts.get(job.id, ())},
                self._trails(job.id, attempts.get(job.id, []), metrics.get(job.id)),
            )
            for job in jobs
        }

    def _time(self, facts: _Facts, one: Attempt) -> AttemptTime:
        job, trail = facts.job, facts.trails.get(one.number)
        days = by_day(self._intervals(facts, one))
        steps = max(0, trail.last[0] - trail.first[0] + 1) if trail is not None else 0
        repeats = min(steps, trail.repeats) if trail is not None else 0
        planned = microseconds(one.planned_at) // DAY * DAY
        waited = _waited(facts.attempts, one)
        unit, nodes = _units(job, one)
        found = (
            DayTime(day // SECOND, parts, waited if day == planned else 0, steps, repeats, one.pool, len(one.workers))
            for day, parts in sorted(days.items())
        )
        return AttemptTime(job.id, one.number, job.project, job.queue, unit, nodes, tuple(found))

    def _intervals(self, facts: _Facts, one: Attempt) -> list[Interval]:
        hung = one.reason is not None and one.reason.code == HUNG
        failed = one.outcome == "failed" or hung
        held = HeldAttempt(
            planned=microseconds(one.planned_at),
            ended=microseconds(one.ended_at if one.ended_at is not None else self._now()),
            running=microseconds(one.running_at) if one.running_at is not None else None,
            exited=_exited(one, failed),
            failed=failed,
            hung=hung,
            from_step=one.from_step,
            trail=facts.trails.get(one.number),
        )
        return intervals(held, [PhaseEntry(*entry) for entry in facts.phases[one.number]])

    def _trails(self, run: str, attempts: Sequence[Attempt], metric: str | None) -> dict[int, StepTrail]:
        if metric is None:
            return {}
        found = self._track.metrics.milestones(run, metric, [one.number for one in attempts])
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


def _chosen(one: AttemptTime, want: GoodputFilter) -> Iterator[HeldDay]:
    units = one.units if want.node is None else one.nodes.get(want.node, 0)
    for each in one.days:
        if units and want.since <= each.day and (want.until is None or each.day < want.until):
            yield HeldDay(one.run, one.attempt, one.unit, units, each, project=one.project)


def live_jobs(state: State, want: GoodputFilter) -> list[str]:
    """Jobs that hold seats and count."""
    return [
        job.id
        for job in (state.jobs[one] for one in state.active)
        if (want.run is None or job.id == want.run)
        and (want.projects is None or job.project in want.projects)
        and (want.queue is None or job.queue == want.queue)
    ]
