"""deploy/: every object valid, every name that is referred to there, no more rights than are used, nothing as root."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from kustomize import Doc, build, identity
from render_kit import KUBERNETES, a_gang

from certificate import self_signed
from live import live_server, until
from muster.engines.describe import Home
from muster.engines.kubernetes import doctor
from muster.engines.kubernetes.config import read_config
from muster.engines.kubernetes.leader import LABEL
from muster.engines.kubernetes.render import manifests
from muster.engines.kubernetes.settings import FORMS, KubeSettings
from muster.engines.registry import check_engines
from muster.server.routes.health import router
from muster.server.settings import Settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
FOLDERS = {"base": DEPLOY / "base", **{path.name: path for path in (DEPLOY / "overlays").iterdir()}}
# Made by whoever installs it: see deploy/README.md.
SECRETS = {
    "muster": {"key"},
    "muster-tls": {"tls.crt", "tls.key"},
    "muster-database": {"url", "password"},
    "muster-s3": set[str](),
}


@pytest.fixture(scope="module", params=FOLDERS)
def made(request) -> list[Doc]:
    return build(FOLDERS[request.param])


def _of(made: list[Doc], kind: str) -> list[Doc]:
    return [document for document in made if document["kind"] == kind]


def _containers(pod: Doc) -> list[Doc]:
    return [*pod.get("initContainers", ()), *pod["containers"]]


def _workloads(made: list[Doc]) -> list[Doc]:
    return [*_of(made, "Deployment"), *_of(made, "StatefulSet")]


def _pods(made: list[Doc]) -> list[Doc]:
    return [document["spec"]["template"] for document in _workloads(made)]


def test_every_object_is_valid(made) -> None:
    assert len(made) > 10
    for document in made:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)


def test_what_is_referred_to_is_there(made) -> None:
    there = {identity(document) for document in made}
    for document in _workloads(made):
        namespace, pod = document["metadata"]["namespace"], document["spec"]["template"]["spec"]
        assert ("Namespace", "", namespace) in there
        if "serviceAccountName" in pod:
            assert ("ServiceAccount", namespace, pod["serviceAccountName"]) in there
        for volume in pod["volumes"]:
            if "configMap" in volume:
                assert ("ConfigMap", namespace, volume["configMap"]["name"]) in there
            if "persistentVolumeClaim" in volume:
                assert ("PersistentVolumeClaim", namespace, volume["persistentVolumeClaim"]["claimName"]) in there
            if "secret" in volume:
                assert {item["key"] for item in volume["secret"]["items"]} <= SECRETS[volume["secret"]["secretName"]]
        volumes = {volume["name"] for volume in pod["volumes"]} | {
            claim["metadata"]["name"] for claim in document["spec"].get("volumeClaimTemplates", ())
        }
        for container in [*pod.get("initContainers", ()), *pod["containers"]]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
            for variable in container.get("env", ()):
                if reference := variable.get("valueFrom", {}).get("secretKeyRef"):
                    assert reference["key"] in SECRETS[reference["name"]]
            assert {one["secretRef"]["name"] for one in container.get("envFrom", ())} <= SECRETS.keys()
    for document in [*_of(made, "RoleBinding"), *_of(made, "ClusterRoleBinding")]:
        namespace = "" if document["roleRef"]["kind"] == "ClusterRole" else document["metadata"]["namespace"]
        assert (document["roleRef"]["kind"], namespace, document["roleRef"]["name"]) in there
        for subject in document["subjects"]:
            assert (subject["kind"], subject["namespace"], subject["name"]) in there


def test_selectors_find_their_pods(made) -> None:
    labels = [pod["metadata"]["labels"] for pod in _pods(made)]
    names = {port["name"] for pod in _pods(made) for one in pod["spec"]["containers"] for port in one.get("ports", ())}
    for document in _workloads(made):
        wanted = document["spec"]["selector"]["matchLabels"]
        assert wanted.items() <= document["spec"]["template"]["metadata"]["labels"].items()
    for service in _of(made, "Service"):
        wanted = dict(service["spec"]["selector"])
        # The leader's mark is no label of the template: it is set on one pod while it runs.
        assert wanted.pop(LABEL, "true") == "true"
        assert any(wanted.items() <= one.items() for one in labels)
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= names
    for document in [*_of(made, "PodDisruptionBudget"), *_of(made, "NetworkPolicy")]:
        selector = document["spec"].get("selector") or document["spec"]["podSelector"]
        if not selector:
            continue  # everything in its namespace
        assert any(selector["matchLabels"].items() <= one.items() for one in labels)


def test_nothing_runs_as_root_or_writes_where_it_should_not(made) -> None:
    for pod in _pods(made):
        shared = pod["spec"]["securityContext"]
        assert shared["runAsNonRoot"] is True
        assert shared["runAsUser"] > 0
        assert shared["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]:
            own = container["securityContext"]
            assert own["readOnlyRootFilesystem"] is True
            assert own["allowPrivilegeEscalation"] is False
            assert own["capabilities"] == {"drop": ["ALL"]}
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
            assert "memory" in container["resources"]["limits"]
            assert re.fullmatch(r"[a-z0-9./-]+(:[A-Za-z0-9._-]+|@sha256:[0-9a-f]{64})", container["image"])


@pytest.mark.parametrize("name", [name for name in FOLDERS if name != "base"])
def test_what_is_meant_to_stay_runs_images_by_their_digests(name) -> None:
    images = {one["image"] for pod in _pods(build(FOLDERS[name])) for one in _containers(pod["spec"])}
    assert images
    assert all(re.search(r"@sha256:[0-9a-f]{64}\Z", image) for image in images), images


def test_no_password_is_on_a_command_line(made) -> None:
    """Nor one that Kubernetes would put there from a variable."""
    for pod in _pods(made):
        for container in _containers(pod["spec"]):
            secret = {one["name"] for one in container.get("env", ()) if "secretKeyRef" in one.get("valueFrom", {})}
            line = " ".join([*container.get("command", ()), *container.get("args", ())])
            assert "://" not in line.replace("https://127.0.0.1", "")
            assert not any(f"$({name})" in line for name in secret), line
            assert "--allow-insecure" not in line


def test_jobs_are_fenced_in(made) -> None:
    """Everybody's pods but the servers' are in namespaces with a standard to keep and a policy of the network."""
    server = {"matchLabels": {"kubernetes.io/metadata.name": "muster"}}
    for namespace in _of(made, "Namespace"):
        labels, name = namespace["metadata"]["labels"], namespace["metadata"]["name"]
        assert labels["pod-security.kubernetes.io/enforce"] in ("baseline", "restricted")
        if labels.get("muster.dev/jobs") != "true":
            continue
        assert labels["pod-security.kubernetes.io/warn"] == "restricted"
        (policy,) = [one for one in _of(made, "NetworkPolicy") if one["metadata"]["namespace"] == name]
        assert (policy["spec"]["podSelector"], policy["spec"]["policyTypes"]) == ({}, ["Ingress", "Egress"])
        assert policy["spec"]["ingress"] == []
        peers = [peer for rule in policy["spec"]["egress"] for peer in rule["to"]]
        assert server in [peer.get("namespaceSelector") for peer in peers]
        for block in [peer["ipBlock"] for peer in peers if "ipBlock" in peer]:
            outside = [ipaddress.ip_network(one) for one in block["except"]]
            for address in ("10.1.2.3", "169.254.169.254", "192.168.1.1", "fd00::1", "fe80::1"):
                known = ipaddress.ip_address(address)
                if known.version == ipaddress.ip_network(block["cidr"]).version:
                    assert any(known in one for one in outside), address
    (ingress,) = [one for one in _of(made, "NetworkPolicy") if one["metadata"]["name"] == "muster"]
    allowed = [one["namespaceSelector"]["matchLabels"] for one in ingress["spec"]["ingress"][0]["from"]]
    assert {"muster.dev/jobs": "true"} in allowed


def test_the_server_is_probed_where_it_answers(made) -> None:
    paths = {route.path for route in router.routes}  # type: ignore[attr-defined]
    (server,) = _of(made, "Deployment")
    assert server["spec"]["replicas"] == 2
    container = server["spec"]["template"]["spec"]["containers"][0]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["path"] in paths
        assert container[probe]["httpGet"]["port"] == container["ports"][0]["name"] == "https"
        assert container[probe]["httpGet"]["scheme"] == "HTTPS"


def test_the_settings_can_be_read_and_lead_where_the_objects_are(made, tmp_path) -> None:
    (config,) = _of(made, "ConfigMap")
    text = config["data"]["config.toml"]
    (server,) = _of(made, "Deployment")
    (volume,) = [one for one in server["spec"]["template"]["spec"]["volumes"] if one["name"] == "tls"]
    for item in volume["secret"]["items"]:
        assert f'"/etc/muster/tls/{item["path"]}"' in text
        (tmp_path / item["path"]).touch()
    (tmp_path / "config.toml").write_text(text.replace("/etc/muster/tls", str(tmp_path)))
    settings = Settings.load(tmp_path, {"store_url": "postgresql://muster@muster-postgres/muster"})
    (service,) = [one for one in _of(made, "Service") if one["metadata"]["name"] == "muster"]
    about = service["metadata"]
    assert not settings.allow_insecure
    assert settings.advertised == (f"https://{about['name']}.{about['namespace']}.svc:{settings.port}",)
    container = server["spec"]["template"]["spec"]["containers"][0]
    assert container["ports"][0]["containerPort"] == settings.port == service["spec"]["ports"][0]["port"]
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert settings.artifacts.startswith("s3://") or settings.artifacts in mounts
    table = {key: value for key, value in check_engines(settings.engines)["kubernetes"].items() if key != "kind"}
    engine = read_config("kubernetes", table, Home(tmp_path, "0123456789", lambda: ()))
    there = {identity(document) for document in made}
    assert engine.settings.network_policy
    bound = {one["metadata"]["namespace"]: one["roleRef"]["name"] for one in _of(made, "RoleBinding")}
    for namespace in (engine.namespace, *engine.namespaces):
        assert ("Namespace", "", namespace) in there
        assert ("ServiceAccount", namespace, engine.settings.service_account) in there
        assert bound[namespace] == "muster-engine"


def _allowed(role: Doc) -> dict[tuple[str, str], set[str]]:
    found: dict[tuple[str, str], set[str]] = {}
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                found.setdefault((group, resource), set()).update(rule["verbs"])
    return found


def test_the_engine_has_the_rights_that_it_uses(made) -> None:
    (role,) = [one for one in _of(made, "ClusterRole") if one["metadata"]["name"] == "muster-engine"]
    (wide,) = [one for one in _of(made, "ClusterRole") if one["metadata"]["name"] == "muster-nodes"]
    assert [one["roleRef"]["name"] for one in _of(made, "ClusterRoleBinding")] == ["muster-nodes"]
    inside, outside = _allowed(role), _allowed(wide)
    for group, resource, verbs in (*doctor.NEEDED, *doctor.FENCING):
        assert set(verbs) <= inside[group, resource], resource
    for group, resource, verbs in doctor.WIDE:
        assert set(verbs) <= outside[group, resource]
    for group, resource, verb, _ in doctor.USEFUL:
        assert verb in outside[group, resource]
    for form in FORMS:
        for scheduler in ("", "volcano"):
            options = {"form": form, "scheduler": scheduler}
            for document in manifests(a_gang(options=options), KubeSettings(network_policy=True), "{}", b"zip"):
                group = document["apiVersion"].rpartition("/")[0]
                # Server-side apply of something new takes both.
                plural = f"{document['kind'].lower()}s".replace("policys", "policies")
                assert {"create", "patch"} <= inside[group, plural], document["kind"]
    assert not any("*" in verbs for verbs in [*inside.values(), *outside.values()])
    assert not any("get" in verbs or "list" in verbs for (_, name), verbs in inside.items() if name == "secrets")


def test_the_image_is_what_the_manifests_expect() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    (server,) = _of(build(FOLDERS["base"]), "Deployment")
    user = server["spec"]["template"]["spec"]["securityContext"]["runAsUser"]
    assert f"USER {user}:{user}" in text
    assert '\nCMD ["up"]\n' in text
    assert "insecure" not in text
    assert f"EXPOSE {Settings(Path('/')).port}" in text
    extras = re.search(r"\.\[([a-z,]+)\]", text)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert extras
    assert set(extras[1].split(",")) <= project["optional-dependencies"].keys()
    kept = {line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")}
    for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE):
        for name in line.split()[:-1]:
            assert name in kept
            assert (ROOT / name).exists()


class _Api(BaseHTTPRequestHandler):
    """The one call of the API that is made here: a merge of labels into a pod."""

    marks: list[tuple[str, Any]]

    def do_PATCH(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.headers["Content-Type"] == "application/merge-patch+json"
        self.marks.append((self.path.partition("?")[0], body["metadata"]["labels"]))
        answer = json.dumps({"kind": "Pod"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None: ...


@contextmanager
def _api(folder: Path) -> Iterator[tuple[Path, list[tuple[str, Any]]]]:
    """Where a kubeconfig for it is, and what was asked of it."""
    marks: list[tuple[str, Any]] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Api", (_Api,), {"marks": marks}))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{"name": "here", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "users": [{"name": "me", "user": {"token": "t"}}],
    }
    (folder / "kubeconfig").write_text(yaml.safe_dump(config))
    try:
        yield folder / "kubeconfig", marks
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_pod_of_the_server_that_leads_is_marked(tmp_path) -> None:
    """A real server, and the real process that runs beside it in the pod."""
    (deployment,) = _of(build(FOLDERS["base"]), "Deployment")
    beside = deployment["spec"]["template"]["spec"]["containers"][1]
    assert beside["command"][3:] == ["https://127.0.0.1:6878", "/etc/muster/tls/tls.crt"]
    assert beside["command"][:3] == ["python", "-m", "muster.engines.kubernetes.leader"]
    both = str(self_signed(tmp_path))
    tls = ("--tls-cert", both, "--tls-key", both)
    with live_server(tmp_path / "home", *tls, ca=both) as server, _api(tmp_path) as (kubeconfig, marks):
        env = {**os.environ, "KUBECONFIG": str(kubeconfig), "POD_NAME": "muster-0", "POD_NAMESPACE": "muster"}
        process = subprocess.Popen([sys.executable, *beside["command"][1:3], server.url, both], env=env)
        try:
            path = "/api/v1/namespaces/muster/pods/muster-0"
            until(lambda: (path, {LABEL: "true"}) in marks, "the mark of the leader")
            assert server.process is not None
            server.process.kill()
            until(lambda: marks[-1] == (path, {LABEL: "false"}), "the mark to be taken away")
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(180) == 0


def test_the_database_is_taken_from_the_variable_that_the_manifests_set(made, tmp_path, monkeypatch) -> None:
    (server,) = _of(made, "Deployment")
    (variable,) = server["spec"]["template"]["spec"]["containers"][0]["env"]
    address = "postgresql://muster:of-the-secret@muster-postgres/muster"  # pragma: allowlist secret
    monkeypatch.setenv(variable["name"], address)
    assert Settings.load(tmp_path, {}).url_of_store == address
    assert Settings.load(tmp_path, {"store_url": "sqlite:///x"}).url_of_store == "sqlite:///x"
