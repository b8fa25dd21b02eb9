"""An engine beyond this machine: a thread that carries orders to it and looks at it, so that no tick waits for it.

What is asked of it returns at once and is remembered; what it says is what was seen last. An `Adapter` is all that
differs between Ray, Slurm and Kubernetes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from muster.core.errors import EngineError, MusterError, Problem
from muster.core.faults import point
from muster.core.resources import Resources
from muster.core.spec import JobSpec
from muster.engines.base import Condition, Finding, GangLaunch, NodeInfo, Usage, Wait, WorkerReport
from muster.engines.rendering import gang_of
from muster.wire import WorkerExit

AGAIN_FIRST: Final = 1.0  # seconds before a cluster that does not answer is asked again, doubled each time
AGAIN_LAST: Final = 30.0
UNSEEN: Final = 30.0  # seconds after which a gang that was handed over and is not there is handed over again
Key = tuple[str, int]  # job, attempt
_TOO_EARLY: Final = "stopped before it was handed over"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Order:
    """Save and leave within `grace` seconds, for this reason."""

    job: str
    attempt: int
    grace: float
    reason: str


@dataclass(slots=True)
class Look:
    """All that the cluster says of this Muster's gangs, and of its nodes where it was time to ask."""

    workers: Sequence[WorkerReport]
    waits: Sequence[Wait] = ()
    nodes: Sequence[NodeInfo] | None = None  # None: as before


class Adapter(Protocol):
    """One cluster. Called by one thread, one call at a time, but for `cause`, `diagnose` and `close`.

    Every call may raise EngineError with a word for people when the cluster does not answer or refuses: it is made
    again later. Everything is idempotent by (job, attempt).
    """

    kind: str
    abilities: Sequence[str]
    look_every: float  # seconds between two looks that nothing asked for

    def open(self, changed: Callable[[], None]) -> str:
        """Connects, or makes sure that it is connected; says to what. `changed` asks for a look, from any thread."""

    def look(self, nodes: bool) -> Look:
        """One call, however much runs there. `nodes`: whether they are asked for as well."""

    def launch(self, gangs: Sequence[GangLaunch]) -> Mapping[Key, str]:
        """Hands gangs over that `look` has not named; those that it refuses for good, each with the word for it."""

    def stop(self, orders: Sequence[Order]) -> None:
        """Passes the orders on."""

    def forget(self, attempts: Sequence[Key]) -> None:
        """Removes what is kept there of these."""

    def drain(self, node: str, why: str) -> None: ...

    def undrain(self, node: str) -> None: ...

    def want(self, waiting: Sequence[tuple[str, Resources, int]]) -> None: ...

    def most(self) -> Mapping[str, tuple[Resources, int]]: ...

    def cause(self, job: str, attempt: int, worker: int) -> tuple[str, str] | None: ...

    def usage(self, since: float) -> Iterable[Usage]: ...

    def diagnose(self) -> Iterable[Finding]:
        """Must work without `open`: it may be what does not work."""

    def close(self) -> None: ...


@dataclass(slots=True)
class _Desired:
    """What was asked for and is not done yet."""

    launches: dict[Key, GangLaunch] = field(default_factory=dict)
    stops: dict[Key, Order] = field(default_factory=dict)
    forgets: dict[Key, None] = field(default_factory=dict)
    calls: list[Callable[[], None]] = field(default_factory=list)
    want: Sequence[tuple[str, Resources, int]] | None = None


class RemoteEngine:
    """See `muster.engines.base.Engine` and what stands below it there. Call `start` first."""

    patience = 60.0

    def __init__(self, name: str, adapter: Adapter, nodes_every: float = 15.0) -> None:
        self.name, self.kind, self.abilities = name, adapter.kind, adapter.abilities
        self._adapter, self._nodes_every = adapter, nodes_every
        self._lock = threading.Lock()
        self._desired = _Desired()
        self._seen: dict[Key, list[WorkerReport]] = {}  # at the last look
        self._handed: dict[Key, list[WorkerReport]] = {}  # gangs that no look has named yet
        self._sent: dict[Key, tuple[float, GangLaunch]] = {}  # those of them that were taken, and when
        self._refused: dict[Key, list[WorkerReport]] = {}  # that never came to be there
        self._waits: Sequence[Wait] = ()
        self._nodes: Sequence[NodeInfo] = ()
        self._nodes_at: float | None = None
        self._nodes_new = False  # since they were last asked for
        self._condition = Condition(False, time.time(), "not connected yet")
        self._answered = False
        self._changed: Callable[[], None] = lambda: None
        self._wake, self._closing = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"engine-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    # --- what the controller asks ------------------------------------------------------------------------------------
    def answered(self) -> bool:
        """Whether it was ever heard of what runs there."""
        return self._answered

    def nodes(self) -> Sequence[NodeInfo]:
        self._nodes_new = False  # before the look: what comes after it sets it again
        return self._nodes

    def nodes_changed(self) -> bool:
        return self._nodes_new

    def launch(self, gang: GangLaunch) -> None:
        key = (gang.job, gang.attempt)
        with self._lock:
            if key in self._seen or key in self._handed or key in self._refused or key in self._desired.stops:
                return
            self._desired.launches[key] = gang
            self._handed[key] = [WorkerReport(*key, worker, "pending") for worker in range(len(gang.seats))]
        self._wake.set()

    def stop(self, job: str, attempt: int, grace: float, reason: str) -> None:
        key = (job, attempt)
        with self._lock:
            if self._desired.launches.pop(key, None) is not None:
                self._never(key, WorkerExit("stopped", reason, _TOO_EARLY, time.time()))
            elif key in self._seen or key in self._handed:
                self._desired.stops[key] = Order(job, attempt, grace, reason)
        self._wake.set()

    def poll(self) -> Sequence[WorkerReport]:
        with self._lock:
            found = {**self._handed, **self._seen, **self._refused}
            return [report for reports in found.values() for report in reports]

    def forget(self, job: str, attempt: int) -> None:
        key = (job, attempt)
        with self._lock:
            refused = self._refused.pop(key, None)
            if refused is None and (key in self._seen or key in self._handed):
                self._desired.forgets[key] = None
                for known in (self._seen, self._handed, self._sent):
                    known.pop(key, None)
        self._wake.set()

    def on_change(self, wake: Callable[[], None]) -> None:
        self._changed = wake

    def waits(self) -> Sequence[Wait]:
        if self._condition.ok or not self._handed:
            return self._waits
        word = f"the engine {self.name!r} can't be reached: {self._condition.detail}"
        with self._lock:
            return [*self._waits, *(Wait(job, attempt, "away", word) for job, attempt in self._handed)]

    def cause(self, job: str, attempt: int, worker: int) -> tuple[str, str] | None:
        return self._adapter.cause(job, attempt, worker)

    def drain(self, node: str, why: str) -> None:
        self._later(lambda: self._adapter.drain(node, why))

    def undrain(self, node: str) -> None:
        self._later(lambda: self._adapter.undrain(node))

    def want(self, waiting: Sequence[tuple[str, Resources, int]]) -> None:
        with self._lock:
            self._desired.want = waiting
        self._wake.set()

    def most(self) -> Mapping[str, tuple[Resources, int]]:
        return self._adapter.most()

    def objections(self, spec: JobSpec, pool: str) -> Sequence[Problem]:
        """See `muster.engines.base.Judging`; most adapters have none."""
        judge: Callable[[GangLaunch], Sequence[Problem]] | None = getattr(self._adapter, "objections", None)
        return judge(replace(gang_of(spec, self.kind), pool=pool)) if judge is not None else ()

    def usage(self, since: float) -> Iterable[Usage]:
        return self._adapter.usage(since)

    def condition(self) -> Condition:
        return self._condition

    def diagnose(self) -> Iterable[Finding]:
        return self._adapter.diagnose()

    def close(self) -> None:
        self._closing.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(10.0)
        self._adapter.close()

    # --- the thread --------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        delay, opened = AGAIN_FIRST, False
        while not self._closing.is_set():
            try:
                detail = self._adapter.open(self._wake.set)
                if not opened:
                    self._look(first=True)  # before anything is handed over: it may be there already
                    opened = True
                self._carry_out()
                self._look()
                self._fine(detail)
                delay = AGAIN_FIRST
                self._wake.wait(self._adapter.look_every)
            except Exception as error:
                opened = False
                self._away(error)
                self._closing.wait(delay)
                delay = min(2 * delay, AGAIN_LAST)
            self._wake.clear()

    def _carry_out(self) -> None:
        with self._lock:
            todo, self._desired = self._desired, _Desired()
        try:
            for call in list(todo.calls):
                _told(call)
                todo.calls.remove(call)
            if todo.want is not None:
                waiting = todo.want
                _told(lambda: self._adapter.want(waiting))
                todo.want = None
            if todo.launches:
                point("engine.before_launch")
                refused = self._adapter.launch(list(todo.launches.values()))
                point("engine.after_launch")
                with self._lock:
                    now = time.monotonic()
                    self._sent |= {key: (now, gang) for key, gang in todo.launches.items() if key not in refused}
                    for key, why in refused.items():
                        self._never(key, WorkerExit("failed", "engine_refused", why, time.time()))
                todo.launches.clear()
            if todo.stops:
                self._adapter.stop(list(todo.stops.values()))
                todo.stops.clear()
            if todo.forgets:
                self._adapter.forget(list(todo.forgets))
                todo.forgets.clear()
        finally:
            self._put_back(todo)

    def _put_back(self, todo: _Desired) -> None:
        with self._lock:
            newer = self._desired
            launches = {key: gang for key, gang in todo.launches.items() if key not in newer.stops}
            for key in todo.launches.keys() - launches.keys():
                self._never(key, WorkerExit("stopped", newer.stops.pop(key).reason, _TOO_EARLY, time.time()))
            self._desired = _Desired(
                {**launches, **newer.launches},
                {**todo.stops, **newer.stops},
                {**todo.forgets, **newer.forgets},
                [*todo.calls, *newer.calls],
                newer.want if newer.want is not None else todo.want,
            )

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
            self._seen, self._waits = seen, list(found.waits)
            for key in seen:
                self._handed.pop(key, None)
                self._sent.pop(key, None)
                self._desired.launches.pop(key, None)
            for key, (at, gang) in list(self._sent.items()):
                if now - at >= UNSEEN:
                    del self._sent[key]
                    if key in self._handed:
                        self._desired.launches[key] = gang
            if found.nodes is not None:
                nodes, self._nodes_at = list(found.nodes), now
                if nodes != self._nodes or not self._answered:
                    self._nodes, self._nodes_new = nodes, True
            changed = changed or self._nodes_new or not self._answered
            self._answered = True
        if changed:
            self._changed()

    def _never(self, key: Key, end: WorkerExit) -> None:
        """It will not come to be there. The lock is held."""
        reports = self._handed.pop(key, None) or [WorkerReport(*key, 0, "pending")]
        self._refused[key] = [replace(report, status="ended", exit=end, sure=True) for report in reports]
        self._changed()

    def _later(self, call: Callable[[], None]) -> None:
        with self._lock:
            self._desired.calls.append(call)
        self._wake.set()

    def _fine(self, detail: str) -> None:
        back, same = not self._condition.ok, self._condition.detail == detail
        if back or not same:
            self._condition = Condition(True, time.time(), detail)
        if back:
            self._changed()

    def _away(self, error: Exception) -> None:
        message, mend = (error.message, error.mend) if isinstance(error, MusterError) else (repr(error), "")
        if self._condition.ok or self._condition.detail != message:
            level = logging.WARNING if isinstance(error, EngineError) else logging.ERROR
            _log.log(level, "engine %s is away: %s", self.name, error, exc_info=not isinstance(error, EngineError))
            since = self._condition.since if not self._condition.ok else time.time()
            self._condition = Condition(False, since, message, mend)
            self._changed()


def _told(call: Callable[[], Any]) -> None:
    """What the cluster refuses of these is not asked again."""
    try:
        call()
    except EngineError as error:
        _log.warning("%s", error)
