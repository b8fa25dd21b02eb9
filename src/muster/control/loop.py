"""The control loop: observe, decide, commit, reconcile; woken by events, with a slow fallback.

A tick takes four steps, and the server may be killed between any two of them:

1. Observe: what the engine says has changed becomes events.
2. Decide and commit: gangs that ended get a verdict, queued gangs get seats. Each decision is a proposal that runs
   against the live state, so it is durable before anything acts on it.
3. Reconcile: compare the state with the engine; launch what is missing, stop what should not be there.
4. Forget: what is recorded, the engine need not keep.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

from muster.control.clock import Clock
from muster.control.observe import WorkerKey, node_events, worker_ended, worker_events
from muster.control.reconcile import Action, Forget, Launch, Stop, desired, strays
from muster.control.recovery import after_end, verdict
from muster.control.submit import peek
from muster.core.errors import EngineError, MusterError, Unavailable
from muster.core.event import SYSTEM, Event
from muster.core.faults import point
from muster.core.state import State
from muster.engines.base import Engine, GangLaunch, WorkerReport
from muster.sched.schedule import Memo, schedule
from muster.store.base import Entry, Proposal
from muster.store.commit import GroupCommit
from muster.wire import WorkerExit

log = logging.getLogger("muster.control")

FALLBACK = 2.0  # seconds between ticks that nothing woke
NODES_EVERY = 15.0  # seconds between looks at the engine's nodes
LAUNCH_TRIES = 5
RELAUNCH_AFTER = 5.0  # seconds without a sign of a launcher

_WAKING = ("job.submitted", "job.resumed", "job.stopping", "job.stopped", "worker.", "node.", "queue.")


class Controller:
    """Owns the tick. One runs at a time, wherever the lease is."""

    def __init__(
        self,
        commit: GroupCommit,
        engine: Engine,
        clock: Clock,
        token_for: Callable[[str, int], str],
        may_act: Callable[[], bool],
    ) -> None:
        self._commit, self._engine, self._clock = commit, engine, clock
        self._token_for, self._may_act = token_for, may_act
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._lock = threading.Lock()  # guards the dirty set, which commits and ticks both touch
        self._dirty: set[str] = set()
        self._changed = True  # the engine has something new to say
        self._nodes_at = 0.0
        self._memo = Memo()
        self._first_seen: dict[WorkerKey, tuple[str, float]] = {}
        self._launched: dict[tuple[str, int], int] = {}  # tries
        self._ordered: dict[tuple[str, int], float] = {}  # stop orders that were carried out
        self._wake_at: float | None = None
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)

    def start(self) -> None:
        """Adopts what runs, then ticks until `close`."""
        self._engine.on_change(self._engine_changed)
        running = self._look(lambda state: list(state.active))
        with self._lock:
            self._dirty.update(running)
        self._thread.start()

    def close(self) -> None:
        self._stopped.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join()

    def on_commit(self, events: Sequence[Event]) -> None:
        """Marks what the events touched; wakes the loop when one of them may change a decision."""
        with self._lock:
            self._dirty.update(e.job for e in events if e.job)
        if any(e.kind.startswith(_WAKING) for e in events):
            self._wake.set()

    def tick(self) -> None:
        """One round; raises Unavailable or Conflict when nothing could be committed."""
        self._wake.clear()
        now = self._clock.now()
        with self._lock:
            dirty, self._dirty = self._dirty, set()
        try:
            reports = self._observe(now)
            with self._lock:
                dirty |= self._dirty
            self._decide(dirty, now)
            actions = self._look(lambda state: desired(state, sorted(dirty)) + strays(state, reports or ()))
        except MusterError:
            with self._lock:
                self._dirty |= dirty
            raise
        for action in actions:
            if not self._may_act():
                raise Unavailable("The lease ran out during the tick.", "Another server may be leading.")
            self._act(action)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self.tick()
            except MusterError as error:
                log.warning("tick put off: %s", error)
                self._stopped.wait(0.5)
            except Exception:
                log.exception("tick failed; it is tried again")
                self._stopped.wait(1.0)
            self._wake.wait(self._until_next())

    def _until_next(self) -> float:
        if self._wake_at is None:
            return FALLBACK
        return min(FALLBACK, max(self._wake_at - self._clock.now(), 0.0) + 0.001)

    def _engine_changed(self) -> None:
        self._changed = True
        self._wake.set()

    def _observe(self, now: float) -> Sequence[WorkerReport] | None:
        """Polls when there is something to hear; None when the engine was left alone."""
        if time.monotonic() - self._nodes_at >= NODES_EVERY or self._nodes_at == 0.0:
            nodes = self._engine.nodes()
            self._propose(lambda state: Entry(node_events(state, nodes, self._engine.name, now)))
            self._nodes_at = time.monotonic()
        idle = self._look(lambda state: not state.active)
        if idle and not self._changed:
            return None
        self._changed = False
        reports = self._engine.poll()
        self._note_first_seen(reports, now)
        seen = {key: at for key, (_, at) in self._first_seen.items()}
        self._propose(lambda state: Entry(worker_events(state, reports, seen, self._engine.patience, now)))
        self._relaunch_silent(now)
        return reports

    def _relaunch_silent(self, now: float) -> None:
        """A launch that never came up is made once more; the engine starts nothing twice."""
        for (job, attempt, _), (status, at) in self._first_seen.items():
            silent = status in ("starting", "unknown") and now - at >= RELAUNCH_AFTER
            if silent and self._launched.get((job, attempt)) == -1:
                self._launched.pop((job, attempt))
                with self._lock:
                    self._dirty.add(job)

    def _note_first_seen(self, reports: Sequence[WorkerReport], now: float) -> None:
        fresh: dict[WorkerKey, tuple[str, float]] = {}
        for report in reports:
            key = (report.job, report.attempt, report.worker)
            before = self._first_seen.get(key)
            fresh[key] = before if before is not None and before[0] == report.status else (report.status, now)
        for key in self._look(_active_workers):
            if key not in fresh:
                before = self._first_seen.get(key)
                fresh[key] = before if before is not None and before[0] == "unknown" else ("unknown", now)
        self._first_seen = fresh

    def _decide(self, dirty: set[str], now: float) -> None:
        judged = self._commit.submit(lambda state: Entry(judge(state, sorted(dirty), now)))
        planned = self._commit.submit(lambda state: self._plan(state, now))
        judged.result()
        starts = planned.result()
        point("control.after_plan")
        dirty.update(event.job for event in starts)

    def _plan(self, state: State, now: float) -> Entry:
        plan = schedule(state, now, self._memo)
        self._wake_at = plan.wake_at
        events = []
        for start in plan.starts:
            job = state.jobs[start.job]
            number = (job.attempt.number if job.attempt else 0) + 1
            data = {"seats": [asdict(seat) for seat in start.seats]}
            events.append(Event("attempt.planned", now, SYSTEM, job.project, job.id, number, data))
        return Entry(events)

    def _act(self, action: Action) -> None:
        if isinstance(action, Launch):
            self._launch(action.gang)
        elif isinstance(action, Stop):
            self._stop(action)
        elif isinstance(action, Forget):
            self._engine.forget(action.job, action.attempt)
            self._launched.pop((action.job, action.attempt), None)
            self._ordered.pop((action.job, action.attempt), None)

    def _launch(self, gang: GangLaunch) -> None:
        key = (gang.job, gang.attempt)
        if self._launched.get(key, 0) < 0:
            return
        point("control.before_launch")
        try:
            self._engine.launch(replace(gang, token=self._token_for(gang.job, gang.attempt)))
            self._launched[key] = -1
            point("control.after_launch")
        except (EngineError, OSError) as error:
            tries = self._launched[key] = self._launched.get(key, 0) + 1
            log.warning("launch of %s/%d failed (%d of %d): %s", *key, tries, LAUNCH_TRIES, error)
            with self._lock:
                self._dirty.add(gang.job)
            if isinstance(error, EngineError) or tries >= LAUNCH_TRIES:
                self._launched[key] = -1
                detail, now = str(error), self._clock.now()
                self._propose(lambda state: _launch_failed(state, gang, detail, now))

    def _stop(self, stop: Stop) -> None:
        key = (stop.job, stop.attempt)
        if self._ordered.get(key) == stop.order and stop.order:
            return
        self._engine.stop(stop.job, stop.attempt, stop.grace, stop.reason)
        self._ordered[key] = stop.order

    def _propose(self, proposal: Proposal) -> list[Event]:
        return self._commit.submit(proposal).result()

    def _look(self, look: Callable[[State], Any]) -> Any:
        found: list[Any] = []
        self._propose(peek(found, look))
        return found[0]


def judge(state: State, job_ids: Sequence[str], now: float) -> list[Event]:
    """The verdict on every named gang whose workers have all ended, and what follows from it."""
    events = []
    for job_id in job_ids:
        job = state.jobs.get(job_id)
        if job is None or not job.active or job.attempt is None:
            continue
        found = verdict(job.attempt)
        if found is not None:
            outcome, cause = found
            data = {"outcome": outcome, "reason": cause.to_dict()}
            events.append(Event("attempt.ended", now, SYSTEM, job.project, job.id, job.attempt.number, data))
            events.append(after_end(job, outcome, cause, now))
    return events


def _active_workers(state: State) -> list[WorkerKey]:
    keys: list[WorkerKey] = []
    for job_id in state.active:
        attempt = state.jobs[job_id].attempt
        assert attempt is not None
        keys.extend((job_id, attempt.number, index) for index in range(len(attempt.workers)))
    return keys


def _launch_failed(state: State, gang: GangLaunch, detail: str, now: float) -> Entry:
    job = state.jobs.get(gang.job)
    if job is None or not job.active or job.attempt is None or job.attempt.number != gang.attempt:
        return Entry()
    end = WorkerExit("failed", "launch_failed", detail, now)
    return Entry([worker_ended(job, i, end, now) for i, w in enumerate(job.attempt.workers) if w.state != "ended"])
