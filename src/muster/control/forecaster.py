"""Records forecasts of when queued jobs will start, and why queued jobs wait. Runs in a thread beside the control loop.

Forecasts are made for jobs that still wait after a few seconds, many at once, and take only a small share of the time.
They are scored later. Once a minute, the reasons of the jobs at the head of the queue are computed, and recorded when
they have changed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final, TypeVar

from muster.control.background import Background
from muster.control.clock import Clock
from muster.control.submit import peek
from muster.core.event import SYSTEM, Event
from muster.core.job import Job
from muster.core.job_events import JobForecast, JobWaits
from muster.core.state import State
from muster.sched.board import Board
from muster.sched.explain import Explainer
from muster.sched.forecast import Forecast, forecast_snapshot
from muster.sched.likely_end import Ends
from muster.sched.snapshot import Snapshot, take
from muster.store.base import Entry
from muster.store.commit import Commit

FORECAST_AFTER: Final = 5.0  # seconds after submission at which the start of a job is forecast
TOGETHER: Final = 32  # maximum jobs per forecast; if there are more, every n-th is taken
REMEMBERED: Final = 10_000  # maximum jobs that are remembered for a forecast
SAMPLES: Final = 10
ROUNDS: Final = 500
GRAIN: Final = 0.1  # precision of a forecast, as a share of the wait
CONSIDERED: Final = 300  # jobs of the snapshot
NOTED_EVERY: Final = 60.0  # seconds between two looks at the reasons; also the wait after which a reason is recorded
NOTED: Final = 200  # jobs whose reasons are looked at
_PAUSE: Final = 1.0  # minimum seconds between two steps
_SHARE: Final = 0.05  # maximum share of the time that the steps may take

T = TypeVar("T")


class Forecaster:
    """Runs `step` in one thread; a caller without a thread calls `step` itself."""

    def __init__(
        self,
        commit: Commit,
        board: Callable[[], Board],
        clock: Clock,
        may_act: Callable[[], bool],
        ends: Callable[[], Ends] = dict,
        forecast: Callable[..., dict[str, Forecast]] = forecast_snapshot,
    ) -> None:
        """`ends`: when running jobs end by their own progress. What is said to users and what is scored is the same."""
        self._commit, self._board, self._clock, self._ends = commit, board, clock, ends
        self._compute = forecast
        self._new: deque[tuple[float, str]] = deque(maxlen=REMEMBERED)  # time of submission, job
        self._codes: dict[str, str] = {}  # job → code of the last recorded reason
        self._noted_at = float("-inf")
        self._thread = Background("forecaster", self.step, may_act, lambda spent: max(_PAUSE, spent / _SHARE))
        self.start, self.close = self._thread.start, self._thread.close

    def fold(self, events: Sequence[Event]) -> Entry:
        """Remembers the jobs of `job.submitted` events. It is the fold of a follower that is not durable."""
        self._new.extend([(event.time, event.job) for event in events])
        return Entry()

    def step(self) -> None:
        """Makes the forecasts and notes the reasons that are due. Raises Unavailable or Conflict if it can't write."""
        now = self._clock.now()
        asked = self._due(now)
        if asked:
            self._forecast(asked, now)
        if now - self._noted_at >= NOTED_EVERY:
            self._noted_at = now
            self._note(now)

    # --- forecasts ----------------------------------------------------------------------------------------------------
    def _due(self, now: float) -> list[str]:
        found: list[str] = []
        while self._new and self._new[0][0] + FORECAST_AFTER <= now:
            found.append(self._new.popleft()[1])
        step = max(-(-len(found) // TOGETHER), 1)
        return found[::step]

    def _forecast(self, asked: list[str], now: float) -> None:
        ends = self._ends()
        snapshot, waiting = self._look(lambda state: self._snapshot(state, asked, now, ends))
        if snapshot is None:
            return
        found = self._compute(snapshot, waiting, samples=SAMPLES, rounds=ROUNDS, grain=GRAIN)
        projects = {job.id: job.project for job in snapshot.jobs}
        events = [_event(one, one.p50, projects[name], now) for name, one in found.items() if one.p50 is not None]
        if events:
            self._commit.submit(lambda state: Entry(events)).result()

    def _snapshot(self, state: State, asked: list[str], now: float, ends: Ends) -> tuple[Snapshot | None, list[str]]:
        """A snapshot for those of the jobs that still wait and have never started, and their ids."""
        known = (state.jobs.get(name) for name in asked)
        waiting = [job.id for job in known if job is not None and _is_new(job)]
        return (take(state, self._board(), now, waiting, most=CONSIDERED, ends=ends) if waiting else None), waiting

    # --- reasons ------------------------------------------------------------------------------------------------------
    def _note(self, now: float) -> None:
        events = self._look(lambda state: self._changed(state, now))
        if events:
            self._commit.submit(lambda state: Entry(events)).result()

    def _changed(self, state: State, now: float) -> list[Event]:
        explainer = Explainer.of(state, now, self._board())
        codes, events = dict[str, str](), list[Event]()
        for queued in islice(explainer.positions.in_order(include_held=True), NOTED):
            job = queued.job
            if now - job.since < NOTED_EVERY:
                continue
            why = explainer.explain(job, brief=True)[0]
            codes[job.id] = why.code
            if self._codes.get(job.id) != why.code:
                number = job.attempt.number if job.attempt else 0
                events.append(Event(JobWaits(why), now, SYSTEM, job.project, job.id, number))
        self._codes = codes
        return events

    def _look(self, look: Callable[[State], T]) -> T:
        found: list[T] = []
        self._commit.submit(peek(found, look)).result()
        return found[0]


def _is_new(job: Job) -> bool:
    """Whether it waits for its turn and has never started. When others end, on which it depends, is not scored."""
    return job.phase == "queued" and job.attempt is None and not job.awaits


def _event(one: Forecast, p50: float, project: str, now: float) -> Event:
    return Event(JobForecast(one.at, p50, one.p90, list(one.cut)), now, SYSTEM, project, one.job)
