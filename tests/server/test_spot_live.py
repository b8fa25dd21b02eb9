"""A spot machine that is taken away: the run saves within the notice, and goes on elsewhere from there."""

from __future__ import annotations

import sys
from pathlib import Path

from live import live_server, until

TRAIN = """
import time
from pathlib import Path
from muster import runtime
step = 0
if folder := runtime.last_checkpoint():
    step = int((folder / "step").read_text())
    print("goes on after", step, flush=True)
    raise SystemExit
print("up", flush=True)
while not runtime.should_stop():
    step += 1
    runtime.report(step=step, loss=1 / step)
    time.sleep(0.02)
while Path("notice").exists():  # both nodes of the test are one machine
    time.sleep(0.02)
with runtime.checkpoint(step) as folder:
    (folder / "step").write_text(str(step))
"""


def test_the_run_saves_within_the_notice_and_goes_on_elsewhere(tmp_path: Path) -> None:
    notice, home = tmp_path / "notice", tmp_path / "home"
    home.mkdir()
    (home / "policy.yaml").write_text("pools:\n  local: {spot: true}\n")
    (tmp_path / "train.py").write_text(TRAIN)
    config = f'nodes = 2\ncpus = 1\nspot_notices = "file:{notice}"\npolicy = "policy.yaml"\n'
    with live_server(home, config=config) as server:
        run = f"{sys.executable} train.py"
        job = server.submit(run, workdir=str(tmp_path), use_spot=True, resources={"cpus": 1})["id"]
        until(lambda: "up" in server.output(job), "the first steps")
        (before,) = server.job(job)["nodes"]
        notice.write_text("60")
        until(lambda: server.job(job)["phase"] == "stopping", "the notice to be seen")
        notice.unlink()
        assert server.wait(job)["phase"] == "succeeded"
        assert server.job(job)["nodes"] != [before]
        assert "goes on after" in server.output(job, attempt=2)
        (requeued,) = server.get("/v1/events", job=job, kind="job.requeued")["events"]
        assert (requeued["data"]["reason"]["code"], requeued["data"]["charge"]) == ("spot_notice", "preempted")
        assert "it saved step" in requeued["data"]["reason"]["message"]
        (node,) = [one for one in server.get("/v1/nodes")["nodes"] if one["name"] == before]
        assert (node["health"], node["why"]) == ("draining", "it is taken away (spot notice)")
