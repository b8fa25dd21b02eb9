"""Diagnoses of real programs on a real server: a seeded fault is named first, a healthy program is called healthy."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import seeded_programs as programs

from exec_kit import client_of
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
    "slow_rank": programs.SLOW_RANK,
    "silent_compute": programs.SILENT_COMPUTE,
}
SPECS: dict[str, dict[str, Any]] = {
    "healthy_ddp": {"nproc": 2},
    "slow_rank": {"nproc": 2},
    "blocking_item": {"resources": {"accelerators": "H100:1"}},
}

Found = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    options = ("--accelerators", "H100:1")
    with live_server(tmp_path_factory.mktemp("diagnose"), *options, config="cpus = 16\n") as server:
        yield server


@pytest.fixture(scope="module")
def found(server: LiveServer) -> Found:
    """The diagnosis of every program; the programs run at the same time, and cost little but for two or three."""
    jobs = {name: submitted(server, name) for name in (*SAMPLED, *RECORDED)}
    with client_of(server) as client:
        for name in SAMPLED:
            until(lambda name=name: "up" in server.output(jobs[name]), f"{name} to be up")

        def looked(name: str) -> list[int]:
            return list(client.sample(jobs[name], seconds=2.2 * LOOKS, looks=LOOKS))

        with ThreadPoolExecutor(len(SAMPLED)) as pool:
            assert all(looks == list(range(1, LOOKS + 1)) for looks in pool.map(looked, SAMPLED))
        for name in SAMPLED:
            until(lambda name=name: client.diagnosis(jobs[name])["looks"] >= LOOKS - 1, f"the stacks of {name}")
        running = {name: dict(client.diagnosis(jobs[name])) for name in SAMPLED}
        for name in SAMPLED:
            (server.home / name / "stop").touch()
        assert [server.wait(jobs[name])["phase"] for name in jobs] == ["succeeded"] * len(jobs)
        return running | {name: dict(client.diagnosis(jobs[name])) for name in RECORDED}


def submitted(server: LiveServer, name: str) -> str:
    folder = server.home / name
    folder.mkdir()
    (folder / "train.py").write_text(programs.source({**RECORDED, **SAMPLED}[name]))
    spec = {"name": name.replace("_", "-"), "workdir": str(folder), **SPECS.get(name, {})}
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


@pytest.mark.parametrize("name", ["healthy", "healthy_ddp", "healthy_evaluation", "silent_compute"])
def test_a_healthy_program_is_called_healthy(found: Found, name: str) -> None:
    assert (found[name]["findings"], found[name]["outcome"]) == ([], "healthy"), found[name]
