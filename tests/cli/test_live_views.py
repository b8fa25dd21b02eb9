"""`muster top JOB` and `muster watch RUN` on a live server."""

from __future__ import annotations

import sys
from typing import Any

from live import LiveServer, until

PROGRAM = """
import os, time
from muster import runtime
rank = int(os.environ["RANK"])
for step in range(1, 100_000):
    runtime.report(step=step if rank != 2 else 1 + step // 10, loss=1 / step, val_loss=2 / step)
    time.sleep(0.2)
"""


def test_the_rank_that_is_unlike_the_others_stands_out_and_curves_are_drawn(live: LiveServer, at_home: Any) -> None:
    job = live.submit(f"{sys.executable} -c '{PROGRAM}'", nproc=3, name="odd", resources={"cpus": 1})["id"]
    live.wait(job, "running")

    def odd() -> Any:
        found = at_home("top", job, "--json").json
        return found if [one["rank"] for one in found["ranks"] if one["unlike"]] == [2] else None

    found = until(odd, "the rank that is behind")
    assert "step" in found["ranks"][2]["unlike"][0]
    said = at_home("top", job, "--once").out
    assert "3 ranks" in said
    assert "the others" in said
    assert "val_loss  now" in at_home("watch", job, "--once").out
    assert at_home("watch", job, "--json").json["metrics"] == ["loss", "val_loss"]
    live.post(f"/v1/jobs/{job}/stop", {"force": True})
    live.wait(job, "stopped")
    assert "does not run" in at_home("top", job).err
