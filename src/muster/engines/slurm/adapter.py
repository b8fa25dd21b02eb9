"""The Slurm adapter: gangs become batch jobs, and one `squeue` call reports the state of all of them.

A job that Slurm requeues is used for the next attempt of the same shape, so it keeps its place in Slurm's queue.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from muster.core.errors import EngineError
from muster.core.reasons import CONSEQUENCE
from muster.core.resources import Resources
from muster.engines.base import Finding, GangLaunch, Usage, Wait, WorkerReport
from muster.engines.describe import Home
from muster.engines.remote import Held, Look, Order
from muster.engines.slurm.doctor import diagnose
from muster.engines.slurm.gang import SlurmGang, cause_of, end_of, worker_nodes
from muster.engines.slurm.handover import Handover
from muster.engines.slurm.history import usages
from muster.engines.slurm.machines import node_infos, pools_of
from muster.engines.slurm.model import OVER, PENDING, SlurmClient
from muster.engines.slurm.node_check import SlurmChecks
from muster.engines.slurm.reasons import wait_of
from muster.engines.slurm.settings import SlurmSettings
from muster.engines.slurm.shared import Key, Shared
from muster.engines.slurm.slurm_state import SlurmState
from muster.engines.slurm.tools import Tools

LEEWAY: Final = 5.0  # seconds beyond its grace before a gang is cancelled
AGAIN: Final = 30.0  # seconds before it is cancelled again
UNCLAIMED: Final = 660.0  # seconds that a requeued job may wait for its next attempt: longer than any backoff
CAUSE_SECONDS: Final = 5.0  # seconds, plus the interval of looks: by then it is known why a worker was told to exit
FRESH: Final = 3.0  # seconds after a hand-over in which looks are more frequent
SOON: Final = 0.25  # seconds between two looks then
LONG_AGO: Final = float("-inf")  # for a monotonic clock, which may have started a moment ago
_DOWN: Final = frozenset({"DOWN", "FAIL", "ERROR", "NOT_RESPONDING"})


class SlurmAdapter:
    """See `muster.engines.adapter.Adapter`."""

    kind = "slurm"
    abilities = (
        "Slurm chooses the nodes", "start estimates", "saves before preemption and time limits",
        "keeps its place when requeued", "drains", "checks nodes", "arrays", "accounting",
    )  # fmt: skip

    def __init__(self, settings: SlurmSettings, home: Home, client: SlurmClient, tools: Tools) -> None:
        self._settings, self._tools = settings, tools
        self._slurm = SlurmState(settings, home, client, Shared(settings.root))
        self._handover, self._checks = Handover(self._slurm), SlurmChecks(self._slurm)
        self._nodes_at = LONG_AGO
        self._submitted_at = LONG_AGO

    @property
    def look_every(self) -> float:
        """Shorter after a hand-over: the gang may start at once, and users wait to see where."""
        fresh = time.monotonic() - self._submitted_at < FRESH
        return min(SOON, self._settings.look_every) if fresh else self._settings.look_every

    def open(self, changed: Callable[[], None]) -> str:
        if self._slurm.cluster is None:
            cluster = self._slurm.client.describe()
            try:
                self._slurm.shared.prepare(self._slurm.home.urls())
            except OSError as error:
                raise EngineError(
                    f"The folder {self._settings.root} can't be used: {error}.",
                    "Set `root` to a folder that the server and every node see.",
                ) from error
            self._slurm.gangs = {key: SlurmGang(key, record) for key, record in self._slurm.shared.gangs()}
            self._slurm.claims = self._slurm.shared.claims()
            self._slurm.cluster = cluster
        return f"cluster {self._slurm.cluster.name}, Slurm {self._slurm.cluster.version}"

    def look(self, nodes: bool) -> Look:
        self._slurm.rows_at = time.monotonic()
        self._slurm.rows = {
            row.id: row for row in self._slurm.client.jobs() if row.comment.startswith(self._slurm.mark)
        }
        infos = None
        late = time.monotonic() - self._nodes_at >= self._settings.nodes_every
        if nodes or late or self._may_have_lost_nodes():
            self._slurm.machines = self._slurm.client.machines()
            self._slurm.pools = pools_of(self._slurm.client.partitions(), self._settings.pools)
            infos = node_infos(self._slurm.machines, self._slurm.pools, self._settings.depth, self._settings.switch)
            self._nodes_at = time.monotonic()
        self._slurm.attribute()
        self._enforce_stops()
        self._handover.submit_held()
        workers: list[WorkerReport] = []
        waits: list[Wait] = []
        for gang in self._slurm.gangs.values():
            workers.extend(self._report(gang, waits))
        self._clear_orphans()
        self._checks.clear()
        return Look(workers, waits, infos)

    def _may_have_lost_nodes(self) -> bool:
        """Whether a job was requeued or has lost a node since the last look: then it matters at once which are left."""
        pairs = ((gang, self._slurm.rows.get(gang.record.slurm)) for gang in self._slurm.gangs.values())
        return any(
            row is not None and gang.ended is None and (row.restarts > gang.record.restart or row.state == "NODE_FAIL")
            for gang, row in pairs
        )

    def _report(self, gang: SlurmGang, waits: list[Wait]) -> list[WorkerReport]:
        if gang.ended is not None:
            return self._recovered(gang)
        if gang.held is not None:
            waits.append(Wait(*gang.key, "NotSubmitted", f"it is not in Slurm's queue yet: {gang.held_why}"))
            return gang.reports("pending")
        if not gang.record.slurm:
            return []  # the server was killed before Slurm had the job: it is handed over again
        row = self._slurm.rows.get(gang.record.slurm)
        if row is None and gang.since > self._slurm.rows_at:
            return gang.reports("pending")  # it was handed over after this look
        if row is None:
            return self._end(gang, self._past_state(gang))
        if row.restarts > gang.record.restart and row.state != "COMPLETING":
            return self._end(gang, self._requeued_state(gang))
        if row.state in OVER:
            gang.raw = row.raw
            return self._end(gang, row.state)
        if row.state in PENDING:
            waits.append(wait_of(*gang.key, row))
            return gang.reports("pending")
        if row.state == "COMPLETING" and gang.record.restart and not gang.nodes:
            return gang.reports("pending")  # the previous start of the job is what completes
        gang.raw, gang.nodes = row.raw, worker_nodes(row.nodes, gang.record.workers) or gang.nodes
        return gang.reports("starting" if row.state == "CONFIGURING" else "running")

    def _end(self, gang: SlurmGang, state: str) -> list[WorkerReport]:
        """Ends a gang, and starts a recovery process to report what the launchers could
        not report before they were killed."""
        if self._slurm.shared.left(gang.key):
            command = [
                sys.executable,
                str(self._slurm.shared.package),
                "slurm",
                str(self._slurm.shared.folder(gang.key)),
                "--recover",
            ]
            gang.recovery = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/"
            )
        return end_of(gang, self._slurm.shared, state, sure=gang.recovery is None)

    def _recovered(self, gang: SlurmGang) -> list[WorkerReport]:
        assert gang.ended is not None
        if gang.recovery is not None and gang.recovery.poll() is not None:
            gang.recovery = None
            gang.ended = [replace(report, sure=True) for report in gang.ended]
        return gang.ended

    def _past_state(self, gang: SlurmGang) -> str:
        """The final state of a job that is no longer in Slurm's queue."""
        if self._slurm.cluster is None or not self._slurm.cluster.accounting:
            return "COMPLETED" if self._slurm.shared.exits(gang.key) else ""
        try:
            rows = self._slurm.client.past(time.time() - 30 * 86400, [gang.record.slurm])
        except EngineError:
            return ""
        return rows[-1].state if rows else ""

    def _requeued_state(self, gang: SlurmGang) -> str:
        """Finds the cause of a requeue. Slurm does not report it,
        so a node of the job that is down is taken as the cause."""
        if self._slurm.shared.end_message(gang.key):
            return ""
        bad = {machine.name for machine in self._slurm.machines if _DOWN & set(machine.states)}
        return "NODE_FAIL" if bad & set(gang.nodes) else "REQUEUED"

    def _clear_orphans(self) -> None:
        """Cancels requeued jobs whose next attempt does not come."""
        now = time.monotonic()
        stopped = {g.key[0] for g in self._slurm.gangs.values() if g.order is not None and g.order[1] != CONSEQUENCE}
        late = [id for id, o in self._slurm.orphans.items() if now - o.since > UNCLAIMED or o.job in stopped]
        if late:
            self._slurm.client.cancel(late)

    def launch(self, gangs: Sequence[GangLaunch], wanted: Callable[[Key], bool]) -> Mapping[Key, str | Held]:
        self._submitted_at = time.monotonic()
        return self._handover.launch(gangs, wanted)

    def stop(self, orders: Sequence[Order]) -> None:
        for order in orders:
            gang = self._slurm.gangs.get((order.job, order.attempt))
            if gang is None or gang.ended is not None or gang.order == (order.grace, order.reason):
                continue
            gang.order, gang.signalled = (order.grace, order.reason), False
            gang.kill_at = time.monotonic() + order.grace + LEEWAY
            self._slurm.shared.order(gang.key, order.grace, order.reason)
            if gang.held is not None:
                gang.held = None
                end_of(gang, self._slurm.shared, "CANCELLED")

    def _enforce_stops(self) -> None:
        """Executes the stop orders: cancels a pending job, signals a running one and cancels it after its grace. Leaves
        jobs that Slurm itself is ending alone, because Slurm's tools would wait for a minute, in vain."""
        waiting, unsignalled, cancel = [], [], []
        now = time.monotonic()
        for gang in self._slurm.gangs.values():
            if gang.order is None or gang.ended is not None or not gang.record.slurm:
                continue
            row = self._slurm.rows.get(gang.record.slurm)
            if row is not None and row.restarts != gang.record.restart:
                continue
            if row is None or row.state in PENDING:
                waiting.append(gang.record.slurm)
            elif row.state not in OVER and row.state != "COMPLETING":
                if not gang.signalled:
                    unsignalled.append(gang)
                if now >= gang.kill_at:
                    gang.kill_at = now + AGAIN
                    cancel.append(gang.record.slurm)
        if waiting:
            self._slurm.client.cancel(waiting, pending=True)
        if unsignalled:
            self._slurm.client.signal_scripts([gang.record.slurm for gang in unsignalled])
            for gang in unsignalled:
                gang.signalled = True
        if cancel:
            self._slurm.client.cancel(cancel)

    def forget(self, attempts: Sequence[Key]) -> None:
        gone = []
        for key in attempts:
            gang = self._slurm.gangs.pop(key, None)
            if gang is None:
                continue
            row = self._slurm.rows.get(gang.record.slurm)
            mine = row is not None and row.restarts == gang.record.restart  # otherwise the next attempt may own it
            if gang.ended is None and mine and row is not None and row.state not in OVER:
                gone.append(gang.record.slurm)
            if row is None or row.state in OVER:
                raw = gang.raw or gang.record.slurm
                self._slurm.shared.drop_output(raw)
                self._slurm.shared.drop_claims(raw)
            self._slurm.shared.remove(key)
        if gone:
            self._slurm.client.cancel(gone)

    def drain(self, node: str, why: str) -> None:
        self._slurm.client.drain(node, f"muster: {' '.join(why.split())}"[:200])
        self._nodes_at = LONG_AGO

    def undrain(self, node: str) -> None:
        self._slurm.client.resume(node)
        self._nodes_at = LONG_AGO

    def check_node(self, node: str, shared: bool) -> Sequence[Mapping[str, Any]]:
        """A job of its own checks the node: it holds what it tests."""
        return self._checks.run(node)

    def want(self, waiting: Sequence[tuple[str, Resources, int]]) -> None:
        """Nothing to do: Slurm sees its own queue."""

    def most(self) -> Mapping[str, tuple[Resources, int]]:
        return {}

    def cause(self, job: str, attempt: int, worker: int) -> tuple[str, str] | None:
        """Waits for the batch script's note or for the next look, because a worker may exit before either is there."""
        key, until = (job, attempt), time.monotonic() + CAUSE_SECONDS + self._settings.look_every
        while True:
            gang = self._slurm.gangs.get(key)
            found = cause_of(gang, key, worker, self._slurm.shared)
            if found is not None or gang is None or time.monotonic() >= until:
                return found
            time.sleep(0.1)

    def usage(self, since: float) -> Iterable[Usage]:
        return usages(self._slurm.client.past(since), self._slurm.shared.attempts_since(since))

    def diagnose(self) -> Iterable[Finding]:
        return diagnose(self._settings, self._slurm.home, self._slurm.client, self._slurm.shared, self._tools)

    def close(self) -> None:
        """Nothing to release; jobs keep running."""
