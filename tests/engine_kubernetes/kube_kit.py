"""What the tests of the Kubernetes engine share: an API server without nodes, and objects as a cluster has them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from muster.core.resources import Resources
from muster.engines.base import GangLaunch, Seat
from muster.engines.describe import Home
from muster.engines.kubernetes.access import Access
from muster.engines.kubernetes.adapter import KubernetesAdapter
from muster.engines.kubernetes.client import KubeClient
from muster.engines.kubernetes.config import read
from rigs.kube_api import ApiServer
from rigs.kube_controllers import Controllers
from rigs.kube_store import Store
from rigs.kubelet import set_ready
from rigs.kubernetes_rig import TOKEN, kubeconfig, node

Object = dict[str, Any]
KEY = ("train-7", 1)
HUGE = Resources(999_000)  # fits no node, so that no pod is placed: there is no kubelet that would end one


@contextmanager
def api_server(token: str = "") -> Iterator[tuple[ApiServer, KubeClient]]:
    """With a namespace `training`."""
    store = Store()
    store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "training"}})
    server = ApiServer(store, token)
    server.start()
    client = KubeClient(Access(server.url, "training", "the test", token=lambda: token))
    try:
        yield server, client
    finally:
        client.close()
        server.close()


def config_map(name: str, **data: str) -> Object:
    return {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "training"}, "data": data,
    }  # fmt: skip


def job(name: str, suspend: bool = False) -> Object:
    pod = {"restartPolicy": "Never", "containers": [{"name": "worker", "image": "x"}]}
    spec: Object = {"completions": 1, "template": {"spec": pod}, **({"suspend": True} if suspend else {})}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": "training"}, "spec": spec}


def pod(name: str = "muster-a-1-x-0", node: str = "n1", phase: str = "Running", **status: Any) -> Object:
    labels = {"muster.dev/job": "a-1", "muster.dev/attempt": "1", "batch.kubernetes.io/job-completion-index": "0"}
    limits = {"memory": "2Gi"}
    return {
        "metadata": {"name": name, "namespace": "training", "uid": f"uid-{name}", "labels": labels,
                     "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"nodeName": node, "containers": [{"name": "worker", "resources": {"limits": limits}}]},
        "status": {"phase": phase, **status},
    }  # fmt: skip


def terminated(code: int, reason: str = "Error", message: str = "") -> list[Object]:
    state = {"exitCode": code, "reason": reason, "finishedAt": "2026-01-01T00:10:00Z"}
    return [{"name": "worker", "state": {"terminated": {**state, **({"message": message} if message else {})}}}]


def condition(kind: str, reason: str = "", message: str = "", status: str = "True") -> Object:
    return {"type": kind, "status": status, "reason": reason, "message": message}


class Cluster:
    """An API server and controllers, without kubelets."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, Store()
        for name in ("training", "default"):
            self.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for name in ("node-a", "node-b"):
            self.store.create(node(name))
            set_ready(self.store, name, "True", "")
        self.api, self.controllers = ApiServer(self.store, TOKEN), Controllers(self.store, {"research": 1})
        self.adapters: list[KubernetesAdapter] = []

    def start(self) -> None:
        self.api.start()
        self.controllers.start()
        (self.folder / "kubeconfig").write_text(yaml.safe_dump(kubeconfig(self.api.url, "training")))

    def close(self) -> None:
        for adapter in self.adapters:
            adapter.close()
        self.controllers.close()
        self.api.close()
        assert not self.controllers.errors

    def adapter(self, opened: bool = True, **settings: Any) -> KubernetesAdapter:
        home = Home(self.folder, "0123456789", lambda: ("http://muster:6878",))
        made = read("k8s", {"kubeconfig": "kubeconfig", **settings}, home)
        self.adapters.append(made)
        if opened:
            made.open(lambda: None)
        return made

    def kinds(self) -> list[str]:
        """What there is of gangs."""
        return sorted(
            item["kind"]
            for kind in ("Secret", "Service", "Job", "Pod")
            for item in self.store.list(kind, labels="muster.dev/installation=0123456789")
        )


def gang(job: str = KEY[0], attempt: int = 1, workers: int = 1, **more: Any) -> GangLaunch:
    made = GangLaunch(
        job=job, attempt=attempt, seats=[Seat(f"h100/{i + 1}") for i in range(workers)], nproc=1, run="train",
        workdir="/w", envs={"A": "b"}, secrets=(), token="att_secret", checkpoint_keep=3, checkpoint_every=None,
        max_duration=None, memory=None, stop_grace=30.0, name="train", pool="h100", ask=Resources(1000, 0, 1, "H100"),
    )  # fmt: skip
    return replace(made, **more)
