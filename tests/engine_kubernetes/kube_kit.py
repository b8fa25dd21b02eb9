"""What the tests of the Kubernetes engine share: an API server without nodes, and objects as a cluster has them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from muster.engines.kubernetes.access import Access
from muster.engines.kubernetes.client import Client
from rigs.kube_api import ApiServer
from rigs.kube_store import Store

Object = dict[str, Any]


@contextmanager
def api_server(token: str = "") -> Iterator[tuple[ApiServer, Client]]:
    """With a namespace `training`."""
    store = Store()
    store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "training"}})
    server = ApiServer(store, token)
    server.start()
    client = Client(Access(server.url, "training", "the test", token=lambda: token))
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
