"""A node whose disk takes no large files: after its launcher died, a check finds it and takes the node out."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from live import LiveServer, call_muster, until

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
    by_hand_it_is_checked_too_and_its_history_has_all_of_it(narrow, node, job)


def by_hand_it_is_checked_too_and_its_history_has_all_of_it(narrow: LiveServer, node: str, job: str) -> None:
    env = {**os.environ, "MUSTER_HOME": str(narrow.home)}
    checked = call_muster("nodes", "check", node, "--json", env=env)
    assert checked.returncode == 1
    (found,) = json.loads(checked.stdout)["nodes"]
    assert {one["check"]: one["status"] for one in found["findings"]}["disk"] == "failed"
    record = narrow.get(f"/v1/nodes/{node}/history")
    kinds = [entry["kind"] for entry in record["entries"]]
    assert kinds == ["launcher_lost", "node_check_failed", "quarantined", "released", "node_check_failed"]
    assert record["failures"] == {"launcher_lost": 1, "node_check_failed": 2}
    assert [entry["job"] for entry in record["entries"]] == [job, job, "", "", ""]
    assert (record["entries"][-1]["actor"], record["next"]) == ("admin", None)
    assert "File too large" in record["entries"][-1]["text"]
    page = narrow.get(f"/v1/nodes/{node}/history", limit=2)
    older = narrow.get(f"/v1/nodes/{node}/history", limit=2, before=page["next"])
    assert [*older["entries"], *page["entries"]] == record["entries"][1:]
    shown = call_muster("nodes", "history", node, env=env)
    assert "launcher_lost" in shown.stdout
    with narrow.http(narrow.post("/v1/tokens", {"user": "eve"})["token"]) as stranger:
        others = stranger.get(f"/v1/nodes/{node}/history").json()["entries"]
        assert stranger.post(f"/v1/nodes/{node}/check").status_code == 403
    assert [entry["job"] for entry in others] == [""] * 5
    assert [entry["text"] for entry in others][:2] == ["a job of another project"] * 2
    assert {entry["actor"] for entry in others} == {""}
