"""A cluster of stand-ins for tests: an API server on loopback, controllers, and kubelets that really run pods."""

from __future__ import annotations

import json
import socket
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from components import require_root
from live import until
from rigs.kube_api import ApiServer
from rigs.kube_controllers import Controllers
from rigs.kube_store import KINDS, Object, Store
from rigs.kubelet import Kubelets, set_ready

NODES = ("node-a", "node-b", "node-c")
GPUS = 2  # of each node
TOKEN = "token-of-the-rig"
PRODUCT = "NVIDIA-H100-80GB-HBM3"


@dataclass
class KubernetesRig:
    """See the contract of rigs."""

    name: str = "kubernetes"
    pool: str = "h100"
    namespace: str = "training"
    quotas: dict[str, int] = field(default_factory=dict)  # LocalQueue → pods
    more: str = ""  # of the engine's settings
    env: dict[str, str] = field(default_factory=dict)
    folder: Path = Path()
    store: Store = field(default_factory=Store)
    _parts: list[ApiServer | Controllers | Kubelets] = field(default_factory=list)
    _front: Front = field(default_factory=lambda: Front())

    @property
    def config(self) -> str:
        return f"""\
advertise = "{self._front.url}"
[engines.kubernetes]
kubeconfig = "{self.folder}/kubeconfig"
python = "{sys.executable}"
node_lost_after = "1s"
checkpoints = "hostPath:{self.folder}/checkpoints"
{self.more}"""

    @property
    def api(self) -> ApiServer:
        return next(part for part in self._parts if isinstance(part, ApiServer))

    @property
    def controllers(self) -> Controllers:
        return next(part for part in self._parts if isinstance(part, Controllers))

    @property
    def kubelets(self) -> Kubelets:
        return next(part for part in self._parts if isinstance(part, Kubelets))

    def start(self, folder: Path) -> None:
        require_root("run pods in namespaces of their own")
        self.folder = folder
        (folder / "checkpoints").mkdir()
        for name in ("default", self.namespace):
            self.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for name in NODES:
            self.store.create(node(name))
            set_ready(self.store, name, "True", "kubelet is posting ready status")
        self._parts = [ApiServer(self.store, TOKEN), Controllers(self.store, self.quotas), Kubelets(self.store, folder)]
        for part in self._parts:
            part.start()
        self._front.start(folder.parent)
        (folder / "kubeconfig").write_text(yaml.safe_dump(kubeconfig(self.api.url, self.namespace)))

    def close(self) -> None:
        self._front.close()
        for part in reversed(self._parts):
            part.close()
        errors = [error for part in self._parts if not isinstance(part, ApiServer) for error in part.errors]
        assert not errors, "\n".join(errors)

    def kill_node(self, node: str) -> None:
        self.kubelets.kill_node(node)

    def restore(self) -> None:
        self.kubelets.restore()

    def records(self) -> str:
        """What `kubectl get -o yaml` shows of everything but Secrets, and the pods' own output."""
        kinds = [kind.kind for kind in KINDS if kind.kind != "Secret"]
        shown = [json.dumps(item) for kind in kinds for item in self.store.list(kind)]
        return "\n".join([*shown, *(path.read_text() for path in self.folder.glob("pods/*/output"))])

    def cancel_outside(self, job: str) -> None:
        """As `kubectl delete job` does."""
        for item in self.jobs(job):
            self.store.delete("Job", item["metadata"]["namespace"], item["metadata"]["name"])

    def jobs(self, job: str) -> list[Object]:
        return [
            item
            for item in self.store.list("Job")
            if (item["metadata"].get("labels") or {}).get("muster.dev/job") == job
        ]

    def pods(self, job: str) -> list[Object]:
        return self.store.list("Pod", labels=f"muster.dev/job={job}")

    def one_pod(self, job: str) -> Object:
        return until(lambda: self.pods(job), f"a pod of {job}")[0]


class Front:
    """What a Service is to a Muster in a cluster: one address in front of whichever server is there now, the newest
    whose home is beside the rig's folder."""

    def __init__(self) -> None:
        self._door = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._homes = Path()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._door.getsockname()[1]}"

    def start(self, homes: Path) -> None:
        self._homes = homes
        threading.Thread(target=self._accept, name="front", daemon=True).start()

    def close(self) -> None:
        self._door.close()

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._door.accept()
            except OSError:
                return
            threading.Thread(target=self._pass, args=(caller,), daemon=True).start()

    def _pass(self, caller: socket.socket) -> None:
        with caller:
            try:
                newest = max(self._homes.glob("*/server.json"), key=lambda path: path.stat().st_mtime)
                where = urlsplit(json.loads(newest.read_text())["urls"][0])
                with socket.create_connection((where.hostname, where.port), 5) as server:
                    server.settimeout(None)
                    back = threading.Thread(target=_copy, args=(server, caller), daemon=True)
                    back.start()
                    _copy(caller, server)
                    back.join()
            except (OSError, ValueError):
                return  # nobody is there: the caller sees its connection end


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
    except OSError:
        pass
    for end in (target, source):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def node(name: str, **labels: str) -> Object:
    amounts = {"cpu": "32", "memory": "64Gi", "nvidia.com/gpu": str(GPUS), "pods": "110"}
    marks = {
        "kubernetes.io/hostname": name, "nvidia.com/gpu.product": PRODUCT, "nvidia.com/gpu.memory": "81559",
        "topology.kubernetes.io/zone": "z1", **labels,
    }  # fmt: skip
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": marks}, "spec": {},
        "status": {"allocatable": amounts, "capacity": amounts, "conditions": []},
    }  # fmt: skip


def kubeconfig(server: str, namespace: str) -> Object:
    return {
        "apiVersion": "v1", "kind": "Config", "current-context": "rig",
        "clusters": [{"name": "rig", "cluster": {"server": server}}],
        "users": [{"name": "rig", "user": {"token": TOKEN}}],
        "contexts": [{"name": "rig", "context": {"cluster": "rig", "user": "rig", "namespace": namespace}}],
    }  # fmt: skip
