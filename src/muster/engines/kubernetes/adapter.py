"""Kubernetes as an engine: gangs as objects of the cluster, which chooses the nodes, and what it says of them."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Final

from muster.core.errors import EngineError, Invalid, Problem
from muster.core.resources import Resources
from muster.engines.base import Finding, GangLaunch, Usage, Wait, WorkerReport
from muster.engines.describe import Home
from muster.engines.kubernetes import doctor, machines, reasons
from muster.engines.kubernetes.access import find_access
from muster.engines.kubernetes.client import NODES, PODS, Client, KubeError
from muster.engines.kubernetes.gangs import Gang, Memo, View, cause_of, farewell, report
from muster.engines.kubernetes.gangs import key_of as key_of_item
from muster.engines.kubernetes.handover import Answer, clear, hand_over, path_of, ship_package
from muster.engines.kubernetes.link import Link
from muster.engines.kubernetes.machines import DRAINED, Growth
from muster.engines.kubernetes.render import namespace_of
from muster.engines.kubernetes.render_allowed import refusals
from muster.engines.kubernetes.settings import KubeSettings, PoolSettings, worker_of
from muster.engines.remote import Key, Look, Order

CALLERS: Final = 8  # threads that hand gangs over
HEARD: Final = 5.0  # seconds in which a launcher hears of an order in the server's answers, before its pod is deleted
CUT_OFF: Final = 5  # seconds for a pod whose order leaves it no grace
FORGOTTEN: Final = 3600.0  # seconds for which what is left of a forgotten gang is known not to count
Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class KubeConfig:
    """All that the settings of one engine say."""

    settings: KubeSettings
    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""  # "" is the context's own
    growth: Mapping[str, Growth] = field(default_factory=dict)  # by pool
    depth: float = 2.0  # slots of a pool for each of its machines
    refuse_after: float = 120.0  # seconds that a container may fail to start before the job is given up
    node_lost_after: float = 30.0  # seconds that a node may be not ready before what it ran counts as lost

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Further ones in which jobs may be: by what they ask for, or by their project."""
        own = (project.namespace for project in self.settings.projects.values() if project.namespace)
        return tuple(dict.fromkeys([*self.settings.namespaces, *own]))


class KubernetesAdapter:
    """See `muster.engines.remote.Adapter`."""

    kind = "kubernetes"
    abilities = (
        "queues of its own", "says what a gang waits for", "drains nodes", "ships code", "containers",
        "Kueue", "JobSet", "Volcano", "KAI",
    )  # fmt: skip

    def __init__(self, name: str, config: KubeConfig, home: Home) -> None:
        self.look_every = 5.0
        self._name, self._config, self._home = name, config, home
        self._settings = config.settings
        self._link: Link | None = None
        self._detail = ""
        self._lock = threading.Lock()  # over what the watchers' threads and `cause` see as well
        self._memos: dict[Key, Memo] = {}
        self._forgotten: dict[Key, float] = {}  # monotonic; when they were
        self._away: dict[str, float] = {}  # nodes that don't answer → since when, monotonic
        self._lost: dict[str, str] = {}  # those that have not for long → why
        self._news = 0  # of nodes, when they were last described
        self._shipped: set[str] = set()  # namespaces that have the package

    # --- the connection ----------------------------------------------------------------------------------------------
    def open(self, changed: Callable[[], None]) -> str:
        if self._link is not None:
            try:
                self._link.check()
            except KubeError as error:
                if error.status == 401:
                    self.close()  # another credential may do
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
        gangs = self._present(link.gangs(), now)
        self._note_nodes(link, gangs, now)
        view = View(now, time.time(), self._lost, self._config.refuse_after, link.positions(list(gangs.values())))
        reports: list[WorkerReport] = []
        waits: list[Wait] = []
        with self._lock:
            for key, gang in gangs.items():
                found, wait = report(gang, self._memos.setdefault(key, Memo()), view)
                reports.extend(found)
                waits.extend([wait] if wait is not None else [])
            for key in self._memos.keys() - gangs.keys():
                memo = self._memos[key]
                if memo.reports or memo.removed:
                    memo.delete_at = None
                    reports.extend(farewell(key, memo, view))
                elif memo.held:
                    waits.append(Wait(*key, "ExceededQuota", memo.held))
        self._clear_away(link, gangs, now)
        news, self._news = self._news, link.news_of_nodes()
        described = self._describe(link) if nodes or news != self._news else None
        return Look(sorted(reports, key=lambda one: (one.job, one.attempt, one.worker)), waits, described)

    def cause(self, job: str, attempt: int, worker: int) -> tuple[str, str] | None:
        link, key = self._link, (job, attempt)
        with self._lock:
            memo = self._memos.get(key)
        if link is None or memo is None:
            return None
        gang = link.gangs().get(key, Gang(key))
        with self._lock:
            return cause_of(gang, memo, worker, self._lost)

    def _present(self, found: dict[Key, Gang], now: float) -> dict[Key, Gang]:
        """Without what was forgotten: pods of a dead node stay in the books until the node is taken out of them."""
        self._forgotten = {key: at for key, at in self._forgotten.items() if now - at < FORGOTTEN}
        return {key: gang for key, gang in found.items() if key not in self._forgotten}

    def _note_nodes(self, link: Link, gangs: Mapping[Key, Gang], now: float) -> None:
        """Which of the nodes that gangs are on don't answer, since when, and which of them count as lost."""
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

    def _clear_away(self, link: Link, gangs: Mapping[Key, Gang], now: float) -> None:
        """Deletes what has had its grace, and what Kueue would otherwise start a second time as the same attempt."""
        for key, gang in gangs.items():
            memo = self._memos[key]
            late = memo.delete_at is not None and now >= memo.delete_at
            if gang.main is not None and not memo.removed and (memo.evicted or late):
                grace = CUT_OFF if memo.order is not None and memo.order.grace <= 0 else None
                self._remove(link, gang, memo, grace)

    def _describe(self, link: Link) -> list[Any]:
        nodes, config = link.nodes(), self._config
        levels = self._settings.topology
        return machines.describe(nodes, self._pools(nodes), link.use(), config.depth, config.growth, levels)

    def _pools(self, nodes: Sequence[Object]) -> Mapping[str, PoolSettings]:
        """As they are set; without that, as they are found."""
        return self._settings.pools or machines.discover(nodes)

    # --- handing over ------------------------------------------------------------------------------------------------
    def launch(self, gangs: Sequence[GangLaunch]) -> Mapping[Key, str]:
        link = self._linked()
        settings = replace(self._settings, pools=self._pools(link.nodes()))
        refused: dict[Key, str] = {}
        todo: list[GangLaunch] = []
        for gang in gangs:
            try:
                namespace = self._allowed(gang, settings)
                if namespace not in self._shipped:
                    ship_package(link.client, namespace, settings)
                    self._shipped.add(namespace)
                todo.append(gang)
            except Invalid as error:
                refused[gang.job, gang.attempt] = str(error)
        with ThreadPoolExecutor(CALLERS) as callers:
            answers = list(callers.map(lambda gang: self._hand_over(link.client, gang, settings), todo))
        refused |= {(g.job, g.attempt): a.refused for g, a in zip(todo, answers, strict=True) if a.refused}
        failed = next((answer.error for answer in answers if answer.error is not None), None)
        if failed is not None and not refused:
            raise failed  # all are handed over again, and those that are there already stay as they are
        return refused

    def objections(self, gang: GangLaunch) -> Sequence[Problem]:
        """What the engine's settings don't allow of it. Asks nobody, so it may be called from any thread."""
        settings = self._settings
        if not gang.options and not gang.image and settings.unlisted_projects == "default":
            return ()  # a job of every engine: the usual one
        try:
            return refusals(gang, settings, self._name)
        except Invalid:
            return ()  # no cluster would take it: said where it is handed over

    def _allowed(self, gang: GangLaunch, settings: KubeSettings) -> str:
        if problems := refusals(gang, settings, self._name):
            raise Invalid(
                "\n".join(str(problem) for problem in problems), "See docs/kubernetes.md for what jobs may ask."
            )
        return namespace_of(gang, settings)

    def _hand_over(self, client: Client, gang: GangLaunch, settings: KubeSettings) -> Answer:
        key = (gang.job, gang.attempt)
        with self._lock:
            memo = self._memos.setdefault(key, Memo(workers=len(gang.seats)))
        answer = hand_over(client, gang, settings, self._home)
        with self._lock:
            memo.held = answer.held
            memo.owned = memo.owned or answer == Answer()
            if answer.refused:
                self._memos.pop(key, None)
        return answer

    # --- stopping ----------------------------------------------------------------------------------------------------
    def stop(self, orders: Sequence[Order]) -> None:
        """What runs hears of it in the server's answers and has its grace; what is left then is deleted."""
        link = self._linked()
        gangs = link.gangs()
        now = time.monotonic()
        for order in orders:
            key = (order.job, order.attempt)
            gang = gangs.get(key)
            with self._lock:
                memo = self._memos.setdefault(key, Memo())
                memo.order = memo.order or order
                runs = gang is not None and any(reasons.is_up(pod) for pod in gang.pods.values())
                wait = max(order.grace, HEARD) if runs and order.grace > 0 else 0.0
                memo.delete_at = min(memo.delete_at if memo.delete_at is not None else math.inf, now + wait)
            if gang is not None and gang.main is not None and not wait:
                self._remove(link, gang, memo, CUT_OFF)
        self.look_every = HEARD / 10

    def forget(self, attempts: Sequence[Key]) -> None:
        link = self._linked()
        gangs = link.gangs()
        for key in attempts:
            gang, namespaces = gangs.get(key), (self._settings.namespace, *self._config.namespaces)
            if gang is not None and gang.main is not None:
                namespaces = (gang.main["metadata"]["namespace"],)
                link.client.delete(path_of(link.client, gang.main), uid=gang.main["metadata"]["uid"])
            memo = self._memos.get(key)
            if memo is None or not memo.owned:
                for namespace in dict.fromkeys(namespaces):
                    clear(link.client, self._settings, namespace, *key)
            with self._lock:
                self._memos.pop(key, None)
                self._forgotten[key] = time.monotonic()

    def _remove(self, link: Link, gang: Gang, memo: Memo, grace: int | None) -> None:
        """`grace`: seconds of each pod; None leaves them what they were made with."""
        assert gang.main is not None
        memo.removed, memo.delete_at = True, None
        try:
            link.client.delete(path_of(link.client, gang.main), uid=gang.main["metadata"]["uid"])
            if grace is not None:
                for pod in gang.pods.values():
                    about = pod["metadata"]
                    path = PODS.path(about["namespace"], about["name"])
                    link.client.delete(path, grace=grace, uid=about["uid"])
        except EngineError:
            memo.removed, memo.delete_at = False, time.monotonic()
            raise

    def _pod_gone(self, pod: Object) -> None:
        """From a watcher's thread."""
        key = key_of_item(pod)
        with self._lock:
            if key is not None and (memo := self._memos.get(key)) is not None:
                memo.gone[worker_of(pod) or 0] = pod

    # --- the rest ----------------------------------------------------------------------------------------------------
    def drain(self, node: str, why: str) -> None:
        body = {"metadata": {"annotations": {DRAINED: why or "drained in Muster"}}, "spec": {"unschedulable": True}}
        self._linked().client.merge(NODES.path(name=node), body)

    def undrain(self, node: str) -> None:
        body: Object = {"metadata": {"annotations": {DRAINED: None}}, "spec": {"unschedulable": None}}
        self._linked().client.merge(NODES.path(name=node), body)

    def want(self, waiting: Sequence[tuple[str, Resources, int]]) -> None:
        """Nothing to do: pods that wait are what a cluster's autoscaler looks at."""

    def most(self) -> Mapping[str, tuple[Resources, int]]:
        return {pool: (growth.node, growth.max_nodes) for pool, growth in self._config.growth.items()}

    def usage(self, since: float) -> Iterable[Usage]:
        """Kubernetes keeps no books of what has gone."""
        return ()

    def diagnose(self) -> Iterable[Finding]:
        return doctor.diagnose(self._config.kubeconfig, self._config.context, self._config.settings,
                               (self._config.namespace, *self._config.namespaces), self._home)  # fmt: skip

    def _linked(self) -> Link:
        if self._link is None:
            raise EngineError("The cluster is not connected.", "It is tried again by itself.")
        return self._link
