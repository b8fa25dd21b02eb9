"""A run whose loss breaks: the server sees it as points arrive, and the run's logbook says so."""

from __future__ import annotations

import sys
from pathlib import Path

from live import LiveServer, until

PROGRAM = """
from muster import runtime
for step in range(60):
    runtime.report(step=step, loss=2.0 + step % 3 / 100, accuracy=float("nan"))
for step in range(60, 70):
    runtime.report(step=step, loss=float("nan"))
"""


def test_the_logbook_says_that_the_loss_is_no_number(server: LiveServer, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    job = server.submit(f"{sys.executable} train.py", workdir=str(tmp_path), name="breaks")["id"]

    def alerts() -> list[str]:
        notes = server.get(f"/v1/runs/{job}/notes")["entries"]
        return [note["text"] for note in notes if note["kind"] == "alert"]

    assert until(alerts, "the alert") == ["Loss is nan at step 60; it was about 2.01 before."]
    assert server.wait(job)["phase"] == "succeeded"
    (event,) = server.get("/v1/events", job=job, kind="run.damaged")["events"]
    assert (event["data"]["metric"], event["data"]["step"], event["actor"]) == ("loss", 60, "muster")
    assert alerts() == ["Loss is nan at step 60; it was about 2.01 before."]
