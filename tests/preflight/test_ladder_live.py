"""The ladder on a real server: rungs as jobs, certificates, the rules that ask for them, and what is no evidence."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from live import LiveServer, call_muster, live_server
from muster.client import Client
from muster.core.errors import Invalid, NotAllowed, NotFound, Refused

PROGRAM = """
import random, time
from muster import runtime

done, loss = 0, 2.0
if folder := runtime.last_checkpoint():
    done, loss = (float(word) for word in (folder / "state").read_text().split())
total, saved = 100_000, time.time()
last = runtime.preflight_steps() or total
for step in range(int(done) + 1, last + 1):
    loss = 0.99 * loss
    time.sleep(0.01)
    runtime.report(step=step, loss=loss + random.Random(step).random(), val_loss=loss, samples_per_s=900 + step % 7)
    runtime.progress(step, total=total)
    due = time.time() - saved > (runtime.checkpoint_every() or 60)
    if due or runtime.should_stop() or step == last:
        saved = time.time()
        with runtime.checkpoint(step) as folder:
            (folder / "state").write_text(f"{step} {loss}")
    if runtime.should_stop():
        break
"""
CHECKED = """
import torch
from muster.train import preflight

def build():
    model = torch.nn.Linear(4, 2)
    return model, torch.optim.SGD(%s, lr=0.5)

def batch(number):
    x = torch.randn(16, 4, generator=torch.Generator().manual_seed(number))
    return {"x": x, "y": (x.sum(1) > 0).long()}

preflight.run_if_asked(build, batch, lambda model, b: torch.nn.functional.cross_entropy(model(b["x"]), b["y"]))
raise SystemExit("the training began")
"""


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("ladder") / "home", "--nodes", "2", "--cpus", "4") as server:
        yield server


@pytest.fixture
def client(live: LiveServer) -> Iterator[Client]:
    with Client(live.url, live.token) as made:
        yield made


def code_in(folder: Path, program: str, name: str = "job") -> str:
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(program)
    file = folder / "job.yaml"
    file.write_text(f"name: {name}\nworkdir: .\nrun: python train.py\nretry: {{backoff: 0s}}\n")
    return str(file)


def preflight(live: LiveServer, file: str, *words: str) -> tuple[int, dict[str, Any]]:
    done = call_muster("--home", str(live.home), "preflight", file, "--json", *words)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def findings(told: dict[str, Any], rung: str) -> dict[str, str]:
    (verdict,) = [one for one in told["verdicts"] if one["rung"] == rung]
    return {one["name"]: one["status"] for one in verdict["findings"]}


def test_a_program_without_a_hook_passes_what_needs_only_launching_and_watching(
    live: LiveServer, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = code_in(tmp_path, PROGRAM)
    levels = ("--level", "resume,smoke,canary")
    code, told = preflight(live, file, *levels)
    assert code == 0, json.dumps(told, indent=1)
    assert findings(told, "resume") == {"continues": "ok", "same": "ok"}
    assert findings(told, "smoke") == dict.fromkeys(("ends", "logs", "saves", "evaluates"), "ok")
    assert findings(told, "canary")["falls"] == "ok"
    (canary,) = [one for one in told["verdicts"] if one["rung"] == "canary"]
    low, middle, high = canary["full_run"]["hours"]
    assert canary["full_run"]["steps"] == 100_000
    assert 1000 / 3600 < low <= middle <= high  # a step sleeps for 10 ms at least
    assert client.job(canary["certificate"]["jobs"][0]).progress["step"] == 100

    # All of it holds: nothing runs again. With other code everything does, and with other data what reads them.
    assert preflight(live, file, *levels)[1]["verdicts"] == []
    plan = client.preflight_plan(file, data=["c4@v2"])
    assert {one["rung"]: one["changed"] for one in plan["rungs"] if one["last"]} == {
        "resume": [], "smoke": ["data"], "canary": ["data"],
    }  # fmt: skip
    code_in(tmp_path, f"{PROGRAM}# changed\n")
    plan = client.preflight_plan(file)
    assert all(one["certificate"] is None for one in plan["rungs"])
    assert {tuple(one["changed"]) for one in plan["rungs"] if one["last"]} == {("code",)}


def test_the_canary_is_held_to_the_throughput_of_the_job_file(live: LiveServer, client: Client, tmp_path: Path) -> None:
    file = code_in(tmp_path, PROGRAM, "planned")
    code, told = preflight(live, file, "--level", "canary", "-o", "preflight.throughput=2000")
    assert (code, findings(told, "canary")["throughput"]) == (1, "failed")
    # The jobs are no evidence for a job that plans less: what they were held to is a part of what they prove.
    failed = client.jobs(limit=1)[0].id
    with pytest.raises(Invalid, match="not the rung canary"):
        client.certify(file, "canary", [failed], preflight={"throughput": 950})
    code, told = preflight(live, file, "--level", "canary", "-o", "preflight.throughput=950")
    assert (code, findings(told, "canary")["throughput"]) == (0, "ok"), json.dumps(told, indent=1)
    plan = client.preflight_plan(file, preflight={"throughput": 990})
    assert {one["rung"]: one["changed"] for one in plan["rungs"] if one["last"]} == {"canary": ["scale"]}


def test_a_fault_is_survived_or_named(live: LiveServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = ("-o", "resources.memory=500MB")  # without one the kernel has to run out of memory
    file = code_in(tmp_path, f"text = open('data.txt').read()\n{PROGRAM}", "faults")
    (tmp_path / "data.txt").write_text("a line of text\n" * 10_000)
    code, told = preflight(live, file, "--level", "failure", *limit)
    assert code == 0, json.dumps(told, indent=1)
    survived = ("kill-rank", "full-disk", "damaged-checkpoint", "host-memory", "corrupt-sample", "server-unreachable")
    assert findings(told, "failure") == dict.fromkeys(survived, "ok")


def test_a_rule_refuses_what_has_no_certificate_and_an_admin_can_waive_it(
    live: LiveServer, client: Client, tmp_path: Path
) -> None:
    file = code_in(tmp_path, PROGRAM, "ruled")
    members = client.create_project("ruled"), client.set_member("ruled", "mia", "member")
    assert members
    client.create_queue("ruled", "ruled")
    client.set_rules("preflight: [{require: [smoke], projects: [ruled]}]")
    mine = {"project": "ruled", "queue": "ruled"}
    try:
        with pytest.raises(Refused, match="certificates of preflight") as caught:
            client.submit(file, **mine)
        assert "muster preflight JOB_FILE --level smoke" in str(caught.value.to_dict())
        with pytest.raises(Refused, match="certificates of preflight"):  # it is no rung
            client.submit(file, **mine, preflight={"throughput": 5})
        token = client.create_token("mia", "mia")["token"]
        with Client(live.url, token) as mia, pytest.raises((NotAllowed, NotFound)):
            mia.waive_preflight(file, ["smoke"], "I want to", **mine)
        (waiver,) = client.waive_preflight(file, ["smoke"], "a deadline", **mine)
        assert waiver["waived"]
        client.stop(client.submit(file, **mine).id, force=True)
        client.revoke_certificate(waiver["id"], "it was late enough")
        with pytest.raises(Refused):
            client.submit(file, **mine)
        code, told = preflight(live, file, "--level", "smoke", "-o", "project=ruled", "-o", "queue=ruled")
        assert (code, told["passed"]) == (0, True)
        client.stop(client.submit(file, **mine).id, force=True)
        code_in(tmp_path, f"{PROGRAM}#", "ruled")
        with pytest.raises(Refused, match="its code changed"):
            client.submit(file, **mine)
        client.set_rules("preflight: [{require: [smoke], projects: [ruled], action: warn}]")
        job = client.submit(file, **mine)
        assert "no certificate of smoke" in job.raw["warnings"][0]
        job.stop(force=True)
    finally:
        client.set_rules("{}")


def test_the_hook_runs_the_checks_instead_of_the_training(live: LiveServer, tmp_path: Path) -> None:
    good = code_in(tmp_path / "good", CHECKED % "model.parameters()")
    assert preflight(live, good, "--level", "unit")[0] == 0
    frozen = code_in(tmp_path / "bad", CHECKED % "[model.weight]")
    code, told = preflight(live, frozen, "--level", "unit")
    assert code == 1
    assert findings(told, "unit")["optimizer"] == "failed"


def test_a_program_that_offers_no_checks_is_told_how(live: LiveServer, tmp_path: Path) -> None:
    code, told = preflight(live, code_in(tmp_path, PROGRAM, "plain"), "--level", "unit")
    assert code == 1
    (finding,) = told["verdicts"][0]["findings"]
    assert finding["status"] == "unknown"
    assert "run_if_asked" in finding["hint"]


def test_what_is_no_evidence(client: Client, tmp_path: Path) -> None:
    """Jobs that were not the rung, ran other code, failed, or belong to others; and rungs that are no rungs."""
    file = code_in(tmp_path, "raise SystemExit(0)", "claims")
    plan = client.preflight_plan(file)
    smoke = next(one["job"] for one in plan["rungs"] if one["rung"] == "smoke")
    plain, rung = client.submit(file), client.submit(smoke)
    for job in (plain, rung):
        job.wait(60)
    with pytest.raises(Invalid, match="not the rung smoke"):
        client.certify(file, "smoke", [plain.id])
    with pytest.raises(Invalid, match="not the rung canary"):
        client.certify(file, "canary", [rung.id])
    with pytest.raises(Invalid, match="not the rung smoke"):
        client.certify(file, "smoke", [rung.id], run="python other.py")
    assert not client.certify(file, "smoke", [rung.id])["passed"]  # it reported nothing
    (tmp_path / "train.py").write_text(PROGRAM)
    with pytest.raises(Invalid, match="did not run the code"):
        client.certify(file, "smoke", [rung.id])
    client.create_project("others")
    with pytest.raises(Invalid, match="not the rung smoke"):
        client.certify(file, "smoke", [rung.id], project="others")
    for wrong in ({"max_duration": "2h"}, {"max_duration": None}, {"array": "1-9"}):
        with pytest.raises(Refused, match="a rung of preflight"):
            client.submit({**_data(file), "max_duration": "1m", "preflight": "smoke", **wrong})


def test_a_rung_starts_from_another_run_and_not_from_another_rung(client: Client, tmp_path: Path) -> None:
    file = code_in(tmp_path, PROGRAM, "begin")
    plan = client.preflight_plan(file)
    smoke = next(one["job"] for one in plan["rungs"] if one["rung"] == "smoke")
    first = client.submit(smoke)
    first.wait(60)
    with pytest.raises(Refused, match="the checkpoint of another rung"):
        client.submit(smoke, start_from=first.id)
    whole = client.submit(file, checkpoint="1s", max_duration="1m")
    while not whole.refresh().checkpoint:
        pass
    whole.stop()
    whole.wait(60)
    again = client.submit(smoke, start_from=whole.id)
    assert again.wait(60).phase == "succeeded"


def _data(file: str) -> dict[str, Any]:
    return {"name": "claims", "run": "true", "workdir": str(Path(file).parent)}
