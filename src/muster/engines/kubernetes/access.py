"""Address of and credentials for a cluster's API:
from a kubeconfig, as kubectl reads it, or a pod's service account."""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import yaml

from muster.core.errors import EngineError

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
EXEC_SECONDS: Final = 60.0  # that a credential plugin may take
EXEC_EARLY: Final = 60.0  # seconds before a plugin's credential expires at which a new one is requested
TOKEN_LOOK: Final = 60.0  # seconds between two reads of a token's file: the kubelet renews it


@dataclass(slots=True)
class Access:
    """How to reach the API. `token` is called before every request and returns "" if there is none."""

    server: str
    namespace: str
    where: str  # readable: the file and context this comes from
    verify: ssl.SSLContext | bool = True
    token: Callable[[], str] = str
    basic: tuple[str, str] | None = None
    headers: dict[str, str] = field(default_factory=dict)
    server_name: str = ""  # the name in the certificate, if it is not the host
    proxy: str = ""


def find_access(kubeconfig: str = "", context: str = "", account: Path = ACCOUNT) -> Access:
    """From `kubeconfig`, else KUBECONFIG, else a pod's service account, else ~/.kube/config. Raises EngineError."""
    named = kubeconfig or os.environ.get("KUBECONFIG", "")
    if not named and (account / "token").exists() and os.environ.get("KUBERNETES_SERVICE_HOST"):
        return _in_cluster(account)
    paths = [Path(part).expanduser() for part in (named or "~/.kube/config").split(os.pathsep) if part]
    present = [path for path in paths if path.is_file()]
    if not present:
        raise EngineError(
            f"There is no kubeconfig at {', '.join(map(str, paths))}.",
            "Set `kubeconfig` in [engines.NAME], or KUBECONFIG, or run the server in the cluster.",
        )
    return _from_config(_merged(present), context, present[0])


def _in_cluster(account: Path) -> Access:
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    host = f"[{host}]" if ":" in host else host
    namespace = account / "namespace"
    return Access(
        server=f"https://{host}:{port}",
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        where="the pod's service account",
        verify=_trust((account / "ca.crt").read_text()),
        token=_token_file(account / "token"),
    )


def _merged(paths: list[Path]) -> dict[str, Any]:
    """Merges kubeconfigs as kubectl does: the first file that defines a name counts.
    Paths are relative to their file."""
    found: dict[str, Any] = {"clusters": {}, "users": {}, "contexts": {}, "current-context": ""}
    for path in paths:
        try:
            raw = yaml.safe_load(path.read_text()) or {}
        except (OSError, yaml.YAMLError) as error:
            raise EngineError(
                f"{path} can't be read: {error}.", "It should be a kubeconfig; see `kubectl config`."
            ) from (error)
        for kind, entry in (("clusters", "cluster"), ("users", "user"), ("contexts", "context")):
            for item in raw.get(kind) or []:
                found[kind].setdefault(item["name"], {**(item.get(entry) or {}), "": str(path.parent)})
        found["current-context"] = found["current-context"] or raw.get("current-context") or ""
    return found


def _from_config(config: Mapping[str, Any], context: str, path: Path) -> Access:
    name = context or config["current-context"]
    chosen = config["contexts"].get(name)
    if chosen is None:
        there = ", ".join(sorted(config["contexts"])) or "none"
        raise EngineError(f"{path} has no context {name!r}; it has: {there}.", "Set `context` in [engines.NAME].")
    cluster = config["clusters"].get(chosen.get("cluster", ""))
    user = config["users"].get(chosen.get("user", ""), {})
    if not cluster or not cluster.get("server"):
        raise EngineError(f"{path}: context {name!r} names no cluster with a server.", "See `kubectl config view`.")
    access = Access(
        server=str(cluster["server"]).rstrip("/"),
        namespace=chosen.get("namespace") or "default",
        where=f"context {name} of {path}",
        server_name=cluster.get("tls-server-name", ""),
        proxy=cluster.get("proxy-url", ""),
    )
    _identify(access, cluster, user)
    return access


def _identify(access: Access, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> None:
    certificate, key = _content(user, "client-certificate"), _content(user, "client-key")
    if user.get("token"):
        token = str(user["token"])
        access.token = lambda: token
    elif user.get("tokenFile"):
        access.token = _token_file(_path(user, "tokenFile"))
    elif user.get("exec"):
        plugin = _Plugin(user["exec"], cluster, user[""])
        access.token = plugin.token
        certificate, key = plugin.certificate()
    elif user.get("username"):
        access.basic = (str(user["username"]), str(user.get("password", "")))
    elif user.get("auth-provider"):
        raise EngineError(
            f"{access.where} uses an auth-provider, which Kubernetes has dropped.", "Use an exec credential plugin."
        )
    if user.get("as"):
        access.headers["Impersonate-User"] = str(user["as"])
    if access.server.startswith("https://"):
        access.verify = _trust(
            _content(cluster, "certificate-authority"), bool(cluster.get("insecure-skip-tls-verify"))
        )
        if certificate and key:
            _load_pair(access.verify, certificate, key)


def _trust(authority: str, insecure: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority or None)
    # Clusters' own CAs often lack the extensions that the strict check of newer Pythons requires.
    context.verify_flags &= ~ssl.VerifyFlags.VERIFY_X509_STRICT
    if insecure:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _load_pair(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Loads a certificate and key. The library only takes files, so a temporary one is used,
    readable by its owner only and deleted at once."""
    with tempfile.NamedTemporaryFile("w", prefix="muster-") as file:
        file.write(certificate.rstrip() + "\n" + key)
        file.flush()
        try:
            context.load_cert_chain(file.name)
        except (ssl.SSLError, OSError) as error:
            raise EngineError(f"The kubeconfig's client certificate is not usable: {error}.", "Renew it.") from error


def _content(entry: Mapping[str, Any], name: str) -> str:
    if data := entry.get(f"{name}-data"):
        return base64.b64decode(data).decode()
    return _path(entry, name).read_text() if entry.get(name) else ""


def _path(entry: Mapping[str, Any], name: str) -> Path:
    path = Path(entry[""]) / Path(str(entry[name])).expanduser()
    if not path.is_file():
        raise EngineError(f"The kubeconfig names {path} as {name}, and there is no such file.", "Correct the path.")
    return path


def _token_file(path: Path) -> Callable[[], str]:
    kept: list[Any] = [0.0, ""]

    def token() -> str:
        if time.monotonic() >= kept[0]:
            kept[:] = [time.monotonic() + TOKEN_LOOK, path.read_text().strip()]
        return str(kept[1])

    return token


class _Plugin:
    """A credential plugin: a program that prints an ExecCredential."""

    def __init__(self, settings: Mapping[str, Any], cluster: Mapping[str, Any], folder: str) -> None:
        self._settings, self._cluster, self._folder = settings, cluster, folder
        self._status: dict[str, Any] = {}
        self._until = 0.0  # wall-clock time

    def token(self) -> str:
        return str(self._current().get("token", ""))

    def certificate(self) -> tuple[str, str]:
        status = self._current()
        return status.get("clientCertificateData", ""), status.get("clientKeyData", "")

    def _current(self) -> dict[str, Any]:
        if time.time() >= self._until:
            self._status = self._ask()
            ends = self._status.get("expirationTimestamp")
            self._until = datetime.fromisoformat(ends).timestamp() - EXEC_EARLY if ends else float("inf")
        return self._status

    def _ask(self) -> dict[str, Any]:
        command = str(self._settings.get("command", ""))
        if "/" in command:
            command = str(Path(self._folder) / command)
        info = {"apiVersion": self._settings.get("apiVersion"), "kind": "ExecCredential", "spec": self._spec()}
        added = {item["name"]: item["value"] for item in self._settings.get("env") or []}
        env = {**os.environ, **added, "KUBERNETES_EXEC_INFO": json.dumps(info)}
        try:
            done = subprocess.run(
                [command, *(self._settings.get("args") or [])],
                env=env, capture_output=True, text=True, timeout=EXEC_SECONDS, check=True, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            status = json.loads(done.stdout)["status"]
        except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
            said = getattr(error, "stderr", "") or ""
            hint = self._settings.get("installHint") or "Try it by hand: `kubectl get nodes` uses the same."
            raise EngineError(
                f"The credential plugin {command} failed: {error!r} {said[-500:]}".strip(), hint
            ) from error
        return dict(status)

    def _spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = {"interactive": False}
        if self._settings.get("provideClusterInfo"):
            spec["cluster"] = {key: value for key, value in self._cluster.items() if key}
        return spec
