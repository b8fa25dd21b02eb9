"""Diagnoses of real programs on a real server: a seeded fault is named first, a healthy program is called healthy."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import seeded_programs as programs

from exec_kit import client_of, muster
from live import LiveServer, live_server, until

LOOKS = 6
RECORDED = {
    "slow_loader": programs.SLOW_LOADER,
    "frequent_saves": programs.FREQUENT_SAVES,
    "divergence": programs.DIVERGENCE,
    "healthy": programs.HEALTHY,
    "healthy_evaluation": programs.HEALTHY_EVALUATION,
    "healthy_ddp": programs.HEALTHY_DDP,
}
SAMPLED = {
    "silent_loader": programs.SILENT_LOADER,
    "blocking_item": programs.BLOCKING_ITEM,
    "busy_after_start": programs.BUSY_AFTER_START,
    "slow_rank": programs.SLOW_RANK,
    "silent_compute": programs.SILENT_COMPUTE,
}
SPECS: dict[str, dict[str, Any]] = {
    "healthy_ddp": {"nproc": 2},
    "slow_rank": {"nproc": 2},
    "blocking_item": {"resources": {"accelerators": "H100:0.5"}},
    "busy_after_start": {"resources": {"accelerators": "H100:0.5"}},
}

Found = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    options = ("--accelerators", "H100:1")
    with live_server(tmp_path_factory.mktemp("diagnose"), *options, config="cpus = 16\n") as server:
        yield server


@pytest.fixture(scope="module")
def found(server: LiveServer) -> Found:
    """The diagnosis of every program. Those that are looked at run at the same time, and no longer than needed."""
    idle = [name for name in SAMPLED if name != "silent_compute"]
    jobs = {name: submitted(server, name) for name in (*idle, *RECORDED)}
    for name in idle:
        until(lambda name=name: "up" in server.output(jobs[name]), f"{name} to be up")
    jobs["silent_compute"] = submitted(server, "silent_compute")
    with client_of(server) as client:

        def looked(name: str) -> dict[str, Any]:
            assert list(client.sample(jobs[name], seconds=2.2 * LOOKS, looks=LOOKS)) == list(range(1, LOOKS + 1))
            until(lambda: client.diagnosis(jobs[name])["looks"] >= LOOKS - 1, f"the stacks of {name}")
            view = dict(client.diagnosis(jobs[name]))
            (server.home / name / "stop").touch()
            return view

        until(lambda: "up" in server.output(jobs["silent_compute"]), "the program that computes")
        with ThreadPoolExecutor(len(SAMPLED)) as pool:
            running = dict(zip(SAMPLED, pool.map(looked, SAMPLED), strict=True))
        assert [server.wait(jobs[name])["phase"] for name in jobs] == ["succeeded"] * len(jobs)
        return running | {name: dict(client.diagnosis(jobs[name])) for name in RECORDED}


def submitted(server: LiveServer, name: str) -> str:
    folder = server.home / name
    folder.mkdir()
    (folder / "train.py").write_text(programs.source({**RECORDED, **SAMPLED}[name]))
    warm = {"retry": {"warm": False}}  # none of them starts again
    spec = {"name": name.replace("_", "-"), "workdir": str(folder), **warm, **SPECS.get(name, {})}
    return str(server.submit(f"exec {sys.executable} train.py", **spec)["id"])


@pytest.mark.parametrize(
    ("name", "cause", "shown"),
    [
        ("slow_loader", "loader", "of the loop's time is waiting for data"),
        ("silent_loader", "loader", "__getitem__ at train.py:"),
        ("blocking_item", "synchronisation", "`.item()`"),
        ("slow_rank", "slow_rank", "rank 1 is most often in preprocess at train.py:"),
        ("frequent_saves", "saving", "20 saves of"),
        ("divergence", "divergence", f"grad_norm left its path at step {programs.DIVERGED_AT}"),
    ],
)
def test_a_seeded_fault_is_named_first(found: Found, name: str, cause: str, shown: str) -> None:
    view = found[name]
    assert view["outcome"] == "found", view
    first = view["findings"][0]
    assert first["cause"] == cause, view["findings"]
    assert shown in "\n".join(first["evidence"])
    assert view["verdict"] == first["text"]


@pytest.mark.parametrize("name", ["healthy", "healthy_ddp", "healthy_evaluation", "silent_compute", "busy_after_start"])
def test_a_healthy_program_is_called_healthy(found: Found, name: str) -> None:
    assert (found[name]["findings"], found[name]["outcome"]) == ([], "healthy"), found[name]


def test_the_page_has_the_verdict_first_and_json_is_the_answer(server: LiveServer, found: Found) -> None:
    lines = said(server, "slow-loader").splitlines()
    assert lines[1] == found["slow_loader"]["verdict"]
    assert lines[3].startswith("1. Loader (")
    assert "What was looked at:" in lines
    assert json.loads(said(server, "slow-loader", "--json")) == found["slow_loader"]


def test_a_run_that_is_over_has_no_more_looks(server: LiveServer, found: Found) -> None:
    with client_of(server) as client:
        assert list(client.sample(found["healthy"]["id"])) == []


def test_too_little_is_not_called_healthy(server: LiveServer, found: Found) -> None:
    job = server.submit("true", name="short")["id"]
    server.wait(job)
    view = server.get(f"/v1/runs/{job}/diagnosis")
    assert (view["outcome"], view["findings"]) == ("unknown", [])
    assert view["verdict"].startswith("Don't know")
    assert any("stacks" in line for line in view["missing"])


def said(server: LiveServer, *words: str) -> str:
    process = muster(server, "diagnose", *words, stdout=subprocess.PIPE)
    out, _ = process.communicate()
    assert process.returncode == 0
    return out.decode()
