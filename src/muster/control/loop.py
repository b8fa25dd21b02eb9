"""The control loop: observe, decide, commit, reconcile. Events wake it; a slow fallback runs without them.

A tick has four steps, and the server may be killed between any two of them:

1. Observe: changes that the engine reports become events.
2. Decide and commit: ended gangs get a verdict, queued gangs get seats, others are preempted. Each decision is a
   proposal that runs against the live state, so it is durable before anything acts on it.
3. Reconcile: compare the state with the engine; launch what is missing, stop what should not be there.
4. Forget: the engine need not keep what is recorded.

A tick costs as much as what changed since the last one: the jobs that events touched, and the workers that the engine
reports.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from muster.control.clock import Clock
from muster.control.counters import Counters
from muster.control.decide import StepOf, attempt_verdicts, launch_failed, next_deadline, overdue, plan_events
from muster.control.engine_hints import EngineHints
from muster.control.hangs import Hangs
from muster.control.job_budgets import JobBudgets
from muster.control.listen import EnginePoller
from muster.control.node_health import quarantines, returns
from muster.control.reconcile import Action, Forget, Key, Launch, Stop, TokenFor, desired, strays
from muster.control.room import room_events
from muster.control.stragglers import Stragglers
from muster.core.entities.node import NodeHealth
from muster.core.errors import EngineError, MusterError, Unavailable
from muster.core.event import Event
from muster.core.faults import point
from muster.core.state import State
from muster.engines.base import Engine, GangLaunch, WorkerReport
from muster.sched.board import Board
from muster.sched.schedule import schedule
from muster.sched.settle import settle
from muster.store.base import Entry
from muster.store.commit import Commit

log = logging.getLogger("muster.control")

FALLBACK = 2.0  # seconds between ticks that nothing wakes
LAUNCH_TRIES = 5

# Events that may change a decision. A checkpoint makes a gang cheaper to stop, but that can wait for the fallback. A
# gang that starts to run changes nothing until it has run for a while.
_WAKING = frozenset({
    "job.submitted", "job.resumed", "job.stopping", "job.stopped", "job.succeeded", "job.failed", "job.requeued",
    "job.priority",
    "worker.ended", "attempt.ended", "node.joined", "node.left", "node.health", "queue.set", "pool.set", "project.set",
    "rules.set", "prices.set",
})  # fmt: skip
_OF_HEALTH = frozenset({"node.health", "node.slow"})
_NOTHING = Entry()


@dataclass(slots=True)
class _Round:
    """A tick in progress: its time, the jobs that it looks at, and the actions that follow its commit."""

    now: float
    dirty: set[str]
    ended: list[WorkerReport] = field(default_factory=list)  # of attempts that this tick found to have ended
    actions: list[Action] = field(default_factory=list)


class Controller:
    """Runs the ticks, one at a time, on the server that holds the lease."""

    def __init__(
        self,
        commit: Commit,
        engine: Engine,
        clock: Clock,
        token_for: TokenFor,
        may_act: Callable[[], bool],
        step_of: StepOf = lambda job, attempt: None,
        hangs: Hangs | None = None,
        stragglers: Stragglers | None = None,
        counters: Counters | None = None,
    ) -> None:
        self._commit, self._engine, self._clock = commit, engine, clock
        self._token_for, self._may_act, self._step_of = token_for, may_act, step_of
        self._listener, self._hangs, self._stragglers = EnginePoller(engine), hangs, stragglers
        self._engine_hints, self._counters = EngineHints(engine), counters or Counters()
        self._board, self._budgets = Board(), JobBudgets()
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._lock = threading.Lock()  # guards the dirty set, which commits and ticks both change
        self._dirty: set[str] = set()
        self._wanted = True  # an event may have changed a decision
        self._health_changed = False  # that of a node: its engine may have to know
        self._busy = True  # a gang holds resources
        self._own: dict[int, str] = {}  # seq of each event that the current tick wrote → its job
        self._launched: set[Key] = set()
        self._tries: dict[Key, int] = {}
        self._ordered: dict[Key, float] = {}  # stop orders that were carried out
        self._wake_at: float | None = None
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)

    @property
    def board(self) -> Board:
        """The scheduler's indexes. May be read only between two commits: a tick changes them."""
        return self._board

    @property
    def pending(self) -> bool:
        """Whether a tick now may find something to do."""
        return self._wanted or self._listener.changed

    def next_wake(self) -> float | None:
        """The time at which a tick is needed even if nothing happens; None for never."""
        first = self._wake_at
        for at in (self._listener.watch.next_due(), self._budgets.next_due()):
            if at is not None and (first is None or at < first):
                first = at
        return first

    def start(self) -> None:
        """Adopts the running gangs, then ticks until `close`."""
        self.adopt()
        self._thread.start()

    def adopt(self) -> None:
        """Takes over what an earlier server left. For a caller that calls `tick` itself, in place of `start`."""
        running: list[str] = []

        def look(state: State) -> Entry:
            running.extend(state.active)
            return _NOTHING

        self._engine.on_change(self._engine_changed)
        self._commit.run([look])
        with self._lock:
            self._dirty.update(running)

    def close(self) -> None:
        self._stopped.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join()

    def on_commit(self, events: Sequence[Event]) -> None:
        """Marks the jobs that the events touched as dirty; wakes the loop if an event may change a decision."""
        wake = False
        with self._lock:
            for event in events:
                if self._own.get(event.seq) == event.job:
                    continue  # the tick that wrote it has handled it
                if event.data.AUDIT:
                    continue  # an event of the record, on which no decision depends
                if event.job:
                    self._dirty.add(event.job)
                wake = wake or event.kind in _WAKING
                self._health_changed = self._health_changed or event.kind == "node.health"
        if wake:
            self._wanted = True
            self._wake_loop()

    def tick(self) -> None:
        """Runs one tick; raises Unavailable or Conflict when nothing could be committed."""
        self._own = {}
        with self._lock:
            dirty, self._dirty, self._wanted = self._dirty, set(), False
        this = _Round(self._clock.now(), dirty)
        try:
            self._decide(this)
        except BaseException:
            self._listener.poll_again()
            with self._lock:
                self._dirty |= dirty
                self._wanted = self._busy = True
            raise
        point("control.after_plan")
        self._engine_hints.drain()
        for action in this.actions:
            if not self._may_act():
                raise Unavailable("The lease ran out during the tick.", "Another server may be leading.")
            self._act(action)
        self._engine_hints.send()
        if this.actions and self._listener.starts_only():
            # A gang that was just launched and already runs needs no decision: recording it here saves a tick.
            self._commit.run([partial(self._observe, _Round(this.now, set()))])
            self._listener.settle()

    def _run(self) -> None:
        while not self._stopped.is_set():
            began = time.perf_counter()
            try:
                self.tick()
                self._counters.ticks.observe((), time.perf_counter() - began)
            except MusterError as error:
                self._counters.ticks_failed += 1
                log.warning("tick put off: %s", error)
                self._stopped.wait(0.5)
            except Exception:
                self._counters.ticks_failed += 1
                log.exception("tick failed; it is tried again")
                self._stopped.wait(1.0)
            self._wake.clear()  # cleared before the check: what happens after it sets it again
            if not self.pending:
                self._wake.wait(self._until_next())

    def _until_next(self) -> float:
        at = self.next_wake()
        return FALLBACK if at is None else min(FALLBACK, max(at - self._clock.now(), 0.0) + 0.001)

    def _engine_changed(self) -> None:
        self._listener.changed = True
        self._wake_loop()

    def _wake_loop(self) -> None:
        if not self._wake.is_set():  # costs a tenth of setting it
            self._wake.set()

    def _decide(self, this: _Round) -> None:
        """The committed part of a tick. Each step sees the results of the previous ones; all share one transaction."""
        self._listener.ask(this.now, self._busy)
        steps = [
            partial(self._observe, this),
            partial(self._observe_room, this),
            partial(self._verdicts, this),
            partial(self._settle, this),
            partial(self._plan, this),
            partial(self._reconcile, this),
        ]
        if self._listener.nodes is not None:
            steps.insert(0, partial(self._observe_nodes, this))
        self._commit.run(steps)
        self._listener.settle()

    def _observe_nodes(self, this: _Round, state: State) -> Entry:
        back = returns(state, this.now)
        names = {event.data.name for event in back if isinstance(event.data, NodeHealth)}
        self._engine_hints.look_at_nodes(state, self._listener.nodes or (), names)
        return self._entry(state, this, [*self._listener.node_events(state, this.now), *back])

    def _observe(self, this: _Round, state: State) -> Entry:
        events, silent = self._listener.worker_events(state, this.dirty, this.now)
        for key in silent:  # a launch that never came up is repeated; the engine starts nothing twice
            if key in self._launched:
                self._launched.discard(key)
                this.dirty.add(key[0])
        return self._entry(state, this, events)

    def _observe_room(self, this: _Round, state: State) -> Entry:
        elastic, changed = self._board.gangs.elastic, this.dirty if self._listener.nodes is None else None
        if not elastic:
            return _NOTHING
        return self._entry(state, this, room_events(state, elastic, self._listener.last_nodes, changed, this.now))

    def _verdicts(self, this: _Round, state: State) -> Entry:
        events = overdue(state, this.now) if state.seatless else []
        events += self._watch_events(state, this.now)
        stopped = {event.job for event in events}
        spent = self._budgets.look(state, this.now)
        events += [event for event in spent if event.job not in stopped]
        if this.dirty:
            events += attempt_verdicts(state, sorted(this.dirty), this.now, self._step_of)
            ended = [state.jobs[event.job] for event in events if event.kind == "attempt.ended"]
            events += quarantines(state, ended, this.now)
        if not events:
            return _NOTHING
        for event in events:
            if event.kind == "attempt.ended":
                key = (event.job, event.attempt)
                this.ended.extend(reports := self._listener.reports(*key))
                if not reports:  # the engine never had it, so there is nothing to forget there
                    self._drop(key)
        return self._entry(state, this, events)

    def _watch_events(self, state: State, now: float) -> list[Event]:
        """Verdicts on gangs that hang or have stragglers. Nothing of the tick depends on them, so an error in them does
        not stop it. A job is stopped for one of the two."""
        if self._hangs is None and self._stragglers is None:
            return []
        try:
            hung = self._hangs.look(state, now, self._listener.watch.frozen) if self._hangs is not None else []
            slow = self._stragglers.look(state, now) if self._stragglers is not None else []
        except Exception:
            log.exception("gangs could not be looked at for hangs and stragglers")
            return []
        jobs = {event.job for event in hung}
        return [*hung, *(event for event in slow if event.job not in jobs)]

    def _settle(self, this: _Round, state: State) -> Entry:
        return self._entry(state, this, settle(state, this.now)) if state.settled else _NOTHING

    def _plan(self, this: _Round, state: State) -> Entry:
        plan = schedule(state, this.now, self._board)
        self._engine_hints.look_at_waiting(state, self._board, this.now)
        self._engine_hints.look_at_kept(state)
        self._wake_at = plan.wake_at if plan.wake_at is not None and plan.wake_at > this.now else None
        if state.seatless and (ends := next_deadline(state)) is not None:
            self._wake_at = ends if self._wake_at is None else min(self._wake_at, ends)
        return self._entry(state, this, plan_events(state, plan, this.now))

    def _reconcile(self, this: _Round, state: State) -> Entry:
        self._busy = bool(state.active)
        self._budgets.track(state, this.dirty, this.now)
        if self._health_changed:
            self._health_changed = False
            self._engine_hints.look_at_nodes(state, self._listener.last_nodes)
        if state.settled:  # those that this tick ended have settled others
            self._wanted = True
        if this.dirty:
            this.actions += desired(state, sorted(this.dirty), self._launched, self._token_for, this.now)
        if self._listener.news or this.ended:
            this.actions += strays(state, [*self._listener.news, *this.ended])
        return _NOTHING

    def _entry(self, state: State, this: _Round, events: list[Event]) -> Entry:
        """The entry of one step. The following steps look at the jobs that its events touch."""
        if not events:
            return _NOTHING
        own, dirty = self._own, this.dirty
        for seq, event in enumerate(events, state.version + 1):
            own[seq] = event.job
            if event.job:
                dirty.add(event.job)
            if event.kind in _OF_HEALTH:
                self._health_changed = True
        return Entry(events)

    def _act(self, action: Action) -> None:
        if isinstance(action, Launch):
            self._launch(action.gang)
        elif isinstance(action, Stop):
            self._stop(action)
        elif isinstance(action, Forget):
            self._engine.forget(action.job, action.attempt)
            self._drop((action.job, action.attempt))

    def _drop(self, key: Key) -> None:
        self._listener.watch.forget(*key)
        self._launched.discard(key)
        self._tries.pop(key, None)
        self._ordered.pop(key, None)

    def _launch(self, gang: GangLaunch) -> None:
        key = (gang.job, gang.attempt)
        point("control.before_launch")
        try:
            self._engine.launch(gang)
            self._launched.add(key)
            point("control.after_launch")
        except (EngineError, OSError) as error:
            tries = self._tries[key] = self._tries.get(key, 0) + 1
            log.warning("launch of %s/%d failed (%d of %d): %s", *key, tries, LAUNCH_TRIES, error)
            with self._lock:
                self._dirty.add(gang.job)
            if isinstance(error, EngineError) or tries >= LAUNCH_TRIES:
                self._launched.add(key)
                detail, now = str(error), self._clock.now()
                self._commit.run([lambda state: launch_failed(state, gang, detail, now)])

    def _stop(self, stop: Stop) -> None:
        key = (stop.job, stop.attempt)
        if self._ordered.get(key) == stop.order and stop.order:
            return
        self._engine.stop(stop.job, stop.attempt, stop.grace, stop.reason)
        self._ordered[key] = stop.order
