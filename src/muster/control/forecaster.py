"""Looks ahead beside the control loop: when those who wait will start, to be scored later, and what they wait for.

Forecasts are made for jobs that still wait after a few seconds, many in one go, and never take more than a small part
of the time. What a job waits for is looked at once a minute for those who are next, and noted when it changes.
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
from muster.core.state import State
from muster.sched.board import Board
from muster.sched.explain import Explainer
from muster.sched.forecast import Forecast, foretell
from muster.sched.snapshot import Snapshot, take
from muster.store.base import Entry
from muster.store.commit import Commit

RIPE: Final = 5.0  # seconds that a job has waited when its start is forecast
TOGETHER: Final = 32  # jobs that are forecast in one go; of more, some are chosen
REMEMBERED: Final = 10_000  # jobs that are to be forecast
SAMPLES: Final = 10
ROUNDS: Final = 500
GRAIN: Final = 0.1  # of a wait: its forecast need not be finer
CONSIDERED: Final = 300  # jobs
NOTED_EVERY: Final = 60.0  # seconds, and the wait from which on it is noted
NOTED: Final = 200  # jobs
_PAUSE: Final = 1.0  # seconds between looks, at least
_SHARE: Final = 0.05  # of the time that looking ahead may take

T = TypeVar("T")


class Forecaster:
    """One thread; `step` is one look, for those who have no thread."""

    def __init__(self, commit: Commit, board: Callable[[], Board], clock: Clock, may_act: Callable[[], bool]) -> None:
        self._commit, self._board, self._clock = commit, board, clock
        self._new: deque[tuple[float, str]] = deque(maxlen=REMEMBERED)  # when it was submitted, and the job
        self._codes: dict[str, str] = {}  # job → the reason that was noted last
        self._noted_at = float("-inf")
        self._thread = Background("forecaster", self.step, may_act, lambda spent: max(_PAUSE, spent / _SHARE))
        self.start, self.close = self._thread.start, self._thread.close

    def fold(self, events: Sequence[Event]) -> Entry:
        """Remembers the jobs of `job.submitted` events; the fold of a follower that is not durable."""
        self._new.extend([(event.time, event.job) for event in events])
        return Entry()

    def step(self) -> None:
        """Raises Unavailable or Conflict when nothing can be written now."""
        now = self._clock.now()
        asked = self._ripe(now)
        if asked:
            self._forecast(asked, now)
        if now - self._noted_at >= NOTED_EVERY:
            self._noted_at = now
            self._note(now)

    # --- when they start ----------------------------------------------------------------------------------------------
    def _ripe(self, now: float) -> list[str]:
        found: list[str] = []
        while self._new and self._new[0][0] + RIPE <= now:
            found.append(self._new.popleft()[1])
        step = max(-(-len(found) // TOGETHER), 1)
        return found[::step]

    def _forecast(self, asked: list[str], now: float) -> None:
        shot, waiting = self._look(lambda state: self._shot(state, asked, now))
        if shot is None:
            return
        found = foretell(shot, waiting, SAMPLES, rounds=ROUNDS, grain=GRAIN)
        projects = {job.id: job.project for job in shot.jobs}
        events = [_said(one, projects[name], now) for name, one in found.items() if one.p50 is not None]
        if events:
            self._commit.submit(lambda state: Entry(events)).result()

    def _shot(self, state: State, asked: list[str], now: float) -> tuple[Snapshot | None, list[str]]:
        """Of those who have never started and still wait."""
        known = (state.jobs.get(name) for name in asked)
        waiting = [job.id for job in known if job is not None and job.phase == "queued" and job.attempt is None]
        return (take(state, self._board(), now, waiting, most=CONSIDERED) if waiting else None), waiting

    # --- what they wait for -------------------------------------------------------------------------------------------
    def _note(self, now: float) -> None:
        events = self._look(lambda state: self._changed(state, now))
        if events:
            self._commit.submit(lambda state: Entry(events)).result()

    def _changed(self, state: State, now: float) -> list[Event]:
        explainer = Explainer.of(state, now, self._board())
        codes, events = dict[str, str](), list[Event]()
        for queued in islice(explainer.line.in_order(resting=True), NOTED):
            job = queued.job
            if now - job.since < NOTED_EVERY:
                continue
            why = explainer.explain(job, brief=True)[0]
            codes[job.id] = why.code
            if self._codes.get(job.id) != why.code:
                number = job.attempt.number if job.attempt else 0
                data = {"reason": why.to_dict()}
                events.append(Event("job.waits", now, SYSTEM, job.project, job.id, number, data))
        self._codes = codes
        return events

    def _look(self, look: Callable[[State], T]) -> T:
        found: list[T] = []
        self._commit.submit(peek(found, look)).result()
        return found[0]


def _said(one: Forecast, project: str, now: float) -> Event:
    data = {"at": one.at, "p50": one.p50, "p90": one.p90, "cut": list(one.cut)}
    return Event("job.forecast", now, SYSTEM, project, one.job, data=data)
