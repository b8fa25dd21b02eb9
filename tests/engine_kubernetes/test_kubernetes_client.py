"""The client keeps to the API's rules: apply and its conflicts, preconditions, busy servers, credentials."""

from __future__ import annotations

import base64
import json
import os
import ssl
import stat
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml
from kube_kit import api_server, config_map, job

from certificate import self_signed
from muster.core.errors import EngineError
from muster.engines.kubernetes import client as client_module
from muster.engines.kubernetes.access import Access, find_access
from muster.engines.kubernetes.client import CONFIG_MAPS, PODS, KubeClient, KubeError, Resource
from rigs.kube_api import ApiServer
from rigs.kube_store import ApiError

JOBS = Resource("batch/v1", "jobs")


@pytest.fixture
def there() -> Iterator[tuple[ApiServer, KubeClient]]:
    with api_server() as pair:
        yield pair


def test_applying_twice_is_applying_once(there: tuple[ApiServer, KubeClient]) -> None:
    _, client = there
    first = client.apply(config_map("a", x="1", y="2"))
    again = client.apply(config_map("a", x="1", y="2"))
    assert first["metadata"]["resourceVersion"] == again["metadata"]["resourceVersion"]
    assert first["metadata"]["managedFields"][0]["manager"] == "muster"
    less = client.apply(config_map("a", x="1"))
    assert less["data"] == {"x": "1"}, "what is applied no more goes"


def test_a_job_that_somebody_let_go_is_not_suspended_again(there: tuple[ApiServer, KubeClient]) -> None:
    server, client = there
    client.apply(job("a", suspend=True))
    server.store.edit("Job", "training", "a", lambda item: item["spec"].update(suspend=False), "kueue")
    with pytest.raises(KubeError, match=r"spec\.suspend") as caught:
        client.apply(job("a", suspend=True), force=False)
    assert (caught.value.status, caught.value.reason) == (409, "Conflict")
    assert client.get(JOBS.path("training", "a"))["spec"]["suspend"] is False


def test_deleting_keeps_to_who_was_meant(there: tuple[ApiServer, KubeClient]) -> None:
    server, client = there
    made = client.apply(config_map("a"))
    assert not client.delete(CONFIG_MAPS.path("training", "a"), uid="another")
    assert client.delete(CONFIG_MAPS.path("training", "a"), uid=made["metadata"]["uid"])
    assert not client.delete(CONFIG_MAPS.path("training", "a"))
    assert server.store.list("ConfigMap") == []


def test_a_pod_is_deleted_with_its_grace(there: tuple[ApiServer, KubeClient]) -> None:
    server, client = there
    spec = {"nodeName": "n1", "containers": [{"name": "worker", "image": "x"}]}
    server.store.create(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "training"}, "spec": spec}
    )
    client.delete(PODS.path("training", "p"), grace=7)
    about = server.store.get("Pod", "training", "p")["metadata"]
    assert about["deletionTimestamp"]
    assert about["deletionGracePeriodSeconds"] == 7
    client.delete(PODS.path("training", "p"), grace=0)
    assert server.store.list("Pod") == []


def test_a_busy_server_is_asked_again(there: tuple[ApiServer, KubeClient], monkeypatch: pytest.MonkeyPatch) -> None:
    server, client = there
    client.resource("v1", "ConfigMap")
    waits: list[float] = []

    def relax(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            server.refuses.clear()

    monkeypatch.setattr(client_module.time, "sleep", relax)
    server.refuses["PATCH", "configmaps"] = ApiError(429, "TooManyRequests", "try again")
    assert client.apply(config_map("a"))["metadata"]["name"] == "a"
    assert waits == [client_module.BUSY_WAIT, 2 * client_module.BUSY_WAIT]


def test_a_kind_that_the_cluster_has_not_is_named(there: tuple[ApiServer, KubeClient]) -> None:
    _, client = there
    assert client.served("nothing.example.com") == ""
    with pytest.raises(KubeError, match="has no Gadget"):
        client.resource("v1", "Gadget")


def test_a_server_that_is_not_there_is_named_with_where_that_comes_from() -> None:
    client = KubeClient(Access("http://127.0.0.1:9", "default", "context x of /some/file"))
    with pytest.raises(EngineError, match=r"127\.0\.0\.1:9 does not answer") as caught:
        client.get("/version")
    assert "context x of /some/file" in caught.value.hint
    client.close()


# --- credentials ------------------------------------------------------------------------------------------------------
def write(folder: Path, user: dict[str, object], server: str = "https://127.0.0.1:1", **cluster: object) -> Path:
    path = folder / "config"
    path.write_text(yaml.safe_dump({
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "team"}},
                     {"name": "y", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }))  # fmt: skip
    return path


def test_context_and_namespace_come_from_the_kubeconfig(tmp_path: Path) -> None:
    path = write(tmp_path, {"token": "t1"})
    found = find_access(str(path))
    assert (found.server, found.namespace, found.token()) == ("https://127.0.0.1:1", "team", "t1")
    assert find_access(str(path), "y").namespace == "default"
    with pytest.raises(EngineError, match=r"no context 'z'; it has: x, y"):
        find_access(str(path), "z")


def test_a_missing_kubeconfig_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="There is no kubeconfig at") as caught:
        find_access(str(tmp_path / "nothing"))
    assert "KUBECONFIG" in caught.value.hint


def test_a_credential_plugin_is_run_and_its_token_used_until_it_ends(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    plugin.write_text(
        "#!/bin/sh\n"
        f'echo "$KUBERNETES_EXEC_INFO" > {tmp_path}/info; echo x >> {tmp_path}/ran\n'
        'echo \'{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1",'
        '"status":{"token":"from-\'$1-$WHO\'","expirationTimestamp":"\'$(cat ' + str(tmp_path / "until") + ")'\"}}'\n"
    )
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "until").write_text("2099-01-01T00:00:00Z")
    settings = {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin", "args": ["me"],
                "env": [{"name": "WHO", "value": "you"}], "provideClusterInfo": True}  # fmt: skip
    access = find_access(str(write(tmp_path, {"exec": settings}, server="http://127.0.0.1:1")))
    assert [access.token(), access.token()] == ["from-me-you"] * 2
    assert (tmp_path / "ran").read_text() == "x\n"
    info = json.loads((tmp_path / "info").read_text())
    assert info["spec"] == {"interactive": False, "cluster": {"server": "http://127.0.0.1:1"}}
    (tmp_path / "until").write_text("2001-01-01T00:00:00Z")
    ended = find_access(str(tmp_path / "config"))
    ended.token()
    ended.token()
    assert (tmp_path / "ran").read_text().count("x") == 4, "a token that has ended is asked for anew"


def test_a_plugin_that_fails_says_what_it_said(tmp_path: Path) -> None:
    settings = {"command": "sh", "args": ["-c", "echo log in first >&2; exit 3"], "installHint": "Get the tool."}
    with pytest.raises(EngineError, match="log in first") as caught:
        find_access(str(write(tmp_path, {"exec": settings})))
    assert caught.value.hint == "Get the tool."


def test_a_pod_uses_its_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    account = tmp_path / "account"
    account.mkdir()
    (account / "ca.crt").write_text(self_signed(tmp_path).read_text())
    (account / "token").write_text("t\n")
    (account / "namespace").write_text("inside")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    found = find_access(account=account)
    assert (found.server, found.namespace, found.token()) == ("https://[fd00::1]:6443", "inside", "t")


def test_a_client_certificate_is_shown_over_tls(tmp_path: Path) -> None:
    certificate = self_signed(tmp_path)
    seen: list[object] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.connection.getpeercert())
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"gitVersion": "v1.37.0"}')

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        context.load_verify_locations(certificate)
        context.verify_mode = ssl.CERT_REQUIRED
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.handle_request, daemon=True).start()
        coded = base64.b64encode(certificate.read_bytes()).decode()  # the key is in the same file
        user = {"client-certificate-data": coded, "client-key-data": coded}
        path = write(tmp_path, user, f"https://127.0.0.1:{server.server_address[1]}",
                     **{"certificate-authority": os.path.relpath(certificate, tmp_path)})  # fmt: skip
        client = KubeClient(find_access(str(path)))
        assert client.get("/version")["gitVersion"] == "v1.37.0"
        client.close()
    assert seen
    assert seen[0]
