"""A real Prometheus scrapes a live server and answers queries; the page has the names of the list, and opens to few."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from components import require
from live import LiveServer, live_server, stop_everything, until
from muster.monitor import families
from muster.monitor.alerts.export import grafana_dashboard, prometheus_rules
from muster.monitor.alerts.rule_file import default_rules, parse_alert_rules
from muster.server.prometheus.page import page as standby_page
from muster.server.prometheus.requests import Requests
from sample_kit import dcgm_page, exporter

HOW = "Install it: apt-get install prometheus prometheus-alertmanager."
OWN = ("server", "nodes", "devices")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A job runs on a node with an accelerator that a dcgm-exporter knows, and another one waits."""
    config = "accelerators = 'H100:1'\n"
    with exporter(dcgm_page()) as dcgm:
        made = LiveServer(tmp_path_factory.mktemp("home"), config=config, env={"MUSTER_DCGM_URL": dcgm.url})
        made.start()
        try:
            made.submit("sleep 600", resources={"accelerators": "H100:1"})
            made.submit("true", resources={"accelerators": "H100:1"}, name="waits")
            until(lambda: "DCGM_FI_DEV_GPU_UTIL" in page(made), "a sample of the accelerator")
            yield made
        finally:
            stop_everything(made)


def page(server: LiveServer, *parts: str) -> str:
    with server.http() as http:
        answer = http.get("/metrics", params={"part": list(parts)})
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        return answer.text


def samples(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            found.setdefault(one.name, []).append((one.labels, one.value))
    return found


def test_the_page_has_the_names_types_and_labels_of_the_list(server: LiveServer) -> None:
    known = {one.name: one for one in (*families.SERVER, *families.WORK, *families.MACHINE, *families.DEVICE)}
    known |= {one.name: one for one in families.DCGM}
    found = {}
    for family in text_string_to_metric_families(page(server)):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        if not name.startswith("process_"):
            found[name] = family
    assert set(found) == set(known)
    for name, family in found.items():
        assert (family.type, family.documentation) == (known[name].kind, known[name].help)
        labels = {label for one in family.samples for label in one.labels} - {"le"}
        assert labels <= set(known[name].labels)


def test_the_page_says_what_the_cluster_does(server: LiveServer) -> None:
    found = samples(page(server, "server"))
    assert found["muster_leader"] == [({}, 1.0)]
    assert ({"queue": "default", "phase": "running"}, 1.0) in found["muster_jobs"]
    assert ({"queue": "default", "phase": "queued"}, 1.0) in found["muster_jobs"]
    assert found["muster_jobs_waiting"] == [({"reason": "no_capacity"}, 1.0)]
    assert found["muster_accelerators"] == found["muster_accelerators_used"] == [({"pool": "local"}, 1.0)]
    assert found["muster_queue_delay_seconds_count"] == [({"queue": "default", "pool": "local"}, 1.0)]
    assert found["muster_nodes"] == [({"pool": "local", "health": "healthy"}, 1.0)]
    assert found["muster_nodes_blind"] == found["muster_devices_blind"] == [({"pool": "local"}, 0.0)]
    assert found["muster_ingest_batches_total"][0][1] > 0
    assert found["muster_tick_duration_seconds_count"][0][1] > 0
    routes = {labels["route"]: labels for labels, _ in found["muster_http_requests_total"]}
    assert (routes["/v1/jobs"]["method"], routes["/v1/jobs"]["status"]) == ("POST", "2xx")
    assert not [route for route in routes if "job-" in route or "waits-" in route], "templates, not paths"
    assert "muster_node_cpus" not in found
    assert [name for name in samples(page(server, "dcgm")) if not name.startswith("DCGM_")] == []


def test_a_server_that_does_not_lead_knows_of_itself_alone() -> None:
    found = samples(b"".join(standby_page(None, Requests(), ("server", "devices"))).decode())
    assert found["muster_leader"] == [({}, 0.0)]
    assert not [name for name in found if "job" in name or "node" in name or "event" in name]


def test_nobody_can_make_up_a_route(server: LiveServer) -> None:
    with server.http() as http:
        for number in range(20):
            http.get(f"/v1/made-up-{number}")
            http.request(f"MAKE{number}", f"/v1/made-up-{number}")
        http.get("/metrics", params={"part": "nonsense"})
    routes = [labels for labels, _ in samples(page(server, "server"))["muster_http_requests_total"]]
    assert len([labels for labels in routes if labels["route"] == "other"]) <= 4
    assert not [labels for labels in routes if "made-up" in str(labels) or "MAKE" in str(labels)]


@pytest.mark.component("prometheus")
def test_promtool_finds_nothing_to_correct(server: LiveServer) -> None:
    require("Prometheus", shutil.which("promtool") is not None, HOW)
    for parts, allowed in ((OWN, ""), (("dcgm",), "label names should be written in 'snake_case'")):
        text = page(server, *parts)
        checked = subprocess.run(["promtool", "check", "metrics"], input=text, text=True, capture_output=True)
        told = (checked.stdout + checked.stderr).splitlines()
        assert [line for line in told if not allowed or allowed not in line] == [], "dcgm-exporter's labels are its own"


@pytest.mark.component("prometheus")
def test_promtool_accepts_the_rules_and_the_dashboard_asks_for_what_there_is(tmp_path: Path) -> None:
    require("Prometheus", shutil.which("promtool") is not None, HOW)
    file = tmp_path / "rules.yml"
    file.write_text(prometheus_rules(default_rules(), "https://pages.example/runbooks/"))
    checked = subprocess.run(["promtool", "check", "rules", str(file)], text=True, capture_output=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "runbook_url: https://pages.example/runbooks/device-idle" in file.read_text()
    names = {one.name for one in (*families.SERVER, *families.WORK, *families.MACHINE, *families.DEVICE)}
    names |= {f"{one.name}_bucket" for one in (*families.SERVER, *families.WORK) if one.kind == "histogram"}
    asked = json.dumps(grafana_dashboard(default_rules())) + file.read_text()
    assert set(re.findall(r"\bmuster_[a-z_]+", asked)) <= names


def free_address() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


@contextmanager
def program(folder: Path, *command: str) -> Iterator[None]:
    with (folder / f"{command[0]}.log").open("wb") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    try:
        yield
    finally:
        running.terminate()
        running.wait(60)


@contextmanager
def prometheus(server: LiveServer, folder: Path, token: str, alertmanager: str) -> Iterator[str]:
    """A real one with its configuration as docs/prometheus.md has it, and the rules in force; its address."""
    address = free_address()
    (folder / "prometheus.token").write_text(token)
    with server.http() as http:
        rules = parse_alert_rules(http.get("/v1/alerts/rules").json()["text"])
    (folder / "muster-rules.yml").write_text(prometheus_rules(rules))
    (folder / "prometheus.yml").write_text(
        "global: {evaluation_interval: 1s}\n"
        "rule_files: [muster-rules.yml]\n"
        f"alerting: {{alertmanagers: [{{static_configs: [{{targets: ['{alertmanager}']}}]}}]}}\n"
        "scrape_configs:\n"
        "  - job_name: muster\n    scrape_interval: 1s\n    scrape_timeout: 1s\n"
        "    authorization: {credentials_file: prometheus.token}\n"
        f"    static_configs:\n      - targets: ['{server.url.removeprefix('http://')}']\n"
    )
    words = [f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}", "--log.level=warn"]
    with program(folder, "prometheus", *words, f"--web.listen-address={address}"):
        yield f"http://{address}"


@contextmanager
def alertmanager(folder: Path) -> Iterator[str]:
    """A real one without receivers; its address."""
    address = free_address()
    (folder / "alertmanager.yml").write_text("route: {receiver: none}\nreceivers: [{name: none}]\n")
    words = (f"--config.file={folder / 'alertmanager.yml'}", f"--storage.path={folder / 'alerts'}")
    with program(
        folder, "prometheus-alertmanager", *words, f"--web.listen-address={address}", "--cluster.listen-address="
    ):
        yield address


@pytest.mark.component("prometheus")
def test_a_real_prometheus_scrapes_it_and_answers(server: LiveServer, tmp_path: Path) -> None:
    """The rules in force are among what it scrapes; what fires under Muster reaches a real Alertmanager."""
    tools = ("prometheus", "prometheus-alertmanager")
    require("Prometheus", all(shutil.which(tool) is not None for tool in tools), HOW)
    waits = {"signal": "queue_wait", "above": "0s", "owner": "me", "runbook": "job-waits",
             "examples": {"fires": "1s", "quiet": "0s"}}  # fmt: skip
    with server.http() as http:
        body = {"name": "prometheus", "superuser": True, "role": "viewer"}
        token = http.post("/v1/tokens", json=body).json()["token"]
        applied = http.put("/v1/alerts/rules", json={"text": json.dumps({"rules": {"it-waits": waits}})})
        assert applied.status_code == 200, applied.text
    with (
        alertmanager(tmp_path) as alerts,
        prometheus(server, tmp_path, token, alerts) as url,
        httpx.Client(base_url=url, trust_env=False) as client,
    ):

        def ask(query: str) -> list[tuple[dict[str, str], float]]:
            try:
                answer = client.get("/api/v1/query", params={"query": query})
            except httpx.TransportError:
                return []
            result: list[Any] = answer.json()["data"]["result"] if answer.status_code == 200 else []
            return [(one["metric"], float(one["value"][1])) for one in result]

        ((labels, value),) = until(lambda: ask("muster_device_power_watts"), "a scrape")
        assert (labels["node"], labels["gpu"], value) == ("local-0", "0", 312.5)
        assert ask("up")[0][1] == 1
        assert ask("sum(DCGM_FI_DEV_GPU_UTIL)")[0][1] == 87
        assert ask("sum by (phase) (muster_jobs)")
        assert ask("histogram_quantile(0.9, muster_queue_delay_seconds_bucket)")
        until(lambda: ask("muster:accelerators:utilization"), "a recorded figure")

        def told() -> list[Any]:
            try:
                found = httpx.get(f"http://{alerts}/api/v2/alerts", trust_env=False).json()
            except httpx.TransportError:
                return []
            return [one for one in found if one["labels"]["alertname"] == "MusterItWaits"]

        (alert,) = until(told, "the alert")
        assert alert["labels"]["severity"] == "warning"
        assert alert["annotations"]["runbook"] == "job-waits"


def test_on_the_servers_own_machine_it_may_be_open_and_nothing_else_is(tmp_path: Path) -> None:
    with live_server(tmp_path / "home", config="metrics = 'loopback'\n") as server, server.http() as http:
        del http.headers["Authorization"]
        assert "muster_leader 1.0" in http.get("/metrics").text
        assert http.get("/v1/jobs").status_code == 401
        assert http.post("/metrics", content=b"x").status_code == 401
        for name in ("X-Forwarded-For", "Forwarded", "X-Real-IP"):
            assert http.get("/metrics", headers={name: "127.0.0.1"}).status_code == 401, "it came through a proxy"
        assert http.get("/metrics", headers={"Host": "elsewhere.example.org"}).status_code == 421
