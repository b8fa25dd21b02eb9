"""What MLflow's own server may be used for: viewers change nothing, nobody names places, and its keys are its own."""

from __future__ import annotations

import gzip
import json
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from live import LiveServer, below, live_server
from muster.server.mlflow.rights import right_for

API, API3 = "/api/2.0/mlflow/", "/api/3.0/mlflow/"
# Every route of MLflow's own table as METHOD PATH, with `search` for each part that a client chooses.
ROUTES = """
import os, re, warnings
warnings.simplefilter("ignore")
os.environ |= {"MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}
from fastapi.routing import APIRoute
from mlflow.server import app as flask
from mlflow.server import artifact_router, gateway_api, job_api, mcp_server_api, otel_api, server_info_api
from mlflow.server.assistant import api as assistant
found = {(method, rule.rule) for rule in flask.url_map.iter_rules() for method in rule.methods - {"HEAD", "OPTIONS"}}
routers = [(otel_api.otel_router, ""), (job_api.job_api_router, ""), (gateway_api.gateway_router, "")]
routers += [(assistant.assistant_router, ""), (artifact_router.artifact_router, "")]
routers += [(mcp_server_api.mcp_server_router, one) for one in mcp_server_api.get_mcp_server_api_route_prefixes()]
for router, prefix in [*routers, (server_info_api.server_info_router, "")]:
    for route in router.routes:
        found |= {(method, prefix + route.path) for method in route.methods}
for method, path in sorted(found):
    print("ROUTE", method, re.sub("<[^>]+>|{[^}]+}", "search", path))
"""
# What is asked by POST because it is too long for an address.
QUESTIONS = {
    "artifacts/presigned-download-url", "datasets/search", "experiments/search", "experiments/search-datasets",
    "issues/search", "logged-models/search", "registered-models/get-latest-versions", "runs/search",
    "traces/batchGetInfos", "traces/calculate-filter-correlation", "traces/metrics", "traces/search",
}  # fmt: skip


@dataclass
class People:
    """`root` administers; `mem` is a member of `vision`, `vic` a viewer there."""

    server: LiveServer
    root: httpx.Client
    mem: httpx.Client
    vic: httpx.Client
    experiment: str  # of vision


@pytest.fixture(scope="module")
def people(muster: LiveServer) -> Iterator[People]:
    with muster.http() as own:
        own.post("/v1/projects", json={"name": "sight"}).raise_for_status()
        clients = [mlflow(muster, muster.token)]
        for user, role in (("mem", "member"), ("vic", "viewer")):
            own.put(f"/v1/projects/sight/members/{user}", json={"role": role}).raise_for_status()
            token = muster.post("/v1/tokens", {"name": user, "user": user, "role": "member"})["token"]
            clients.append(mlflow(muster, token))
    made = clients[1].post(f"{API}experiments/create", json={"name": "shared"}).json()["experiment_id"]
    yield People(muster, *clients, made)
    for client in clients:
        client.close()


def mlflow(server: LiveServer, token: str) -> httpx.Client:
    return httpx.Client(base_url=f"{server.url}/mlflow", auth=("any", token), timeout=180, trust_env=False)


def trace(experiment: str, trace_id: str, **tags: str) -> dict[str, object]:
    place = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": experiment}}
    info = {"trace_id": trace_id, "trace_location": place, "request_time": "2025-01-01T00:00:00Z", "state": "OK"}
    return {"trace": {"trace_info": {**info, "tags": tags}}}


@pytest.fixture(scope="module")
def routes() -> list[tuple[str, str]]:
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", ROUTES], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = [line.split()[1:] for line in ran.stdout.splitlines() if line.startswith("ROUTE ")]
    assert len(found) > 300
    return [(method, path) for method, path in found]


class TestAViewer:
    def test_is_refused_whatever_is_not_a_reading_route(self, people: People, routes: list[tuple[str, str]]) -> None:
        wrong = []
        for method, path in routes:
            if right_for(method, path) != "read":
                answer = people.vic.request(method, path, json={} if method != "GET" else None)
                if answer.status_code != 403:
                    wrong.append((method, path, answer.status_code))
        assert wrong == []

    def test_reading_routes_are_those_that_only_read(self, routes: list[tuple[str, str]]) -> None:
        reads = {(method, path) for method, path in routes if right_for(method, path) == "read"}
        assert {method for method, _ in reads} == {"GET", "POST"}
        by_post = {path.rpartition("/mlflow/")[2] for method, path in reads if method == "POST" and path != "/graphql"}
        assert by_post == QUESTIONS
        for method, path in (("GET", "/api/3.0/mlflow/gateway/secrets/list"), ("DELETE", f"{API}logged-models/get")):
            assert right_for(method, path) != "read"

    def test_writes_no_trace_model_or_span(self, people: People) -> None:
        model = people.mem.post(f"{API}logged-models", json={"experiment_id": people.experiment, "name": "m"}).json()
        number = model["model"]["info"]["model_id"]
        tags = {"tags": [{"key": "get", "value": "1"}, {"key": "search", "value": "1"}]}
        assert people.mem.patch(f"{API}logged-models/{number}/tags", json=tags).status_code == 200
        for key in ("get", "search"):
            assert people.vic.delete(f"{API}logged-models/{number}/tags/{key}").status_code == 403
        assert people.vic.post(f"{API}logged-models", json={"experiment_id": people.experiment}).status_code == 403
        assert people.vic.post(f"{API3}traces", json=trace(people.experiment, "tr-1")).status_code == 403
        spans = {"content": b"\n\0", "headers": {"content-type": "application/x-protobuf"}}
        headers = {**spans["headers"], "x-mlflow-experiment-id": people.experiment}
        assert people.vic.post("/v1/traces", content=spans["content"], headers=headers).status_code == 403
        assert people.vic.get(f"{API}logged-models/{number}").status_code == 200

    def test_that_is_a_member_elsewhere_writes_there_alone(self, people: People) -> None:
        people.server.post("/v1/projects", {"name": "other"})
        with people.server.http() as own:
            own.put("/v1/projects/other/members/vic", json={"role": "member"}).raise_for_status()
        try:
            mine = people.vic.post(f"{API}experiments/create", json={"name": "other/mine"}).json()["experiment_id"]
            for number, status in ((people.experiment, 403), (mine, 200)):
                made = people.vic.post(f"{API}logged-models", json={"experiment_id": number, "name": "m"})
                assert made.status_code == status
                begun = people.vic.post(f"{API3}traces", json=trace(number, f"tr-of-{number}"))
                assert begun.status_code == status
        finally:
            with people.server.http() as own:
                own.delete("/v1/projects/other/members/vic").raise_for_status()


class TestPlaces:
    @pytest.mark.parametrize(
        "place",
        ["file:///etc", "FILE:///etc", "/etc", "etc/passwd", "s3://bucket/x", "http://127.0.0.1:1/x", "dbfs:/x",
         "runs:/a/b", "models:/a/1", "mlflow-artifacts://elsewhere/x", "..", "muster-record:/0/x"],
    )  # fmt: skip
    def test_no_address_is_taken(self, people: People, place: str, tmp_path: Path) -> None:
        mem, number = people.mem, people.experiment
        for spelling in ("artifact_location", "artifactLocation"):
            made = mem.post(f"{API}experiments/create", json={"name": f"x {place}", spelling: place})
            assert (made.status_code, made.json()["error_code"]) == (400, "INVALID_PARAMETER_VALUE"), place
        twice = json.dumps(json.dumps({"name": f"x {place}", "artifact_location": place}))
        kind = {"content-type": "application/json"}
        assert mem.post(f"{API}experiments/create", content=twice, headers=kind).status_code == 400
        begun = mem.post(f"{API3}traces", json=trace(number, "tr-x", **{"mlflow.artifactLocation": place}))
        assert begun.status_code == 400
        archived = mem.post(f"{API3}traces", json=trace(number, "tr-x", **{"mlflow.trace.archiveLocation": place}))
        assert archived.status_code == 400
        mem.post(f"{API3}traces", json=trace(number, "tr-good")).raise_for_status()
        tag = {"key": "mlflow.artifactLocation", "value": place}
        for api in (API, API3):
            assert mem.patch(f"{api}traces/tr-good/tags", json=tag).status_code == 400
        old = {"experiment_id": number, "timestamp_ms": 1, "tags": [tag], "request_metadata": []}
        assert mem.post(f"{API}traces", json=old).status_code == 400
        assert (
            mem.post(f"{API}experiments/set-experiment-tag", json={"experiment_id": number, **tag}).status_code == 400
        )

    @pytest.mark.parametrize("source", ["file:///etc", "/etc", "s3://b/x", "etc", "artifact:x/y", "run:x", "//x/y"])
    def test_a_versions_source(self, people: People, source: str) -> None:
        people.mem.post(f"{API}registered-models/create", json={"name": "seen"})
        made = people.mem.post(f"{API}model-versions/create", json={"name": "seen", "source": source})
        assert made.status_code == 400, made.text

    def test_a_version_names_only_runs_that_one_sees(self, people: People) -> None:
        hidden = people.root.post(f"{API}runs/create", json={"experiment_id": "0"}).json()["run"]["info"]["run_id"]
        own = people.mem.post(f"{API}runs/create", json={"experiment_id": people.experiment})
        run = own.json()["run"]["info"]["run_id"]
        people.mem.post(f"{API}registered-models/create", json={"name": "seen"})
        for given in (
            {"source": f"runs:/{hidden}/model", "run_id": hidden},
            {"source": f"mlflow-artifacts:/0/{hidden}/artifacts/model", "run_id": hidden},
            {"source": f"mlflow-artifacts:/0/{hidden}/artifacts/model"},
            {"source": "dummy-source", "run_id": hidden},
        ):
            made = people.mem.post(f"{API}model-versions/create", json={"name": "seen", **given})
            assert made.status_code in (400, 404), made.text
        assert people.mem.get(f"{API}model-versions/search", params={"filter": "name = 'seen'"}).json() == {}
        good = {"name": "seen", "source": f"mlflow-artifacts:/{people.experiment}/{run}/artifacts/model", "run_id": run}
        assert people.mem.post(f"{API}model-versions/create", json=good).status_code == 200

    def test_a_location_from_before_is_not_opened(self, people: People, tmp_path: Path) -> None:
        """As an older server may have kept it."""
        made = people.mem.post(f"{API}experiments/create", json={"name": "old"}).json()["experiment_id"]
        run = people.mem.post(f"{API}runs/create", json={"experiment_id": made}).json()["run"]["info"]["run_id"]
        with sqlite3.connect(people.server.home / "muster.db") as database:
            database.execute("UPDATE experiments SET artifacts = ? WHERE id = ?", (f"file://{tmp_path}", int(made)))
        database.close()
        (tmp_path / run / "artifacts").mkdir(parents=True)
        (tmp_path / run / "artifacts" / "there").write_text("of the server")
        where = {"run_uuid": run, "path": "x"}
        sent = people.mem.post("/ajax-api/2.0/mlflow/upload-artifact", params=where, content=b"x")
        assert sent.status_code == 400, sent.text
        assert below(tmp_path, "x") == []
        assert people.mem.get("/get-artifact", params={"run_id": run, "path": "there"}).status_code == 400
        people.mem.post(f"{API3}traces", json=trace(made, "tr-old")).raise_for_status()
        read = people.mem.get("/ajax-api/3.0/mlflow/get-trace-artifact", params={"request_id": "tr-old"})
        assert read.status_code >= 400

    def test_uploads_into_the_record_go_on(self, people: People) -> None:
        run = people.mem.post(f"{API}runs/create", json={"experiment_id": people.experiment})
        number = run.json()["run"]["info"]["run_id"]
        where = {"run_uuid": number, "path": "notes.txt"}
        sent = people.mem.post("/ajax-api/2.0/mlflow/upload-artifact", params=where, content=b"kept")
        assert sent.status_code == 200, sent.text
        assert people.mem.get("/get-artifact", params={"run_id": number, "path": "notes.txt"}).content == b"kept"


class TestTheGateway:
    def test_is_for_administrators(self, people: People) -> None:
        for path in ("/gateway/mlflow/v1/models", f"{API3}gateway/endpoints/list", f"{API}gateway-proxy"):
            assert people.mem.get(path).status_code == 404
        call = {"model": "x", "messages": []}
        for path in ("/gateway/mlflow/v1/chat/completions", "/gateway/proxy/x/y", "/gateway/x/mlflow/invocations"):
            assert people.mem.post(path, json=call).status_code == 404

    @pytest.mark.parametrize("begin", ["", "/"])
    @pytest.mark.parametrize("end", ["", "/", "%0A", "%0A%0A", "%00", "%7F"])
    def test_under_no_other_spelling(self, people: People, begin: str, end: str) -> None:
        token = people.server.post("/v1/tokens", {"name": "spelling", "user": "mem", "role": "member"})["token"]
        for path in ("/gateway/openai/v1/chat/completions", "/gateway/mlflow/v1/chat/completions", "/gateway/x"):
            with people.server.http(token) as http:
                answer = http.post(f"/mlflow{begin}{path}{end}", json={"model": "x", "messages": []})
            assert answer.status_code == (400 if "%" in end else 404), answer.text
            assert "%" not in end or "control character" in answer.json()["message"]
        for path in (f"{API3}gateway/secrets/list", "/ajax-api/3.0/mlflow/gateway/secrets/list"):
            assert right_for("GET", f"{begin}{path}") == "admin"
            assert right_for("GET", f"{path.replace('/gateway', '//gateway')}\n") == "admin"

    def test_keys_are_sealed_with_the_servers_own(self, people: People) -> None:
        body = {"secret_name": "llm", "secret_value": {"api_key": "sk-1234567890"}, "provider": "openai"}
        made = people.root.post(f"{API3}gateway/secrets/create", json=body)
        assert made.status_code == 200, made.text
        where = people.server.home / "mlflow.db"
        assert stat.S_IMODE(where.stat().st_mode) == 0o600
        assert not opens(where, "llm", "")

    def test_what_the_public_default_sealed_is_sealed_anew(self, tmp_path: Path) -> None:
        """A database from before: MLflow's own store makes it, with its own default."""
        where = tmp_path / "home" / "mlflow.db"
        where.parent.mkdir()
        script = (
            "import sys, warnings; warnings.simplefilter('ignore')\n"
            "from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore\n"
            "store = SqlAlchemyStore(f'sqlite:///{sys.argv[1]}', 'mlflow-artifacts:/')\n"
            "store.create_gateway_secret('old', {'api_key': 'sk-1234567890'}, provider='openai')\n"
        )
        subprocess.run([sys.executable, "-W", "ignore", "-c", script, str(where)], check=True, timeout=300)
        assert opens(where, "old", "")
        where.chmod(0o644)
        server = LiveServer(tmp_path / "home", load="mlflow_imports")
        server.start()
        try:
            with mlflow(server, server.token) as root:
                assert "old" in root.get(f"{API3}gateway/secrets/list").text
            assert not opens(where, "old", "")
            assert stat.S_IMODE(where.stat().st_mode) == 0o600
        finally:
            server.stop()


def test_webhooks_secrets_are_read_after_a_restart(tmp_path: Path) -> None:
    body = {"name": "told", "url": "https://8.8.8.8/x", "secret": "s3cret"}
    body |= {"events": [{"entity": "REGISTERED_MODEL", "action": "CREATED"}]}
    with live_server(tmp_path / "home") as server:
        with mlflow(server, server.token) as root:
            made = root.post(f"{API}webhooks", json=body)
            assert made.status_code == 200, made.text
        assert b"s3cret" not in (tmp_path / "home" / "mlflow.db").read_bytes()
        server.stop()
        server.start()
        with mlflow(server, server.token) as root:
            listed = root.get(f"{API}webhooks")
            assert listed.status_code == 200, listed.text
            assert [one["name"] for one in listed.json()["webhooks"]] == ["told"]


def opens(database: Path, name: str, passphrase: str) -> bool:
    """Whether a secret of the gateway can be opened with this; empty: with MLflow's public default."""
    script = (
        "import sqlite3, sys, warnings; warnings.simplefilter('ignore')\n"
        "from mlflow.utils import crypto\n"
        "row = sqlite3.connect(sys.argv[1]).execute(\n"
        "    'SELECT wrapped_dek, kek_version FROM secrets WHERE secret_name = ?', (sys.argv[2],)).fetchone()\n"
        "kek = crypto.KEKManager(sys.argv[3] or crypto.DEFAULT_KEK_PASSPHRASE, row[1]).get_kek()\n"
        "try:\n    crypto.unwrap_dek(row[0], kek); print('OPEN')\n"
        "except crypto.MlflowException:\n    print('SHUT')\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", script, str(database), name, passphrase]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return "OPEN" in ran.stdout


class TestAnswers:
    def test_pages_are_kept_to_themselves(self, people: People) -> None:
        page = people.vic.get("/")
        policy = page.headers["content-security-policy"]
        assert "script-src 'self' 'unsafe-eval';" in policy
        assert "frame-ancestors 'self'" in policy
        assert "object-src 'none'" in policy
        for part in page.text.split("<script")[1:]:
            assert part.partition(">")[0].count(" src="), "a script that stands in the page would not run"
        for path in ("/", "/api/2.0/mlflow/experiments/get?experiment_id=999999", "/nothing"):
            headers = people.mem.get(path).headers
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["x-frame-options"] == "SAMEORIGIN"
            assert headers["referrer-policy"] == "same-origin"
            assert "content-security-policy" in headers

    def test_so_are_musters_own(self, muster: LiveServer) -> None:
        with muster.http() as http:
            for answer in (
                http.get("/v1/jobs"),
                http.get("/v1/nothing"),
                http.get("/healthz"),
                http.post("/v1/runs", content=b"x" * (3 << 20)),
                http.post("/v1/runs", content=b"{"),
            ):
                assert answer.headers["x-content-type-options"] == "nosniff", answer
                assert answer.headers["x-frame-options"] == "DENY"

    def test_packed_spans_arrive_and_bombs_do_not(self, people: People) -> None:
        span = {"traceId": "0" * 31 + "1", "spanId": "0" * 15 + "1", "name": "packed", "startTimeUnixNano": "1"}
        sent = {"resourceSpans": [{"scopeSpans": [{"spans": [{**span, "endTimeUnixNano": "2"}]}]}]}
        headers = {"x-mlflow-experiment-id": people.experiment, "content-type": "application/json"}
        headers["content-encoding"] = "gzip"
        answer = people.mem.post("/v1/traces", content=gzip.compress(json.dumps(sent).encode()), headers=headers)
        assert answer.status_code == 200, answer.text
        answer = people.mem.post("/v1/traces", content=gzip.compress(bytes(64 << 20)), headers=headers)
        assert answer.status_code == 400
        assert "send fewer" in answer.json()["message"]

    @pytest.mark.parametrize("path", [f"{API}runs/create", f"{API}logged-models", f"{API3}traces", "/graphql"])
    def test_what_is_nested_without_end(self, people: People, path: str) -> None:
        kind = {"content-type": "application/json"}
        for body in (b'{"a":' * 100_000, b"[" * 100_000 + b"]" * 100_000, b"\xff\xfe{\0}\0"):
            answer = people.mem.post(path, content=body, headers=kind)
            assert (answer.status_code, answer.json()["error_code"]) == (400, "BAD_REQUEST")
