"""The connection to one cluster: its client, the kinds it serves, and mirrors of the objects of one Muster there."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from muster.core.errors import EngineError
from muster.engines.kubernetes import machines, reasons
from muster.engines.kubernetes.access import Access
from muster.engines.kubernetes.client import EVENTS, NODES, PODS, KubeClient, KubeError, Resource
from muster.engines.kubernetes.gangs import Key, KubernetesGang, gather, is_main
from muster.engines.kubernetes.settings import CHECK, INSTALLATION
from muster.engines.kubernetes.watch import Mirror

SYNC_SECONDS: Final = 60.0  # for the first lists
CLOSE_SECONDS: Final = 3.0  # that the watchers have to end
AWAY_SECONDS: Final = 15.0  # without an answer of the cluster before it counts as away
ASK_POSITIONS: Final = 20.0  # seconds between two requests for the positions in Kueue's queues
ASK_AGAIN: Final = 300.0  # seconds after a request without an answer
DISCOVER: Final = 60.0  # seconds between two requests for the kinds that the cluster serves
KUEUE: Final = "kueue.x-k8s.io"
VISIBILITY: Final = "visibility.kueue.x-k8s.io"
VOLCANO: Final = "scheduling.volcano.sh"
# Kinds that may start a gang's pods, besides the Job that every cluster has: API group → kind.
STARTERS: Final = {
    "jobset.x-k8s.io": "JobSet",
    "trainer.kubeflow.org": "TrainJob",
    "kubeflow.org": "PyTorchJob",
}
FORM_KINDS: Final = {"job": "Job", "jobset": "JobSet", "trainjob": "TrainJob", "pytorchjob": "PyTorchJob"}
JOBS: Final = Resource("batch/v1", "jobs")
_log = logging.getLogger(__name__)
Object = dict[str, Any]


class Link:
    """Call `open` before anything else."""

    def __init__(
        self,
        access: Access,
        installation: str,
        namespaces: Sequence[str],
        changed: Callable[[], None],
        pod_gone: Callable[[Object], None],
    ) -> None:
        self.client = KubeClient(access)
        self.version = ""  # of the cluster
        self.kueue = ""  # version of its API; "" if there is none
        self.departures = 0  # grows when an object that started pods has gone
        self._select = {"labelSelector": f"{INSTALLATION}={installation}"}
        self.namespaces, self._changed, self._pod_gone = tuple(namespaces), changed, pod_gone
        self._starters: dict[str, Resource] = {"Job": JOBS}  # by kind, as far as they are mirrored
        self._mains: dict[str, list[Mirror]] = {}  # kind → one per namespace
        self._core: list[Mirror] = []  # mirrors that the engine can't work without
        self._further: list[Mirror] = []  # the same for namespaces other than the engine's own
        self._pods: list[Mirror] = []
        self._workloads: list[Mirror] = []
        self._groups: list[Mirror] = []
        self._warnings: list[Mirror] = []
        self._nodes: Mirror | None = None
        self._everybody: Mirror | None = None
        self._names: dict[str, str] = {}
        self._gathering = threading.Lock()  # a look and a `cause` call may come at the same time
        self._positions: dict[str, int] = {}
        self._positions_at = 0.0  # monotonic; when they may be requested again
        self._discovered_at = float("-inf")  # monotonic

    def open(self) -> None:
        """Returns when everything has been listed once. Raises EngineError."""
        self.version = str(self.client.get("/version").get("gitVersion", "?"))
        self._follow_own()
        for mirror in [*self._core, *self._further, *self._optional()]:
            mirror.start()
        self.discover(time.monotonic())
        for mirror in self._core:
            mirror.wait(SYNC_SECONDS)
        for mirror in self._all():
            _wait_or_warn(mirror)

    def check(self) -> None:
        """Raises EngineError when the cluster has not answered for a while."""
        for mirror in self._core:
            seconds, trouble = mirror.away()
            refused = isinstance(trouble, KubeError) and trouble.status in (401, 403)
            if trouble is not None and (seconds >= AWAY_SECONDS or refused):
                raise trouble

    def trouble(self) -> str:
        """Why a further namespace can't be watched: its jobs wait, and jobs of other namespaces continue."""
        for mirror in self._further:
            seconds, trouble = mirror.away()
            if trouble is not None and (seconds >= AWAY_SECONDS or isinstance(trouble, KubeError)):
                return trouble.message
        return ""

    def close(self) -> None:
        """Closes the watches, then the connections, so that calls in progress may end first."""
        mirrors, began = self._all(), time.monotonic()
        for mirror in mirrors:
            mirror.close(0.0)
        for until in (began + CLOSE_SECONDS / 2, began + CLOSE_SECONDS):
            for mirror in mirrors:
                mirror.close(max(0.0, until - time.monotonic()))
            self.client.close()

    # --- current objects ---------------------------------------------------------------------------------------------
    def gangs(self) -> dict[Key, KubernetesGang]:
        with self._gathering:
            return gather(
                [item for mirrors in self._mains.values() for item in _values(mirrors)],
                _values(self._pods),
                _values(self._workloads),
                _values(self._groups),
                _values(self._warnings),
                self._names,
            )

    def main_of(self, gang: KubernetesGang, name: str) -> Object | None:
        """Asks the cluster for a gang's main object; None if it is gone, or may not be read."""
        spaces = {pod["metadata"]["namespace"] for pod in gang.pods.values()}
        for path in [kind.path(space, name) for kind in self.starters() for space in sorted(spaces)]:
            try:
                return self.client.get(path)
            except KubeError as error:
                if error.status not in (403, 404):
                    raise
        return None

    def checks(self) -> list[Object]:
        """The Jobs that check nodes."""
        return [item for item in _values(self._mains["Job"]) if CHECK in (item["metadata"].get("labels") or {})]

    def check_pod(self, name: str) -> Object | None:
        """The pod of a Job that checks a node, once there is one."""
        pods = _values(self._pods)
        return next((pod for pod in pods if (pod["metadata"].get("labels") or {}).get(CHECK) == name), None)

    def starters(self) -> list[Resource]:
        """All kinds that may start a gang's pods here."""
        return list(self._starters.values())

    def nodes(self) -> list[Object]:
        return _values([self._nodes]) if self._nodes is not None else []

    def nodes_version(self) -> int:
        """A counter that grows when a node changes."""
        return self._nodes.news if self._nodes is not None else 0

    def node(self, name: str) -> Object | None:
        return self._nodes.get("", name) if self._nodes is not None else None

    def use(self) -> dict[str, machines.Load] | None:
        """What pods hold, by node; None without the right to list all pods."""
        everybody = self._everybody
        return machines.loads(_values([everybody])) if everybody is not None and everybody.is_synced() else None

    def positions(self, gangs: Sequence[KubernetesGang]) -> dict[str, int]:
        """Workload → position in its queue, for waiting workloads. Requested from time to time, while any waits."""
        waiting = [
            g.workload for g in gangs if g.workload is not None and not reasons.is_true(g.workload, "QuotaReserved")
        ]
        if not waiting or time.monotonic() < self._positions_at:
            return self._positions
        queues = {(w["metadata"]["namespace"], str(w["spec"].get("queueName", ""))) for w in waiting}
        by_name: dict[tuple[str, str], int] = {}
        try:
            version = self.client.served(VISIBILITY)
            for namespace, queue in queues if version else ():
                path = f"/apis/{version}/namespaces/{namespace}/localqueues/{queue}/pendingworkloads"
                for item in self.client.get(path).get("items") or []:
                    by_name[namespace, item["metadata"]["name"]] = int(item["positionInLocalQueue"])
            self._positions_at = time.monotonic() + (ASK_POSITIONS if version else ASK_AGAIN)
        except (EngineError, KeyError, ValueError) as error:
            _log.info("places in Kueue's queues are not known: %s", error)
            self._positions_at = time.monotonic() + ASK_AGAIN
        self._positions = {
            w["metadata"]["uid"]: by_name[key]
            for w in waiting
            if (key := (w["metadata"]["namespace"], w["metadata"]["name"])) in by_name
        }
        return self._positions

    # --- mirrors -----------------------------------------------------------------------------------------------------
    def discover(self, now: float) -> None:
        """Starts to mirror kinds that the cluster serves now, and stops mirroring kinds that it no longer serves."""
        self._discovered_at = now
        served = self.client.groups()
        for group, kind in STARTERS.items():
            if (group in served) != (kind in self._mains):
                self._follow_starter(kind, served.get(group, ""))
        if (KUEUE in served) != bool(self.kueue):
            self.kueue = served.get(KUEUE, "")
            _let_go(self._workloads)
            self._workloads = self._begin(self.kueue, "workloads", {}) if self.kueue else []
        if (VOLCANO in served) != bool(self._groups):
            _let_go(self._groups)
            self._groups = self._begin(served[VOLCANO], "podgroups", self._select) if VOLCANO in served else []

    def follow(self, forms: Iterable[str] = (), kueue: bool = False) -> None:
        """Updates the mirrored kinds from time to time, and at once when a gang with such a form or Kueue queue was
        handed over and its kind is not mirrored, or when a kind has gone."""
        now = time.monotonic()
        missing = any(FORM_KINDS[form] not in self._mains for form in forms) or (kueue and not self.kueue)
        gone = any(_is_gone(mirror) for kind in self._mains if kind != "Job" for mirror in self._mains[kind])
        if now - self._discovered_at < DISCOVER and not missing and not gone:
            return
        try:
            self.discover(now)
        except EngineError as error:
            _log.info("what the cluster serves is not known: %s", error)  # a cluster that is away is noticed elsewhere

    def _follow_starter(self, kind: str, version: str) -> None:
        _let_go(self._mains.pop(kind, []))
        self._starters.pop(kind, None)
        if not version:
            return
        try:
            resource = self._starters[kind] = self.client.resource(version, kind)
        except KubeError:
            return  # the group has other kinds only
        self._mains[kind] = [self._own(resource, namespace) for namespace in self.namespaces]
        for mirror in self._mains[kind]:
            mirror.start()

    def _begin(self, version: str, plural: str, params: dict[str, str]) -> list[Mirror]:
        made = [self._mirror(Resource(version, plural).path(space), params) for space in self.namespaces]
        for mirror in made:
            mirror.start()
        return made

    def _follow_own(self) -> None:
        self._nodes = self._mirror(NODES.path(), {}, keep=_slim_node)
        self._mains = {"Job": [self._own(JOBS, namespace) for namespace in self.namespaces]}
        self._pods = [self._mirror(PODS.path(ns), self._select, removed=self._pod_gone) for ns in self.namespaces]
        self._core = [self._nodes, *self._pods[:1], *self._mains["Job"][:1]]  # the engine's namespace is the first
        self._further = [*self._pods[1:], *self._mains["Job"][1:]]

    def _optional(self) -> list[Mirror]:
        """Mirrors that only improve reports; everything works without them."""
        warnings = {"fieldSelector": "type=Warning"}
        living = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
        self._warnings = [self._mirror(EVENTS.path(ns), warnings, keep=reasons.slim_event) for ns in self.namespaces]
        self._everybody = Mirror(self.client, PODS.path(), living, lambda: None, machines.slim_pod)
        return [*self._warnings, self._everybody]

    def _own(self, resource: Resource, namespace: str) -> Mirror:
        return self._mirror(resource.path(namespace), self._select, removed=self._main_gone)

    def _mirror(
        self,
        path: str,
        params: dict[str, str],
        keep: Callable[[Object], Object | None] | None = None,
        removed: Callable[[Object], None] = lambda item: None,
    ) -> Mirror:
        return Mirror(self.client, path, params, self._changed, keep or _bare, removed, self._retry_all)

    def _retry_all(self) -> None:
        """Called by a mirror's thread: the server answers one mirror again, so the others need not wait."""
        for mirror in self._all():
            mirror.retry()

    def _main_gone(self, item: Object) -> None:
        if is_main(item):
            self.departures += 1

    def _all(self) -> list[Mirror]:
        single = [mirror for mirror in (self._nodes, self._everybody) if mirror is not None]
        own = [one for mirrors in list(self._mains.values()) for one in mirrors]
        return [*single, *own, *self._pods, *self._workloads, *self._groups, *self._warnings]


def _wait_or_warn(mirror: Mirror) -> None:
    try:
        mirror.wait(SYNC_SECONDS)
    except EngineError as error:
        if isinstance(error, KubeError) and error.status not in (403, 404):
            raise
        _log.warning("Kubernetes does not let us watch %s: %s", mirror.path, error)


def _is_gone(mirror: Mirror) -> bool:
    trouble = mirror.away()[1]
    return isinstance(trouble, KubeError) and trouble.status == 404


def _let_go(mirrors: Sequence[Mirror]) -> None:
    for mirror in mirrors:
        mirror.close(0.0)


def _values(mirrors: Sequence[Mirror]) -> list[Object]:
    return [item for mirror in mirrors for item in mirror.snapshot().values()]


def _bare(item: Object) -> Object:
    """Drops managedFields, which are larger than the rest of the object."""
    item["metadata"].pop("managedFields", None)
    return item


def _slim_node(node: Object) -> Object:
    """Drops what changes with every kubelet heartbeat."""
    status = node.get("status") or {}
    conditions = [
        {name: value for name, value in one.items() if name != "lastHeartbeatTime"}
        for one in status.get("conditions") or []
    ]
    return {
        "metadata": {
            name: value
            for name, value in node["metadata"].items()
            if name in ("name", "uid", "labels", "annotations", "deletionTimestamp")
        },
        "spec": node.get("spec") or {},
        "status": {"conditions": conditions, "allocatable": status.get("allocatable") or {}},
    }
