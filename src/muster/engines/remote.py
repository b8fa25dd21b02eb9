"""The engine for a cluster other than this machine. A thread sends orders and polls, so that no tick waits for it.

Calls return at once and are queued; answers come from the last snapshot. Everything that differs between Ray, Slurm and
Kubernetes is in an `Adapter`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from muster.core.errors import EngineError, MusterError, Problem
from muster.core.faults import point
from muster.core.resources import Resources
from muster.core.spec import JobSpec
from muster.engines.adapter import Adapter as Adapter
from muster.engines.adapter import Look as Look
from muster.engines.base import Condition, Finding, GangLaunch, NodeInfo, Usage, Wait, WorkerReport
from muster.engines.rendering import gang_of
from muster.engines.unseen import Held as Held
from muster.engines.unseen import Key as Key
from muster.engines.unseen import Order as Order
from muster.engines.unseen import Unseen
from muster.wire import WorkerExit

AGAIN_FIRST: Final = 1.0  # seconds before the first retry of a cluster that does not answer, doubled each time
AGAIN_LAST: Final = 10.0
PORTION: Final = 64  # orders of one kind executed per round, so that none waits behind hundreds of another kind
_TOO_EARLY: Final = "stopped before it was handed over"
_BROKEN: Final = Held("away", "", error=EngineError("the hand-over was broken off"))
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Desired:
    """Pending requests other than launches."""

    stops: dict[Key, Order] = field(default_factory=dict)
    forgets: dict[Key, None] = field(default_factory=dict)
    calls: list[Callable[[], None]] = field(default_factory=list)
    want: Sequence[tuple[str, Resources, int]] | None = None


class RemoteEngine:
    """See `muster.engines.base.Engine` and the optional protocols there. Call `start` first."""

    patience = 60.0

    def __init__(self, name: str, adapter: Adapter, nodes_every: float = 15.0) -> None:
        self.name, self.kind, self.abilities = name, adapter.kind, adapter.abilities
        self._adapter, self._nodes_every = adapter, nodes_every
        self._lock = threading.Lock()
        self._desired = _Desired()
        self._unseen = Unseen()
        self._seen: dict[Key, list[WorkerReport]] = {}  # at the last look
        self._refused: dict[Key, list[WorkerReport]] = {}  # gangs that were never created in the cluster
        self._waits: Sequence[Wait] = ()
        self._trouble = ""  # at the last look
        self._nodes: Sequence[NodeInfo] = ()
        self._nodes_at: float | None = None
        self._nodes_new = False  # since they were last asked for
        self._condition = Condition(False, time.time(), "not connected yet")
        self._answered = False
        self._changed: Callable[[], None] = lambda: None
        self._wake, self._closing = threading.Event(), threading.Event()
        self._back = threading.Event()  # set when the cluster itself has reported something
        self._thread = threading.Thread(target=self._run, name=f"engine-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    # --- calls from the controller -----------------------------------------------------------------------------------
    def answered(self) -> bool:
        """Whether the cluster has ever reported what runs there."""
        return self._answered

    def nodes(self) -> Sequence[NodeInfo]:
        self._nodes_new = False  # cleared before the read: a later change sets it again
        return self._nodes

    def nodes_changed(self) -> bool:
        return self._nodes_new

    def launch(self, gang: GangLaunch) -> None:
        key = (gang.job, gang.attempt)
        with self._lock:
            if not any(key in known for known in (self._seen, self._unseen, self._refused, self._desired.forgets)):
                self._unseen.add(gang)
        self._wake.set()

    def stop(self, job: str, attempt: int, grace: float, reason: str) -> None:
        """Cancels the intent to launch first, then stops what is in the cluster."""
        key, order = (job, attempt), Order(job, attempt, grace, reason)
        with self._lock:
            if key in self._unseen:
                self._stop_unseen(key, order)
            elif key in self._seen or not self._answered:  # before the first look it is unknown what is there
                self._desired.stops[key] = order
        self._wake.set()

    def poll(self) -> Sequence[WorkerReport]:
        with self._lock:
            unseen = {key: gang.reports() for key, gang in self._unseen.gangs.items()}
            found = {**unseen, **self._seen, **self._refused}
            return [report for reports in found.values() for report in reports]

    def forget(self, job: str, attempt: int) -> None:
        key = (job, attempt)
        with self._lock:
            refused = self._refused.pop(key, None)
            unseen, seen = self._unseen.gangs.pop(key, None), self._seen.pop(key, None)
            if refused is None and (unseen is not None or seen is not None):
                self._desired.forgets[key] = None
        self._wake.set()

    def on_change(self, wake: Callable[[], None]) -> None:
        self._changed = wake

    def waits(self) -> Sequence[Wait]:
        if not self._unseen.gangs:
            return self._waits
        away = "" if self._condition.ok else self._condition.detail
        with self._lock:
            word = f"the engine {self.name!r} can't be reached: {away}" if away else ""
            return [*self._waits, *self._unseen.waits(word)]

    def cause(self, job: str, attempt: int, worker: int) -> tuple[str, str] | None:
        return self._adapter.cause(job, attempt, worker)

    def drain(self, node: str, why: str) -> None:
        self._later(lambda: self._adapter.drain(node, why))

    def undrain(self, node: str) -> None:
        self._later(lambda: self._adapter.undrain(node))

    def check_node(self, node: str, shared: bool) -> Sequence[Mapping[str, Any]] | None:
        """See `muster.engines.base.NodeChecking`."""
        if not self._condition.ok:
            raise EngineError(f"The engine {self.name!r} can't be reached: {self._condition.detail}", "Try it later.")
        return self._adapter.check_node(node, shared)

    def want(self, waiting: Sequence[tuple[str, Resources, int]]) -> None:
        with self._lock:
            self._desired.want = waiting
        self._wake.set()

    def most(self) -> Mapping[str, tuple[Resources, int]]:
        return self._adapter.most()

    def objections(self, spec: JobSpec, pool: str) -> Sequence[Problem]:
        """See `muster.engines.base.SpecChecking`; most adapters have no `objections`."""
        check: Callable[[GangLaunch], Sequence[Problem]] | None = getattr(self._adapter, "objections", None)
        return check(replace(gang_of(spec, self.kind), pool=pool)) if check is not None else ()

    def usage(self, since: float) -> Iterable[Usage]:
        return self._adapter.usage(since)

    def condition(self) -> Condition:
        return self._condition

    def diagnose(self) -> Iterable[Finding]:
        return self._adapter.diagnose()

    def close(self) -> None:
        self._closing.set()
        self._wake_up()
        if self._thread.ident is not None:
            self._thread.join(10.0)
        self._adapter.close()

    # --- the thread --------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        delay, opened = AGAIN_FIRST, False
        while not self._closing.is_set():
            self._back.clear()
            try:
                detail = self._adapter.open(self._wake_up)
                if not opened:
                    self._look(first=True)  # before any hand-over: the gang may be there already
                    opened = True
                more = self._carry_out()
                self._look()
                self._fine(detail)
                delay = AGAIN_FIRST
                if not more:
                    self._wake.wait(self._pause())
            except Exception as error:
                opened = False
                self._away(error)
                self._closing.wait(delay / 4)
                self._back.wait(delay * 3 / 4)  # ends early when the cluster reports something
                delay = min(2 * delay, AGAIN_LAST)
            self._wake.clear()

    def _pause(self) -> float:
        """Seconds until the next look or retry is due, if nothing is requested before."""
        with self._lock:
            due = self._unseen.next_due()
        every = self._adapter.look_every
        return every if due is None else max(0.0, min(every, due - time.monotonic()))

    def _carry_out(self) -> bool:
        """Executes pending requests. Returns whether more are left to do at once."""
        with self._lock:
            todo, self._desired.calls = self._desired.calls, []
            waiting, self._desired.want = self._desired.want, None
            gangs = self._unseen.due(time.monotonic(), PORTION)
            here = {
                key: order for key, order in self._desired.stops.items() if key in self._seen or key in self._unseen
            }
            self._desired.stops = here
            stops, forgets = list(here.values())[:PORTION], list(self._desired.forgets)[:PORTION]
        if waiting is not None:
            todo.append(partial(self._adapter.want, waiting))
        try:
            while todo:
                _log_refusal(todo[0])
                del todo[0]
        finally:
            with self._lock:
                self._desired.calls[:0] = todo
        if gangs:
            self._hand_over(gangs)
        if stops:
            self._adapter.stop(stops)
            with self._lock:
                for order in stops:
                    if self._desired.stops.get((order.job, order.attempt)) is order:
                        del self._desired.stops[order.job, order.attempt]
        if forgets:
            self._adapter.forget(forgets)
            with self._lock:
                for key in forgets:
                    self._desired.forgets.pop(key, None)
        return PORTION in (len(gangs), len(stops), len(forgets))

    def _hand_over(self, gangs: Sequence[GangLaunch]) -> None:
        failed: Exception | None = None
        try:
            point("engine.before_launch")
            answers = self._adapter.launch(gangs, self._wanted)
            point("engine.after_launch")
        except Exception as error:
            failed, answers = error, {(gang.job, gang.attempt): _BROKEN for gang in gangs}
        with self._lock:
            for gang in gangs:
                key = (gang.job, gang.attempt)
                if key in self._unseen:  # otherwise it was forgotten meanwhile, and is removed next
                    self._settle(key, answers.get(key))
        errors = (answer.error for answer in answers.values() if isinstance(answer, Held) and answer.error is not None)
        failed = failed or next(errors, None)
        if failed is not None:
            raise failed

    def _settle(self, key: Key, answer: str | Held | None) -> None:
        """Records the result of one hand-over. The caller holds the lock."""
        order = self._unseen.gangs[key].order
        if answer is None:
            self._unseen.sent(key, time.monotonic())
            if order is not None:
                self._desired.stops[key] = order
        elif isinstance(answer, str):
            end = WorkerExit("failed", "engine_refused", answer, time.time())
            self._never(key, end if order is None else _stopped(order))
        elif order is not None:
            self._never(key, _stopped(order))
            self._desired.forgets[key] = None  # part of it may be there
        elif answer.error is not None:
            self._unseen.again(key)
        else:
            self._unseen.hold(key, answer, time.monotonic())
            self._changed()

    def _stop_unseen(self, key: Key, order: Order) -> None:
        """Stops a gang that no look has reported yet. The caller holds the lock."""
        gang = self._unseen.gangs[key]
        if gang.stage in ("wanted", "held"):
            touched = gang.touched
            self._never(key, _stopped(order))
            if touched:
                self._desired.forgets[key] = None
            return
        gang.order = gang.order or order
        if gang.stage == "sent":
            gang.at = time.monotonic()
            self._desired.stops[key] = order

    def _wanted(self, key: Key) -> bool:
        with self._lock:
            return self._unseen.wanted(key)

    def _look(self, first: bool = False) -> None:
        now = time.monotonic()
        due = first or self._nodes_at is None or now - self._nodes_at >= self._nodes_every
        found = self._adapter.look(due)
        seen: dict[Key, list[WorkerReport]] = {}
        for report in found.workers:
            seen.setdefault((report.job, report.attempt), []).append(report)
        with self._lock:
            seen = {key: reports for key, reports in seen.items() if key not in self._desired.forgets}
            changed = seen != self._seen or list(found.waits) != list(self._waits)
            self._seen, self._waits, self._trouble = seen, list(found.waits), found.trouble
            self._note_unseen(found, now)
            if found.nodes is not None:
                nodes, self._nodes_at = list(found.nodes), now
                if nodes != self._nodes or not self._answered:
                    self._nodes, self._nodes_new = nodes, True
            changed = changed or self._nodes_new or not self._answered
            self._answered = True
        if changed:
            self._changed()

    def _note_unseen(self, found: Look, now: float) -> None:
        """Updates the gangs that no look has reported yet. The caller holds the lock."""
        for key in self._seen:
            self._unseen.gangs.pop(key, None)
        if found.freed:
            self._unseen.free(PORTION, now)
        for key in self._unseen.overdue(now):
            order = self._unseen.gangs[key].order
            if order is None:
                self._unseen.again(key)
            else:
                self._never(key, _stopped(order))
                self._desired.forgets[key] = None

    def _never(self, key: Key, end: WorkerExit) -> None:
        """Marks a gang as never created in the cluster. The caller holds the lock."""
        reports = self._unseen.gangs.pop(key).reports()
        self._refused[key] = [replace(report, status="ended", exit=end, sure=True) for report in reports]
        self._changed()

    def _later(self, call: Callable[[], None]) -> None:
        with self._lock:
            self._desired.calls.append(call)
        self._wake.set()

    def _wake_up(self) -> None:
        self._back.set()
        self._wake.set()

    def _fine(self, detail: str) -> None:
        with self._lock:
            held = self._unseen.trouble()
        trouble, hint = (held.message, held.hint) if held is not None else (self._trouble, "")
        before = self._condition
        since = before.since if before.ok and before.detail == detail else time.time()
        self._condition = Condition(True, since, detail, hint, trouble)
        if not before.ok:
            self._changed()

    def _away(self, error: Exception) -> None:
        message, hint = (error.message, error.hint) if isinstance(error, MusterError) else (repr(error), "")
        if self._condition.ok or self._condition.detail != message:
            level = logging.WARNING if isinstance(error, EngineError) else logging.ERROR
            _log.log(level, "engine %s is away: %s", self.name, error, exc_info=not isinstance(error, EngineError))
            since = self._condition.since if not self._condition.ok else time.time()
            self._condition = Condition(False, since, message, hint)
            self._changed()


def _stopped(order: Order) -> WorkerExit:
    return WorkerExit("stopped", order.reason, _TOO_EARLY, time.time())


def _log_refusal(call: Callable[[], Any]) -> None:
    """Runs a call. If the cluster refuses it, the call is logged and not repeated."""
    try:
        call()
    except EngineError as error:
        _log.warning("%s", error)
