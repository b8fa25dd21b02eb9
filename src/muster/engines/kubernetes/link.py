"""A connection to one cluster: its client, what it serves, and copies of what concerns one Muster there."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from muster.core.errors import EngineError
from muster.engines.kubernetes import machines, reasons
from muster.engines.kubernetes.access import Access
from muster.engines.kubernetes.client import EVENTS, NODES, PODS, Client, KubeError, Resource
from muster.engines.kubernetes.gangs import Gang, Key, gather
from muster.engines.kubernetes.settings import INSTALLATION
from muster.engines.kubernetes.watch import Mirror

SYNC_SECONDS: Final = 60.0  # for the first lists
CLOSE_SECONDS: Final = 3.0  # that the watchers have to end
AWAY_SECONDS: Final = 15.0  # without news of the cluster before it counts as away
ASK_POSITIONS: Final = 20.0  # seconds between two questions for the places in Kueue's queues
ASK_AGAIN: Final = 300.0  # seconds after a question that was not answered
KUEUE: Final = "kueue.x-k8s.io"
VISIBILITY: Final = "visibility.kueue.x-k8s.io"
VOLCANO: Final = "scheduling.volcano.sh"
# What may start a gang's pods, beside the Job that every cluster has: group → kind.
STARTERS: Final = {
    "jobset.x-k8s.io": "JobSet",
    "trainer.kubeflow.org": "TrainJob",
    "kubeflow.org": "PyTorchJob",
}
JOBS: Final = Resource("batch/v1", "jobs")
_log = logging.getLogger(__name__)
Object = dict[str, Any]


class Link:
    """`open` it before anything else."""

    def __init__(
        self,
        access: Access,
        installation: str,
        namespaces: Sequence[str],
        changed: Callable[[], None],
        pod_gone: Callable[[Object], None],
    ) -> None:
        self.client = Client(access)
        self.version = ""  # of the cluster
        self.kueue = ""  # version of its kinds; "" where there is none
        self._select = {"labelSelector": f"{INSTALLATION}={installation}"}
        self._namespaces, self._changed, self._pod_gone = tuple(namespaces), changed, pod_gone
        self._mains: dict[str, list[Mirror]] = {}  # kind → one a namespace
        self._pods: list[Mirror] = []
        self._workloads: list[Mirror] = []
        self._groups: list[Mirror] = []
        self._warnings: list[Mirror] = []
        self._nodes: Mirror | None = None
        self._everybody: Mirror | None = None
        self._names: dict[str, str] = {}
        self._gathering = threading.Lock()  # a look and a question for a cause may come at once
        self._positions: dict[str, int] = {}
        self._positions_at = 0.0  # monotonic; when they may be asked for again

    def open(self) -> None:
        """Returns when everything has been listed once. Raises EngineError."""
        self.version = str(self.client.get("/version").get("gitVersion", "?"))
        needed = self._needed()
        self.kueue = self.client.served(KUEUE)
        optional = self._optional()
        for mirror in [*needed, *optional]:
            mirror.start()
        for mirror in needed:
            mirror.wait(SYNC_SECONDS)
        for mirror in optional:
            self._wait_or_drop(mirror)

    def check(self) -> None:
        """Raises EngineError when the cluster has not been heard of for a while."""
        for mirror in self._all():
            seconds, trouble = mirror.away()
            refused = isinstance(trouble, KubeError) and trouble.status in (401, 403)
            if trouble is not None and (seconds >= AWAY_SECONDS or refused):
                raise trouble

    def close(self) -> None:
        for mirror in self._all():
            mirror.close(0.0)
        self.client.close()
        until = time.monotonic() + CLOSE_SECONDS
        for mirror in self._all():
            mirror.close(max(0.0, until - time.monotonic()))

    # --- what is there -----------------------------------------------------------------------------------------------
    def gangs(self) -> dict[Key, Gang]:
        with self._gathering:
            return gather(
                [item for mirrors in self._mains.values() for item in _values(mirrors)],
                _values(self._pods),
                _values(self._workloads),
                _values(self._groups),
                _values(self._warnings),
                self._names,
            )

    def nodes(self) -> list[Object]:
        return _values([self._nodes]) if self._nodes is not None else []

    def news_of_nodes(self) -> int:
        """Grows when one of them changes."""
        return self._nodes.news if self._nodes is not None else 0

    def node(self, name: str) -> Object | None:
        return self._nodes.get("", name) if self._nodes is not None else None

    def use(self) -> dict[str, machines.Load] | None:
        """What pods hold, by node; None where one may not look at everybody's."""
        return machines.loads(_values([self._everybody])) if self._everybody is not None else None

    def positions(self, gangs: Sequence[Gang]) -> dict[str, int]:
        """Workload → place in its queue, of those that wait; asked for now and then, while any waits."""
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

    # --- what is mirrored --------------------------------------------------------------------------------------------
    def _needed(self) -> list[Mirror]:
        self._nodes = Mirror(self.client, NODES.path(), {}, self._changed, _slim_node)
        self._mains = {"Job": [self._own(JOBS, namespace) for namespace in self._namespaces]}
        for group, kind in STARTERS.items():
            if version := self.client.served(group):
                try:
                    resource = self.client.resource(version, kind)
                except KubeError:
                    continue  # the group has other kinds only
                self._mains[kind] = [self._own(resource, namespace) for namespace in self._namespaces]
        self._pods = [
            Mirror(self.client, PODS.path(ns), self._select, self._changed, _bare, self._pod_gone)
            for ns in self._namespaces
        ]
        return [self._nodes, *self._pods, *(one for mirrors in self._mains.values() for one in mirrors)]

    def _optional(self) -> list[Mirror]:
        warnings = {"fieldSelector": "type=Warning"}
        living = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
        self._warnings = [
            Mirror(self.client, EVENTS.path(ns), warnings, self._changed, reasons.slim_event) for ns in self._namespaces
        ]
        self._everybody = Mirror(self.client, PODS.path(), living, lambda: None, machines.slim_pod)
        if self.kueue:
            workloads = Resource(self.kueue, "workloads")
            self._workloads = [
                Mirror(self.client, workloads.path(ns), {}, self._changed, _bare) for ns in self._namespaces
            ]
        if version := self.client.served(VOLCANO):
            groups = Resource(version, "podgroups")
            self._groups = [self._own(groups, namespace) for namespace in self._namespaces]
        return [*self._warnings, self._everybody, *self._workloads, *self._groups]

    def _own(self, resource: Resource, namespace: str) -> Mirror:
        return Mirror(self.client, resource.path(namespace), self._select, self._changed, _bare)

    def _wait_or_drop(self, mirror: Mirror) -> None:
        """Without these less is told, and nothing works worse."""
        try:
            mirror.wait(SYNC_SECONDS)
        except EngineError as error:
            if isinstance(error, KubeError) and error.status not in (403, 404):
                raise
            _log.warning("Kubernetes does not let us watch %s: %s", mirror.path, error)
            mirror.close()
            if mirror is self._everybody:
                self._everybody = None
            for mirrors in (self._warnings, self._workloads, self._groups):
                if mirror in mirrors:
                    mirrors.remove(mirror)

    def _all(self) -> list[Mirror]:
        single = [mirror for mirror in (self._nodes, self._everybody) if mirror is not None]
        own = [one for mirrors in self._mains.values() for one in mirrors]
        return [*single, *own, *self._pods, *self._workloads, *self._groups, *self._warnings]


def _values(mirrors: Sequence[Mirror]) -> list[Object]:
    return [item for mirror in mirrors for item in mirror.snapshot().values()]


def _bare(item: Object) -> Object:
    """Without the lists of who owns which field, which are larger than the rest."""
    item["metadata"].pop("managedFields", None)
    return item


def _slim_node(node: Object) -> Object:
    """Without what changes with every beat of a kubelet's heart."""
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
