"""A real control plane on loopback: etcd, kube-apiserver, kube-controller-manager and kube-scheduler from a folder of
binaries, `deploy/base` applied to it, and the stand-in's kubelets under it. Muster comes as deploy's ServiceAccount.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import socket
import ssl
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml

from components import require_root
from live import until
from rigs.kube_store import BY_NAME, KINDS, ApiError, Object
from rigs.kubelet import Kubelets, set_ready
from rigs.kubernetes_rig import NODES, KubernetesRig, node

DEPLOY = Path(__file__).parents[2] / "deploy" / "base"
# Kubelets beat no hearts here, and whose node is gone is the rig's to say.
CONTROLLERS = "*,-node-lifecycle-controller,-taint-eviction-controller"


def binaries() -> Path:
    folder = Path(os.environ.get("KUBERNETES_BIN", "/nowhere"))
    missing = [n for n in ("kube-apiserver", "kube-controller-manager", "kube-scheduler") if not (folder / n).is_file()]
    assert not missing, f"set KUBERNETES_BIN to a folder with {', '.join(missing)}; etcd is taken from PATH"
    return folder


class ControlPlane:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.token = secrets.token_hex(16)
        self.url = f"https://127.0.0.1:{_free_port()}"
        self._started: list[subprocess.Popen[bytes]] = []

    @property
    def certificate(self) -> Path:
        return self.folder / "certificates" / "apiserver.crt"

    def start(self) -> None:
        where, made = self.folder, binaries()
        key = where / "accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
        (where / "tokens.csv").write_text(f"{self.token},admin,admin,system:masters\n")
        etcd, peers = (f"http://127.0.0.1:{_free_port()}" for _ in range(2))
        self._run("etcd", [
            "etcd", f"--data-dir={where}/etcd", f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}", "--unsafe-no-fsync",
        ])  # fmt: skip
        self._run("apiserver", [
            f"{made}/kube-apiserver", f"--etcd-servers={etcd}", "--bind-address=127.0.0.1",
            f"--secure-port={self.url.rpartition(':')[2]}", f"--cert-dir={where}/certificates",
            f"--token-auth-file={where}/tokens.csv", "--authorization-mode=RBAC", "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.0.0.0/24", "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}",
        ])  # fmt: skip
        until(self._ready, "the API server", patience=120)
        (where / "admin.yaml").write_text(yaml.safe_dump(self.kubeconfig(self.token, "default")))
        common = [f"--kubeconfig={where}/admin.yaml", "--leader-elect=false", "--secure-port=0"]
        self._run("controllers", [
            f"{made}/kube-controller-manager", *common, f"--service-account-private-key-file={key}",
            f"--controllers={CONTROLLERS}", "--use-service-account-credentials",
        ])  # fmt: skip
        self._run("scheduler", [f"{made}/kube-scheduler", *common])

    def close(self) -> None:
        for process in reversed(self._started):
            process.terminate()
        for process in self._started:
            try:
                process.wait(120)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def kubeconfig(self, token: str, namespace: str) -> Object:
        trusted = base64.b64encode(self.certificate.read_bytes()).decode()
        return {
            "apiVersion": "v1", "kind": "Config", "current-context": "rig",
            "clusters": [{"name": "rig", "cluster": {"server": self.url, "certificate-authority-data": trusted}}],
            "users": [{"name": "rig", "user": {"token": token}}],
            "contexts": [{"name": "rig", "context": {"cluster": "rig", "user": "rig", "namespace": namespace}}],
        }  # fmt: skip

    def client(self) -> httpx.Client:
        trusted = ssl.create_default_context(cafile=str(self.certificate))
        return httpx.Client(
            base_url=self.url, verify=trusted, headers={"Authorization": f"Bearer {self.token}"}, timeout=120
        )

    def _ready(self) -> bool:
        if not self.certificate.is_file():
            return False
        with self.client() as http:
            try:
                return http.get("/readyz").status_code == 200
            except httpx.HTTPError:
                return False

    def _run(self, name: str, command: list[str]) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            self._started.append(subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL))


class RealStore:
    """What kubelets and tests use of the stand-in's store, by the API of a real server."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    def call(self, method: str, path: str, body: Object | None = None, **params: str) -> Object:
        answer = self.http.request(method, path, json=body, params={k: v for k, v in params.items() if v})
        said: Object = answer.json()
        if answer.status_code >= 400:
            raise ApiError(answer.status_code, said.get("reason", ""), said.get("message", ""))
        return said

    def list(self, kind: str, namespace: str = "", labels: str = "", fields: str = "") -> list[Object]:
        try:
            found = self.call("GET", _path(kind, namespace), labelSelector=labels, fieldSelector=fields)
        except (ApiError, json.JSONDecodeError):  # such as "404 page not found", for a kind that is not installed
            return []
        about = BY_NAME[kind]
        return [{"apiVersion": about.api_version, "kind": kind, **item} for item in found["items"]]

    def find(self, kind: str, namespace: str, name: str) -> Object | None:
        try:
            return self.call("GET", f"{_path(kind, namespace)}/{name}")
        except ApiError as error:
            if error.code != 404:
                raise
            return None

    def create(self, item: Object) -> Object:
        return self.call("POST", _path(item["kind"], item["metadata"].get("namespace", "")), item)

    def edit(
        self, kind: str, namespace: str, name: str, change: Callable[[Object], None], manager: str = "cluster"
    ) -> None:
        while (before := self.find(kind, namespace, name)) is not None:
            after: Object = json.loads(json.dumps(before))
            after.setdefault("status", {})
            change(after)
            try:
                where = f"{_path(kind, namespace)}/{name}"
                if after["status"] != before.get("status", {}):
                    said = self.call("PUT", f"{where}/status", after, fieldManager=manager)
                    after["metadata"]["resourceVersion"] = said["metadata"]["resourceVersion"]
                if (after["spec"], after["metadata"].get("labels")) != (
                    before["spec"], before["metadata"].get("labels"),
                ):  # fmt: skip
                    self.call("PUT", where, after, fieldManager=manager)
                return
            except ApiError as error:
                if error.code == 404:
                    return
                if error.code != 409:
                    raise

    def delete(self, kind: str, namespace: str, name: str, options: Object | None = None) -> None:
        """As `kubectl delete` does, where nothing else is asked for."""
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background", **(options or {})}
        self.call("DELETE", f"{_path(kind, namespace)}/{name}", body)

    def wait(self, version: int, seconds: float) -> int:
        time.sleep(seconds)
        return version


@dataclass
class RealRig(KubernetesRig):
    """The rig of the contract, on a control plane that is real."""

    namespace: str = "muster-jobs"
    standard: str = "privileged"  # of Pod Security: checkpoints of the contract are in a folder of the nodes
    plane: ControlPlane = field(init=False)

    def start(self, folder: Path) -> None:
        require_root("run pods in namespaces of their own")
        self.folder = folder
        (folder / "checkpoints").mkdir()
        self.plane = ControlPlane(folder)
        self.plane.start()
        self.store: Any = RealStore(self.plane.client())
        for file in ("namespaces.yaml", "access.yaml"):
            for item in yaml.safe_load_all((DEPLOY / file).read_text()):
                self._apply(item)
        labels = {"pod-security.kubernetes.io/enforce": self.standard}
        self._apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace, "labels": labels}})
        for name in NODES:
            self.store.create(node(name))
            self.store.edit("Node", "", name, lambda item: item["spec"].update(taints=[]))
            set_ready(self.store, name, "True", "kubelet is posting ready status")
        until(lambda: self._account("default", self.namespace), "the accounts of the namespace")
        self._parts = [Kubelets(self.store, folder)]
        for part in self._parts:
            part.start()
        self._front.start(folder.parent)
        (folder / "kubeconfig").write_text(yaml.safe_dump(self.plane.kubeconfig(self.muster_token(), self.namespace)))

    def close(self) -> None:
        try:
            super().close()
        finally:
            self.store.http.close()
            self.plane.close()

    def muster_token(self) -> str:
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 7200}}
        said = self.store.call("POST", "/api/v1/namespaces/muster/serviceaccounts/muster/token", asked)
        token: str = said["status"]["token"]
        return token

    def records(self) -> str:
        kinds = [kind.kind for kind in KINDS if kind.kind != "Secret"]
        shown = [json.dumps(item) for kind in kinds for item in self.store.list(kind)]
        return "\n".join([*shown, *(path.read_text() for path in self.folder.glob("pods/*/output"))])

    def _apply(self, item: Object) -> None:
        kinds = {"ServiceAccount": "serviceaccounts", "Namespace": "namespaces"}
        about, version = item["metadata"], item["apiVersion"]
        root = f"/api/{version}" if version == "v1" else f"/apis/{version}"
        space = f"/namespaces/{about['namespace']}" if "namespace" in about else ""
        plural = kinds.get(item["kind"], item["kind"].lower() + "s")
        answer = self.store.http.patch(
            f"{root}{space}/{plural}/{about['name']}", params={"fieldManager": "rig", "force": "true"},
            content=json.dumps(item), headers={"Content-Type": "application/apply-patch+yaml"},
        )  # fmt: skip
        assert answer.status_code < 300, answer.text

    def _account(self, name: str, namespace: str) -> bool:
        answer = self.store.http.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}")
        return bool(answer.status_code == 200)


def _path(kind: str, namespace: str) -> str:
    about = BY_NAME[kind]
    root = f"/api/{about.api_version}" if "/" not in about.api_version else f"/apis/{about.api_version}"
    return f"{root}/namespaces/{namespace}/{about.plural}" if namespace else f"{root}/{about.plural}"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as door:
        port: int = door.getsockname()[1]
        return port
