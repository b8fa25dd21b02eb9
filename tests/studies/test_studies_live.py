"""Studies on a real server with real jobs: trials pause and go on, a killed server goes on with them, a stop holds
them."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from html_kit import check_page
from live import LiveServer, live_server, until
from muster.cli.tune_page import page

# A trial whose loss falls towards its own floor; it saves every third step and goes on from there.
PROGRAM = """
import json, os, sys, time
from pathlib import Path
from muster import runtime
assert runtime.trial_params() == json.loads(Path(os.environ["MUSTER_PARAMS_FILE"]).read_text())
lr, done = runtime.trial_params()["lr"], 0
if folder := runtime.last_checkpoint():
    done = json.loads((folder / "state.json").read_text())["done"]
for step in range(done + 1, 13):
    if lr > 0.9:
        sys.exit("too large")
    runtime.report(step=step, val_loss=abs(lr - 0.3) + 1 / step)
    while Path("hold").exists() and not runtime.should_stop():
        time.sleep(0.01)
    time.sleep(0.01)
    if step % 3 == 0 or runtime.should_stop():
        with runtime.checkpoint(step) as folder:
            (folder / "state.json").write_text(json.dumps({"done": step}))
    if runtime.should_stop():
        break
"""
SILENT = "from muster import runtime\nfor step in range(3): runtime.report(step=step, loss=1.0)\n"
STUDY = """
study: {name}
space: {{lr: {{float: [0, 1]}}}}
objective: {{minimize: val_loss}}
search: random
seed: 7
stop: {stop}
budget: {{trials: {trials}, parallel: 2}}
"""


def begin(server: LiveServer, name: str, program: str = PROGRAM, more: str = "", **given: Any) -> str:
    folder = server.home / name
    folder.mkdir()
    (folder / "train.py").write_text(textwrap.dedent(program))
    job = {"run": f"exec {sys.executable} train.py", "workdir": str(folder), "resources": {"cpus": 0.5}}
    job |= {"retry": {"warm": False}}
    text = STUDY.format(name=name, **{"stop": "fifo", "trials": 4, **given}) + more
    return str(server.post("/v1/studies", {"text": text, "job": job})["id"])


def ended(server: LiveServer, study: str) -> dict[str, Any]:
    def look() -> Any:
        found = server.get(f"/v1/studies/{study}")
        return found if found["study"]["state"] == "ended" else None

    found: dict[str, Any] = until(look, f"{study} to end")
    return found


def trials(server: LiveServer, study: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.get(f"/v1/studies/{study}/trials")["trials"]
    return found


def counts(found: dict[str, Any]) -> dict[str, int]:
    return {one["state"]: one["trials"] for one in found["states"] if one["trials"]}


def test_asha_pauses_promotes_and_finds_the_best(live: LiveServer) -> None:
    # The best come first: whichever of two reports first is paused, and is among the best when worse ones follow.
    points = ", ".join(f"{{lr: {0.3 + 0.05 * place:.2f}}}" for place in range(6))
    slow = PROGRAM.replace("time.sleep(0.01)\n    if step", "time.sleep(0.1)\n    if step")
    study = begin(live, "asha-live", slow, stop="{asha: {eta: 2}}", trials=6, more=f"enqueue: [{points}]\n")
    found = ended(live, study)
    rows = trials(live, study)
    assert sum(counts(found).values()) == 6
    assert found["best"]["state"] == "complete"
    assert found["best"]["values"] == [min(one["values"][0] for one in rows if one["state"] == "complete")]
    again = [one for one in rows if one["starts"] > 1]
    assert again, "no trial was paused and promoted"
    job = live.get(f"/v1/jobs/{again[0]['job']}")
    assert job["attempt"] == again[0]["starts"], "a promotion is one more attempt of the same run"
    attempts = live.get(f"/v1/jobs/{again[0]['job']}/attempts")["attempts"]
    assert attempts[1]["from_step"] is not None, "it went on from its checkpoint"
    run = live.get(f"/v1/runs/{again[0]['job']}")
    assert run["parent"] == study
    assert float(run["params"]["lr"]) == again[0]["params"]["lr"]
    whole = live.get(f"/v1/jobs/{study}")
    assert (whole["phase"], whole["reason"]["code"]) == ("succeeded", "completed")
    assert f"trial {found['best']['number']}" in whole["reason"]["message"]
    assert live.get(f"/v1/jobs/{study}[{again[0]['number']}]")["id"] == again[0]["job"]


def test_a_killed_server_goes_on_with_the_same_trials(tmp_path: Path) -> None:
    with live_server(tmp_path, "--cpus", "2") as server:
        study = begin(server, "killed", stop="{asha: {eta: 2}}", trials=8)
        for done in (2, 5):
            until(lambda done=done: len(trials(server, study)) >= done, f"{done} trials")
            server.kill()
            server.start()
        found = ended(server, study)
        rows = trials(server, study)
        assert [one["number"] for one in rows] == list(range(8))
        assert len({one["job"] for one in rows}) == 8, "no trial was started twice"
        jobs = server.get("/v1/jobs", parent=study, all=True, limit=100)["jobs"]
        assert sorted(job["id"] for job in jobs) == sorted(one["job"] for one in rows), "none was lost or doubled"
        assert {one["state"] for one in rows} <= {"complete", "stopped", "failed"}
        assert found["best"] is not None


def test_a_stop_holds_the_trials_and_a_resume_goes_on_with_them(live: LiveServer) -> None:
    study = begin_held(live, "stopped-study")
    until(lambda: len([one for one in trials(live, study) if one["state"] == "running"]) == 2, "two trials to run")
    live.post(f"/v1/jobs/{study}/stop", {})
    found = ended(live, study)
    held = [one["number"] for one in trials(live, study) if one["state"] == "paused"]
    assert held == [0, 1]
    assert (found["study"]["state"], live.get(f"/v1/jobs/{study}")["phase"]) == ("ended", "stopped")
    (live.home / "stopped-study" / "hold").unlink()
    live.post(f"/v1/studies/{study}/resume", {})
    found = ended(live, study)
    rows = trials(live, study)
    assert [one["number"] for one in rows] == [0, 1, 2, 3]
    assert [rows[number]["starts"] for number in held] == [2, 2]
    assert live.get(f"/v1/jobs/{study}")["phase"] == "succeeded"


def begin_held(live: LiveServer, name: str) -> str:
    """A study whose trials wait for a file to go."""
    study_program = PROGRAM.replace("lr > 0.9", "lr > 2")
    folder = live.home / name
    folder.mkdir()
    (folder / "hold").touch()
    (folder / "train.py").write_text(study_program)
    job = {"run": f"exec {sys.executable} train.py", "workdir": str(folder), "resources": {"cpus": 0.5}}
    text = STUDY.format(name=name, stop="fifo", trials=4)
    return str(live.post("/v1/studies", {"text": text, "job": job})["id"])


def test_an_objective_that_nobody_reports_is_said_after_the_first_trial(live: LiveServer) -> None:
    study = begin(live, "no-objective", SILENT, trials=50)
    found = ended(live, study)
    job = live.get(f"/v1/jobs/{study}")
    assert (job["phase"], job["reason"]["code"]) == ("failed", "objective_missing")
    assert "it reported loss" in job["reason"]["message"]
    assert sum(counts(found).values()) <= 4, "it did not try on"


def test_a_study_that_is_deleted_for_good_leaves_the_server(live: LiveServer) -> None:
    study = begin(live, "purged", trials=2)
    with live.http() as http:
        assert http.delete(f"/v1/runs/{study}", params={"purge": True}).status_code == 409  # it is not over
        ended(live, study)
        runs = [one["job"] for one in trials(live, study)]
        http.delete(f"/v1/runs/{study}", params={"purge": True}).raise_for_status()
        assert http.get(f"/v1/studies/{study}").status_code == 404
        assert http.get(f"/v1/studies/{study}/trials").status_code == 404
        assert study not in [one["id"] for one in http.get("/v1/studies").json()["studies"]]
        assert [http.get(f"/v1/runs/{run}").status_code for run in runs] == [200, 200]  # they are runs of their own


def test_a_study_all_of_whose_trials_fail_ends_with_the_reason(live: LiveServer) -> None:
    study = begin(live, "all-fail", "raise RuntimeError('no such data')", trials=50)
    ended(live, study)
    job = live.get(f"/v1/jobs/{study}")
    assert (job["phase"], job["reason"]["code"]) == ("failed", "trials_failed")
    assert "no such data" in job["reason"]["message"]
    assert len(trials(live, study)) <= 8


def test_winners_run_again_with_other_seeds(live: LiveServer) -> None:
    program = PROGRAM.replace("1 / step)", "1 / step + int(os.environ.get('SEED', 0)) / 1000)").replace(
        "lr > 0.9", "lr > 2"
    )
    study = begin(live, "confirmed", program, more="confirm: {top: 2, seeds: 2}\n")
    ended(live, study)
    rows = trials(live, study)
    assert [(one["origin"], one["seed"]) for one in rows[4:]] == [("confirm", 1), ("confirm", 2)] * 2
    best = sorted(rows[:4], key=lambda one: one["values"][0])[:2]
    assert {one["of"] for one in rows[4:]} == {one["number"] for one in best}
    report = live.get(f"/v1/studies/{study}/report")
    assert [one["seeds"] for one in report["confirmed"]] == [2, 2]
    assert report["confirmed"][0]["values"] == pytest.approx([best[0]["values"][0] + seed / 1000 for seed in (1, 2)]), (
        report["confirmed"]
    )
    assert report["verdict"]["better"] is not None
    assert {one["number"] for one in report["curves"] if one["measured"]} == {one["number"] for one in rows[:4]}
    words = " ".join(check_page(page(report)).text)
    assert report["verdict"]["text"][1:] in words
    assert f"trial {report['best']['number']}: lr " in words


class TestTrialsOutside:
    """Somebody else runs the trials: asks, reports and tells."""

    TEXT = "study: asked\nspace: {lr: [1, 2, 3, 4, 5]}\nobjective: {minimize: loss}\nsearch: random\nseed: 3\n"

    def test_until_no_point_is_left(self, live: LiveServer) -> None:
        study = live.post("/v1/studies", {"text": self.TEXT + "budget: {parallel: 2}"})["id"]
        seen: list[int] = []
        one, two = (live.post(f"/v1/studies/{study}/ask", {}) for _ in range(2))
        full = live.post(f"/v1/studies/{study}/ask", {})
        assert (full["number"], full["over"]) == (None, False)
        assert "parallel" in full["why"]
        for asked in (one, two):
            seen.append(asked["params"]["lr"])
            told = {"number": asked["number"], "values": [asked["params"]["lr"] / 2]}
            live.post(f"/v1/studies/{study}/tell", told)
            live.post(f"/v1/studies/{study}/tell", told)
        while (asked := live.post(f"/v1/studies/{study}/ask", {}))["number"] is not None:
            seen.append(asked["params"]["lr"])
            points = {"loss": [[1, 9.0], [2, asked["params"]["lr"] / 2]]}
            live.post(f"/v1/studies/{study}/tell", {"number": asked["number"], "points": points})
        assert asked["over"]
        assert sorted(seen) == [1, 2, 3, 4, 5], "each point once"
        found = ended(live, study)
        assert (found["best"]["values"], found["best"]["params"]) == ([0.5], {"lr": 1})
        assert live.get(f"/v1/jobs/{study}")["phase"] == "succeeded"

    def test_a_rule_ends_one_early(self, live: LiveServer) -> None:
        text = self.TEXT.replace("asked", "asked-asha") + "stop: {asha: {eta: 2}}\nbudget: {parallel: 3, trials: 3}"
        study = live.post("/v1/studies", {"text": text})["id"]
        numbers = [live.post(f"/v1/studies/{study}/ask", {})["number"] for _ in range(3)]
        words = [
            live.post(f"/v1/studies/{study}/report", {"number": number, "points": {"loss": [[1, loss]]}})["do"]
            for number, loss in zip(numbers, (1.0, 5.0, 0.5), strict=True)
        ]
        assert words == ["go", "stop", "go"]
        assert live.post(f"/v1/studies/{study}/report", {"number": 1, "points": {"loss": [[1, 0.0]]}})["do"] == "stop"
        bad = live.post(f"/v1/studies/{study}/report", {"number": 0, "points": {"loss": [[1, 1.0], [2, "NaN"]]}})
        assert bad["do"] == "stop"
        assert trials(live, study)[0]["state"] == "diverged"


def test_a_warm_start_uses_runs_and_the_good_region_of_another_study(live: LiveServer) -> None:
    first = begin(live, "small-one", PROGRAM.replace("lr > 0.9", "lr > 2"), trials=12)
    ended(live, first)
    best = sorted(trials(live, first), key=lambda one: one["values"][0])[:5]
    more = f"warm_start: study {first}\nwiden: 1.5\n"
    second = begin(live, "large-one", PROGRAM, more=more, trials=2)
    file = live.get(f"/v1/studies/{second}/file")
    low, high = (file["study"]["space"][0][name] for name in ("low", "high"))
    lrs = [one["params"]["lr"] for one in best]
    assert 0 <= low <= min(lrs) <= max(lrs) <= high < 1
    assert ended(live, second)["study"]["prior"] > 0
    assert all(low <= one["params"]["lr"] <= high for one in trials(live, second))
    third = begin(live, "by-query", PROGRAM, more=f"warm_start: runs where parent = '{first}'\n", trials=1)
    assert ended(live, third)["study"]["prior"] == 12


def test_a_changed_file_tells_its_differences_and_goes_on(live: LiveServer) -> None:
    study = begin(live, "changed", PROGRAM.replace("lr > 0.9", "lr > 2"), trials=2)
    ended(live, study)
    text = STUDY.format(name="changed", stop="{asha: {eta: 2}}", trials=4).replace("[0, 1]", "[0, 0.5]")
    told = live.post(f"/v1/studies/{study}/change", {"text": text, "dry_run": True})
    fits = sum(one["params"]["lr"] <= 0.5 for one in trials(live, study))
    assert (told["trials"], told["fits"], told["applied"]) == (2, fits, False)
    assert told["changes"] == [
        "space.lr: 0 to 1 → 0 to 0.5", "stop: fifo → asha (eta: 2)", "trials: 2 → 4",
    ]  # fmt: skip
    with live.http() as http:
        refused = http.post(f"/v1/studies/{study}/change", json={"text": text.replace("val_loss", "loss")})
    assert refused.status_code == 400
    assert "objective" in refused.json()["error"]["message"]
    live.post(f"/v1/studies/{study}/change", {"text": text})
    ended(live, study)
    rows = trials(live, study)
    assert len(rows) == 4
    assert all(one["params"]["lr"] <= 0.5 for one in rows[2:])
