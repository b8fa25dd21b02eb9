"""The Kubernetes adapter: gangs become objects of the cluster, which chooses the nodes and reports their state."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from muster.core.errors import EngineError, Invalid, Problem
from muster.core.resources import Resources
from muster.engines.base import Finding, GangLaunch, Usage, Wait, WorkerReport
from muster.engines.describe import Home
from muster.engines.kubernetes import doctor, machines, reasons
from muster.engines.kubernetes.access import find_access
from muster.engines.kubernetes.client import NODES, KubeClient, KubeError
from muster.engines.kubernetes.faults import UNEXPLAINED
from muster.engines.kubernetes.gangs import KubernetesGang, Memo, View, cause_of, report, report_gone
from muster.engines.kubernetes.gangs import key_of as key_of_item
from muster.engines.kubernetes.handover import hand_over, ship_package
from muster.engines.kubernetes.link import Link
from muster.engines.kubernetes.machines import DRAINED, Growth
from muster.engines.kubernetes.node_check import KubernetesChecks
from muster.engines.kubernetes.removal import CALLERS, Removal, each
from muster.engines.kubernetes.render import namespace_of, object_name
from muster.engines.kubernetes.render_allowed import refusals
from muster.engines.kubernetes.render_options import options_of
from muster.engines.kubernetes.settings import KubeSettings, PoolSettings, worker_of
from muster.engines.remote import Held, Key, Look, Order

PACKAGE_CHECK: Final = 30.0  # seconds for which the launcher's package is assumed to be still there
ORDER_SECONDS: Final = (
    5.0  # seconds for a launcher to learn of an order from the server's answers, before its pod is deleted
)
CUT_OFF: Final = 5  # grace seconds for a pod whose stop order has no grace, or whose launcher may be frozen
HUNG: Final = "hung"  # reason of a stop order that a frozen launcher can't obey; nothing can be saved any more
Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class KubeConfig:
    """All settings of one engine."""

    settings: KubeSettings
    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""  # "": the context's own
    growth: Mapping[str, Growth] = field(default_factory=dict)  # by pool
    depth: float = 2.0  # slots per machine of a pool
    refuse_after: float = 120.0  # seconds that a container may fail to start before the job fails
    node_lost_after: float = 30.0  # seconds that a node may be not ready before its workers count as lost

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Further namespaces that jobs may use, by their options or by their project."""
        own = (project.namespace for project in self.settings.projects.values() if project.namespace)
        return tuple(dict.fromkeys([*self.settings.namespaces, *own]))


class KubernetesAdapter:
    """See `muster.engines.adapter.Adapter`."""

    kind = "kubernetes"
    abilities = (
        "queues of its own", "says what a gang waits for", "drains nodes", "checks nodes", "ships code", "containers",
        "Kueue", "JobSet", "Volcano", "KAI",
    )  # fmt: skip

    def __init__(self, name: str, config: KubeConfig, home: Home) -> None:
        self.look_every = 5.0
        self._name, self._config, self._home = name, config, home
        self._settings = replace(config.settings, namespace=config.namespace or config.settings.namespace)
        self._link: Link | None = None
        self._detail = ""
        self._lock = threading.Lock()  # for data that the watchers' threads and `cause` use as well
        self._memos: dict[Key, Memo] = {}
        self._removal, self._checks = Removal(config.settings), KubernetesChecks()
        self._away: dict[str, float] = {}  # nodes that don't answer → since when, monotonic
        self._lost: dict[str, str] = {}  # nodes that have not answered for long → why
        self._news = 0  # the nodes' change counter when they were last described
        self._shipping = threading.Lock()
        self._shipped: dict[str, float] = {}  # namespaces that have the package → when that was checked, monotonic
        self._departures = 0  # `link.departures` at the last look

    # --- connection --------------------------------------------------------------------------------------------------
    def open(self, changed: Callable[[], None]) -> str:
        if self._link is not None:
            try:
                self._link.check()
            except KubeError as error:
                if error.status == 401:
                    self.close()  # another credential may work
                raise
            return self._detail
        access = find_access(self._config.kubeconfig, self._config.context)
        namespace = self._config.namespace or access.namespace
        self._settings = replace(self._config.settings, namespace=namespace)
        namespaces = tuple(dict.fromkeys([namespace, *self._config.namespaces]))
        link = Link(access, self._home.installation, namespaces, changed, self._pod_gone)
        try:
            link.open()
        except BaseException:
            link.close()
            raise
        self._link, self._detail = link, f"{access.server}, Kubernetes {link.version}, namespace {namespace}"
        return self._detail

    def close(self) -> None:
        link, self._link = self._link, None
        self._shipped.clear()
        if link is not None:
            link.close()

    # --- looking -----------------------------------------------------------------------------------------------------
    def look(self, nodes: bool) -> Look:
        link = self._linked()
        now = time.monotonic()
        link.follow()
        found = link.gangs()
        gangs = self._removal.present(found, now)
        self._find_mains(link, gangs)
        self._note_nodes(link, gangs, now)
        positions = link.positions(list(gangs.values()))
        view = View(now, time.time(), self._lost, self._config.refuse_after, positions, bool(link.kueue))
        reports: list[WorkerReport] = []
        waits: list[Wait] = []
        with self._lock:
            for key, gang in gangs.items():
                workers, wait = report(gang, self._memos.setdefault(key, Memo()), view)
                reports.extend(workers)
                waits.extend([wait] if wait is not None else [])
            for key in self._memos.keys() - gangs.keys():
                memo = self._memos[key]
                if memo.reports or memo.removed:
                    memo.delete_at = None
                    reports.extend(report_gone(key, memo, view))
        self._clear_away(link, gangs, now)
        self._removal.clear_late(link, found, now)
        self._restore_package(link, gangs)
        self._removal.sweep(link, [*found, *self._memos], now)
        self._checks.clear(link)
        news, self._news = self._news, link.nodes_version()
        described = self._describe(link) if nodes or news != self._news else None
        gone, self._departures = self._departures, link.departures
        workers = sorted(reports, key=lambda one: (one.job, one.attempt, one.worker))
        freed = gone != self._departures
        return Look(workers, waits, described, freed, self._removal.trouble() or link.trouble())

    def cause(self, job: str, attempt: int, worker: int) -> tuple[str, str] | None:
        link, key = self._link, (job, attempt)
        with self._lock:
            memo = self._memos.get(key)
        if link is None or memo is None:
            return None
        gang = link.gangs().get(key, KubernetesGang(key))
        with self._lock:
            return cause_of(gang, memo, worker, self._lost)

    def _find_mains(self, link: Link, gangs: Mapping[Key, KubernetesGang]) -> None:
        """Asks for main objects that no mirror has shown: the watches are independent, and a pod may come first.
        Without this, a gang with the first of its pods would look like one whose main object was deleted."""
        for key, gang in gangs.items():
            with self._lock:
                memo = self._memos.setdefault(key, Memo())
            if gang.main is None and not memo.main_known and not memo.removed:
                gang.main = link.main_of(gang, object_name(self._settings.installation, *key))
                memo.main_known = gang.main is None
            else:
                memo.main_known = True

    def _note_nodes(self, link: Link, gangs: Mapping[Key, KubernetesGang], now: float) -> None:
        """Updates which of the gangs' nodes don't answer, since when, and which of them count as lost."""
        names = {pod["spec"].get("nodeName", "") for gang in gangs.values() for pod in gang.pods.values()} - {""}
        troubled = {name: why for name in names if (why := machines.is_lost(link.node(name)))}
        self._away = {name: self._away.get(name, now) for name in troubled}
        self._lost = {
            name: troubled[name] for name, since in self._away.items() if now - since >= self._config.node_lost_after
        }
        due = [
            since + self._config.node_lost_after - now for name, since in self._away.items() if name not in self._lost
        ]
        with self._lock:
            due += [memo.delete_at - now for memo in self._memos.values() if memo.delete_at is not None]
        self.look_every = max(0.5, min([5.0, *due]))

    def _clear_away(self, link: Link, gangs: Mapping[Key, KubernetesGang], now: float) -> None:
        """Deletes gangs whose grace is over, and gangs that Kueue would otherwise start again as the same attempt."""
        due: list[Callable[[], None]] = []
        for key, gang in gangs.items():
            memo = self._memos[key]
            late = memo.delete_at is not None and now >= memo.delete_at
            if gang.main is not None and not memo.removed and (memo.evicted or late):
                cut = memo.order is not None and (memo.order.grace <= 0 or memo.order.reason == HUNG)
                grace = CUT_OFF if cut else None
                due.append(partial(self._removal.remove, link, gang, memo, grace))
        each(due)

    def _restore_package(self, link: Link, gangs: Mapping[Key, KubernetesGang]) -> None:
        """Recreates the launcher's package where a pod waits for it because it was deleted."""
        now = time.monotonic()
        for gang in gangs.values():
            waiting = [pod for pod in gang.pods.values() if not reasons.is_up(pod) and not reasons.has_ended(pod)]
            for name in reasons.missing_map(gang.warnings) if waiting else ():
                space = waiting[0]["metadata"]["namespace"]
                since = self._shipped.get(space)  # events outlive the problem that they report
                late = since is None or now - since >= PACKAGE_CHECK
                if late and name.startswith(f"{self._settings.package}-"):
                    self._shipped.pop(space, None)
                    self._ship(link.client, space, self._settings)

    def _describe(self, link: Link) -> list[Any]:
        nodes, config = link.nodes(), self._config
        levels = self._settings.topology
        return machines.describe(nodes, self._pools(nodes), link.use(), config.depth, config.growth, levels)

    def _pools(self, nodes: Sequence[Object]) -> Mapping[str, PoolSettings]:
        """The pools of the settings, or else those found in the cluster."""
        return self._settings.pools or machines.discover(nodes)

    # --- hand-over ---------------------------------------------------------------------------------------------------
    def launch(self, gangs: Sequence[GangLaunch], wanted: Callable[[Key], bool]) -> Mapping[Key, str | Held]:
        link = self._linked()
        settings = replace(self._settings, pools=self._pools(link.nodes()))
        with ThreadPoolExecutor(CALLERS) as callers:
            answers = list(callers.map(lambda gang: self._hand_over(link.client, gang, settings, wanted), gangs))
        named = list(zip(gangs, answers, strict=True))
        taken = [options_of(gang, settings) for gang, answer in named if answer is None]
        link.follow({option.form for option in taken}, any(option.kueue for option in taken))
        return {(gang.job, gang.attempt): answer for gang, answer in named if answer is not None}

    def objections(self, gang: GangLaunch) -> Sequence[Problem]:
        """What the engine's settings don't allow for this gang. Makes no request, so any thread may call it."""
        settings = self._settings
        if not gang.options and not gang.image and settings.unlisted_projects == "default":
            return ()  # the usual case: a job that any engine could run
        try:
            return refusals(gang, settings, self._name)
        except Invalid:
            return ()  # no cluster would take it: reported at the hand-over

    def _allowed(self, gang: GangLaunch, settings: KubeSettings) -> str:
        if problems := refusals(gang, settings, self._name):
            raise Invalid(
                "\n".join(str(problem) for problem in problems), "See docs/kubernetes.md for what jobs may ask."
            )
        return namespace_of(gang, settings)

    def _hand_over(
        self, client: KubeClient, gang: GangLaunch, settings: KubeSettings, wanted: Callable[[Key], bool]
    ) -> str | Held | None:
        key = (gang.job, gang.attempt)
        try:
            namespace = self._allowed(gang, settings)
        except Invalid as error:
            return str(error)
        with self._lock:
            memo = self._memos.setdefault(key, Memo(workers=len(gang.seats)))
        answer: str | Held | None = self._ship(client, namespace, settings)
        if answer is None:
            taken = hand_over(client, gang, settings, self._home, lambda: wanted(key))
            answer = self._patience(memo, taken)
        with self._lock:
            memo.owned = memo.owned or answer is None
            if isinstance(answer, str):
                self._memos.pop(key, None)
        return answer

    def _patience(self, memo: Memo, answer: str | Held | None) -> str | Held | None:
        """Refuses a gang, with the server's message,
        that the server keeps rejecting for `refuse_after` without a cause."""
        if not isinstance(answer, Held) or answer.code != UNEXPLAINED:
            memo.unexplained_at = None
            return answer
        memo.unexplained_at = memo.unexplained_at if memo.unexplained_at is not None else time.monotonic()
        long = time.monotonic() - memo.unexplained_at >= self._config.refuse_after
        return answer.message if long else answer

    def _ship(self, client: KubeClient, namespace: str, settings: KubeSettings) -> Held | None:
        with self._shipping:
            before, now = self._shipped.get(namespace), time.monotonic()
            if before is not None and now - before < PACKAGE_CHECK:
                return None
            failed = ship_package(client, namespace, settings, there=before is not None)
            if failed is None:
                self._shipped[namespace] = now
            return failed

    # --- stopping ----------------------------------------------------------------------------------------------------
    def stop(self, orders: Sequence[Order]) -> None:
        """Stops gangs. A running gang learns of it from the server's answers and has its grace;
        then the rest is deleted."""
        link = self._linked()
        gangs = link.gangs()
        now = time.monotonic()
        due: list[Callable[[], None]] = []
        for order in orders:
            key = (order.job, order.attempt)
            gang = gangs.get(key, KubernetesGang(key))
            with self._lock:
                memo = self._memos.setdefault(key, Memo())
                memo.order = memo.order or order
                runs = any(reasons.is_up(pod) for pod in gang.pods.values())
                wait = max(order.grace, ORDER_SECONDS) if runs and order.grace > 0 else 0.0
                memo.delete_at = min(memo.delete_at if memo.delete_at is not None else math.inf, now + wait)
            if not wait:
                due.append(partial(self._removal.remove, link, gang, memo, CUT_OFF))
        each(due)
        self.look_every = ORDER_SECONDS / 10

    def forget(self, attempts: Sequence[Key]) -> None:
        link = self._linked()
        gangs = link.gangs()
        each([partial(self._forget, link, gangs.get(key, KubernetesGang(key))) for key in attempts])

    def _forget(self, link: Link, gang: KubernetesGang) -> None:
        with self._lock:
            memo = self._memos.get(gang.key, Memo())
        self._removal.forget(link, gang, memo)
        with self._lock:
            self._memos.pop(gang.key, None)

    def _pod_gone(self, pod: Object) -> None:
        """Called by a watcher's thread."""
        key = key_of_item(pod)
        with self._lock:
            if key is not None and (memo := self._memos.get(key)) is not None:
                memo.gone[worker_of(pod) or 0] = pod

    # --- others ------------------------------------------------------------------------------------------------------
    def drain(self, node: str, why: str) -> None:
        body = {"metadata": {"annotations": {DRAINED: why or "drained in Muster"}}, "spec": {"unschedulable": True}}
        self._linked().client.merge(NODES.path(name=node), body)

    def undrain(self, node: str) -> None:
        body: Object = {"metadata": {"annotations": {DRAINED: None}}, "spec": {"unschedulable": None}}
        self._linked().client.merge(NODES.path(name=node), body)

    def check_node(self, node: str, shared: bool) -> Sequence[Mapping[str, Any]]:
        """A Job of its own checks the node: it holds what it tests."""
        link = self._linked()
        settings = replace(self._settings, pools=self._pools(link.nodes()))
        if held := self._ship(link.client, settings.namespace, settings):
            raise EngineError(f"{node} can't be checked: {held.message}", held.hint)
        return self._checks.run(link, settings, node)

    def want(self, waiting: Sequence[tuple[str, Resources, int]]) -> None:
        """Nothing to do: a cluster's autoscaler looks at pending pods."""

    def most(self) -> Mapping[str, tuple[Resources, int]]:
        return {pool: (growth.node, growth.max_nodes) for pool, growth in self._config.growth.items()}

    def usage(self, since: float) -> Iterable[Usage]:
        """Always empty: Kubernetes keeps no records of deleted objects."""
        return ()

    def diagnose(self) -> Iterable[Finding]:
        return doctor.diagnose(self._config.kubeconfig, self._config.context, self._config.settings,
                               (self._config.namespace, *self._config.namespaces), self._home)  # fmt: skip

    def _linked(self) -> Link:
        if self._link is None:
            raise EngineError("The cluster is not connected.", "It is tried again by itself.")
        return self._link
