"""A node whose disk takes no large files: after its launcher died, a check finds it and takes the node out."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from live import LiveServer, until

# Neither the server nor a launcher may write files of more than 8 MiB.
SMALL_FILES = ("sh", "-c", 'ulimit -f 16384; exec "$0" "$@"')


@pytest.fixture
def narrow(tmp_path: Path) -> Iterator[LiveServer]:
    server = LiveServer(tmp_path / "home", config="nodes = 2\ncpus = 2\n", around=SMALL_FILES)
    server.start()
    yield server
    server.stop()


def test_a_node_with_a_faulty_disk_is_taken_out_and_released(narrow: LiveServer, tmp_path: Path) -> None:
    job = narrow.submit("touch up; sleep 600", workdir=str(tmp_path), retry={"backoff": 0})["id"]
    narrow.wait(job, "running")
    (node,) = narrow.job(job)["nodes"]
    (other,) = {"local-0", "local-1"} - {node}
    narrow.post(f"/v1/nodes/{other}/health", {"health": "draining"})  # it starts again where it was
    (launcher,) = narrow.home.glob(f"**/{job}*/**/launcher.json")
    os.kill(json.loads(launcher.read_text())["pid"], signal.SIGKILL)

    def quarantined() -> list[dict[str, str]]:
        return [one for one in narrow.get("/v1/nodes")["nodes"] if one["health"] == "quarantined"]

    (out,) = until(quarantined, "a failed check")
    assert "disk: " in out["why"]
    assert "File too large" in out["why"]
    codes = [one["reason"]["code"] for one in narrow.get(f"/v1/jobs/{job}/attempts")["attempts"] if one["reason"]]
    assert codes[:2] == ["launcher_lost", "node_check_failed"]
    assert node == out["name"]
    narrow.post(f"/v1/nodes/{other}/health", {"health": "healthy"})
    narrow.wait(job, "running")
    assert narrow.job(job)["nodes"] == [other]
    assert narrow.post(f"/v1/nodes/{node}/health", {"health": "healthy"})["health"] == "healthy"
    narrow.post(f"/v1/jobs/{job}/stop", {"force": True})
    narrow.wait(job)
