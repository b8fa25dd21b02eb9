"""The goodput ledger of real runs: an end in the middle, a killed server, and sums that are what was held."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from live import LiveServer, call_muster, live_server, until
from muster.monitor.time_ledger import CLASSES

TRAIN = """
import os, sys, time
from pathlib import Path
from muster import runtime as m
with m.phase("build"):
    time.sleep(0.2)
with m.phase("load"):
    last = m.last_checkpoint()
start = int((last / "step").read_text()) if last else 0
m.phase("training")
for step in range(start + 1, 31):
    with m.phase("data"):
        time.sleep(0.005)
    time.sleep(0.02)
    m.report(step=step, loss=1.0 / step)
    if step == 10 and m.rank() == 0:
        with m.checkpoint(step) as folder:
            (folder / "step").write_text(str(step))
            time.sleep(0.2)
    if step == 20 and m.attempt() == 1:
        while not Path("go").exists():
            time.sleep(0.02)
        os._exit(3)  # not by a signal: after a killed rank that went further, nothing waits
with m.phase("evaluating"):
    time.sleep(0.2)
"""


@pytest.fixture
def server(tmp_path):
    with live_server(tmp_path / "home", "--nodes", "2", "--accelerators", "H100:2") as live:
        yield live


def held(server: LiveServer, ref: str) -> float:
    """Accelerator-seconds by the attempts alone."""
    attempts = server.get(f"/v1/jobs/{ref}/attempts")["attempts"]
    return sum(one["ended_at"] - one["planned_at"] for one in attempts) * 2  # one on each of two nodes


def test_a_run_that_failed_and_continued_adds_up_over_a_restart_of_the_server(server: LiveServer) -> None:
    Path(server.home / "train.py").write_text(TRAIN)
    job = server.submit(
        f"{sys.executable} train.py",
        num_nodes=2,
        resources={"accelerators": "H100:1"},
        retry={"backoff": "1s", "on": ["error"]},
    )
    ref = job["id"]
    until(lambda: (server.job(ref)["progress"] or {}).get("step") == 20, "step 20")
    (live,) = server.get("/v1/goodput", run=ref)["ledgers"]
    assert live["parts"]["training"] > 0
    assert sum(live["parts"].values()) == pytest.approx(live["held"], abs=1e-6)

    server.kill()
    server.start()
    Path(server.home / "go").touch()
    assert server.wait(ref)["phase"] == "succeeded"
    view = server.get("/v1/goodput", run=ref)
    (ledger,) = view["ledgers"]
    parts = ledger["parts"]
    assert (view["attempts"], ledger["unit"]) == (2, "accelerator")
    assert ledger["held"] == pytest.approx(held(server, ref), abs=1e-4)
    assert sum(parts.values()) == pytest.approx(ledger["held"], abs=1e-6)
    assert set(parts) == set(CLASSES)
    assert parts["starting.build"] >= 2 * 2 * 0.2  # two attempts on two nodes
    assert parts["saving"] >= 2 * 0.2
    assert parts["evaluating"] >= 2 * 0.2
    assert parts["data"] >= 2 * 40 * 0.005
    assert parts["done_again"] >= 2 * 9 * 0.02  # steps 11 to 20, up to the report of the last
    assert parts["training"] >= 2 * 30 * 0.02
    assert parts["lost"] > 0
    assert 0 < ledger["effective"] < ledger["training"] < 1
    assert ledger["waited"] >= 2 * 0.9  # the backoff is a second, on two nodes

    server.kill()  # what was folded before is the same, and nothing is counted twice
    server.start()
    assert server.get("/v1/goodput", run=ref)["ledgers"] == [ledger]
    assert server.get("/v1/goodput", project="default", since=86400)["ledgers"] == [ledger]
    nodes = sorted({node["name"] for node in server.get("/v1/nodes")["nodes"]})
    by_node = [server.get("/v1/goodput", node=node)["ledgers"][0] for node in nodes]
    for kind in CLASSES:
        assert sum(one["parts"][kind] for one in by_node) == pytest.approx(parts[kind], abs=1e-6)
    assert server.get("/v1/goodput", queue="none")["ledgers"] == []


def test_the_commands_show_it(server: LiveServer) -> None:
    Path(server.home / "train.py").write_text(TRAIN.replace("m.attempt() == 1", "False"))
    ref = server.submit(f"{sys.executable} train.py", resources={"accelerators": "H100:1"})["id"]
    server.wait(ref)
    env = {**os.environ, "MUSTER_HOME": str(server.home)}
    shown = call_muster("runs", "goodput", ref, env=env).stdout
    assert "starting.build" in shown
    assert "effective training time" in shown
    told = json.loads(call_muster("runs", "goodput", "--project", "default", "--json", env=env).stdout)
    assert told["ledgers"][0]["held"] > 0
    assert "of the held time trained; the largest loss: " in call_muster("status", ref, env=env).stdout
    assert "accelerator-seconds: launch" in call_muster("runs", "show", ref, env=env).stdout
    assert call_muster("runs", "goodput", "--project", "nobody", env=env).returncode != 0
