"""A disk that fills up under the database, the spool and the logs: refused with a clear error, nothing lost, and over
when there is room again."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest

from components import small_disk
from live import LiveServer, live_server, until


def fill(folder: Path) -> Path:
    """Takes every byte that is left."""
    path = folder / "ballast"
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * size)
    assert shutil.disk_usage(folder).free == 0
    return path


@pytest.fixture
def small(tmp_path: Path):
    with small_disk(tmp_path / "disk", "24m") as disk, live_server(disk / "home") as server:
        yield disk, server


def test_a_full_disk_under_everything(small: tuple[Path, LiveServer], program, marks, tmp_path: Path) -> None:
    disk, server = small
    run = program(400, 0.005)
    job = server.submit(run, workdir=str(tmp_path))["id"]
    until(lambda: server.job(job)["progress"], "the first report")
    ballast = fill(disk)
    with server.http() as http:
        spec = {"spec": {"name": "later", "run": "true", "workdir": str(tmp_path)}}
        refused = until(lambda: (a := http.post("/v1/jobs", json=spec)).status_code == 503 and a, "a refusal")
        assert refused.json()["error"]["code"] == "unavailable"
        assert refused.json()["error"]["hint"]
        assert http.get("/v1/jobs").status_code == 200
    until(lambda: marks(ended=True), "the job to train on")
    ballast.unlink()
    done = server.wait(job)
    assert (done["phase"], done["attempt"]) == ("succeeded", 1)
    assert server.metric(job, "value")[1][0] == list(range(1, 401))
    assert server.output(job) == "".join(f"step {n}\n" for n in range(1, 401))
    assert server.wait(server.submit("echo again")["id"])["phase"] == "succeeded"
