"""Studies from Python on a real server: files, functions, trials that the program runs itself, and what is refused."""

from __future__ import annotations

import asyncio
import functools
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from live import PATIENCE, LiveServer, live_server, until
from muster import AsyncClient
from muster.client import Client, Study
from muster.client.study_file import read_study
from muster.client.study_function import function_job
from muster.client.unread import unread
from muster.core.errors import Invalid, MusterError, NotFound, Refused, SpecError
from muster.wire import TRIAL

TRAIN = """
import os
from muster import runtime

lr = float(os.environ["LR"])
for step in range(1, 4):
    runtime.report(step=step, loss=(lr - 0.5) ** 2 + 1 / step, lr=lr)
"""
STUDY = """
study: lr
job: train.yaml
space: {lr: {float: [0, 1]}}
objective: {minimize: loss}
search: random
budget: {trials: 3, parallel: 2}
"""
OUTSIDE: dict[str, Any] = {
    "study": "outside", "space": {"x": {"float": [0, 1]}}, "objective": {"minimize": "loss"}, "search": "random",
}  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("home")) as made:
        yield made


@pytest.fixture
def client(server: LiveServer) -> Iterator[Client]:
    with Client(home=server.home) as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "train.yaml").write_text("name: train\nrun: python train.py\nresources: {cpus: 1}\n")
    (tmp_path / "study.yaml").write_text(STUDY)
    return tmp_path


def _ended(study: Study) -> dict[str, int]:
    found = study.wait(PATIENCE)
    assert found["study"]["state"] == "ended"
    return {one["state"]: one["trials"] for one in found["states"]}


# --- starting ---------------------------------------------------------------------------------------------------------


def test_a_study_file_runs_to_its_winner(client: Client, folder: Path) -> None:
    study = client.tune(folder / "study.yaml", key="the-first")
    assert client.tune(folder / "study.yaml", key="the-first").id == study.id
    assert study.notes == []
    seen = [found["study"]["state"] for found in study.watch(every=0.05)]
    assert seen[-1] == "ended"
    assert _ended(study) == {"complete": 3}
    rows = study.trials()
    assert [one["number"] for one in rows] == [0, 1, 2]
    assert study.trials(state="failed") == []
    best = study.best()
    assert best is not None
    assert best["values"] == [min(row["values"][0] for row in rows if row["values"])]
    assert client.run(rows[0]["job"]).params == {"lr": str(rows[0]["params"]["lr"])}
    assert set(client.code(rows[0]["job"])["files"]) == {"study.yaml", "train.py", "train.yaml"}
    assert client.study("lr").id == client.study(rows[0]["job"]).id == study.id
    assert client.study_file(study.id)["text"] == STUDY
    report = study.report(folder / "report.html")
    assert "<svg" in (folder / "report.html").read_text()
    study.report(folder / "report.json")
    assert json.loads((folder / "report.json").read_text())["rows"] == json.loads(json.dumps(report["rows"]))
    assert client.studies(everything=True)[0]["id"] == study.id
    with pytest.raises(Invalid):
        study.report(folder / "nowhere" / "report.html")


def test_every_form_says_the_same(client: Client, folder: Path) -> None:
    written = {"space": {"lr": {"float": [0, 1]}}, "objective": {"minimize": "loss"}, "search": "random"}
    job = {"name": "train", "run": "python train.py", "workdir": str(folder), "resources": {"cpus": 1}}
    given: list[dict[str, Any]] = [
        client.check_study(folder / "study.yaml")["study"],
        client.check_study(STUDY, base=folder)["study"],
        client.check_study({**written, "study": "lr", "job": job, "budget": {"trials": 3, "parallel": 2}})["study"],
        client.check_study(job=folder / "train.yaml", name="lr", trials=3, parallel=2, **written)["study"],
        client.check_study(folder / "study.yaml", folder / "train.yaml", trials=3)["study"],
        client.check_study(folder / "study.yaml", space={"lr": {"float": (0, 1)}})["study"],
    ]
    for one in given:
        one["job"].pop("workdir")
        assert one == given[0]
    assert client.check_study(folder / "study.yaml", trials=7)["study"]["trials"] == 7
    changed = client.check_study(folder / "study.yaml", overrides={"num_nodes": "2", "envs": {"A": "b"}})
    assert changed["job"] is not None
    assert (changed["job"]["num_nodes"], changed["job"]["envs"]["A"]) == (2, "b")


def test_values_of_a_file_keep_their_kind_beside_arguments() -> None:
    text = 'space: {a: [1, 2.5, 3e-4, yes, "64", relu]}\nbudget: {until: 2 days, trials: 5}\n'
    made = json.loads(read_study(text, fields={"budget": {"parallel": 2}}).text)
    assert made["space"]["a"] == [1, 2.5, 3e-4, True, "64", "relu"]
    assert made["budget"] == {"until": "2 days", "trials": 5, "parallel": 2}


def test_every_mistake_is_told_at_once(client: Client, folder: Path) -> None:
    (folder / "train.yaml").write_text("run: python train.py\nnum_nodes: many\nresorces: {cpus: 1}\n")
    bad = STUDY.replace("float: [0, 1]", "log: [0, 1]").replace("minimize", "minimise")
    bad = bad.replace("trials: 3", "trials: x")
    with pytest.raises(SpecError) as raised:
        client.tune(bad, base=folder)
    where = [one.where.split(" ")[0] for one in raised.value.problems]
    assert {"space.lr.log", "objective.minimise", "budget.trials"} < set(where)
    told = str(raised.value)
    assert "train.yaml: num_nodes (line 2)" in told
    assert "train.yaml: resorces (line 3)" in told
    with pytest.raises(SpecError) as raised:
        client.tune(STUDY.replace("train.yaml", "nowhere.yaml"), base=folder)
    assert [one.where for one in raised.value.problems] == ["job (line 3)"]
    for given in (["a list"], 3, folder / "nowhere.yaml"):
        with pytest.raises((Invalid, NotFound)):
            client.tune(given)  # type: ignore[arg-type]
    assert client.studies() == []


def test_a_parameter_that_nothing_reads_is_told(client: Client, folder: Path) -> None:
    text = STUDY.replace("[0, 1]}}", "[0, 1]}, weight-decay: [0, 1], model.depth: [1, 2]}")
    (folder / "README.md").write_text("weight_decay and depth are explained here")
    given = read_study(text, base=folder, defaults=lambda place: {"workdir": str(place)})
    told = unread(given)
    assert [one.split("`")[1] for one in told] == ["weight-decay", "model.depth"]
    assert "WEIGHT_DECAY" in told[0]
    (folder / "conf").mkdir()
    (folder / "conf" / "model.toml").write_text("depth = 3\n")
    assert [one.split("`")[1] for one in unread(given)] == ["weight-decay"]
    changed = {"run": "python train.py --wd $WEIGHT_DECAY"}
    assert unread(read_study(text, base=folder, overrides={**changed, "workdir": str(folder)})) == []
    (folder / "train.py").unlink()
    (folder / "conf" / "model.toml").unlink()
    assert unread(given) == [], "the program is elsewhere"
    notes: list[str] = []
    (folder / "train.py").write_text(TRAIN)
    study = client.tune(text, base=folder, trials=1, on_note=notes.append)
    assert notes == study.notes
    assert len(notes) == 2
    assert _ended(study) == {"complete": 1}


# --- a function -------------------------------------------------------------------------------------------------------

PROGRAM = """
import sys
from muster import Client, runtime
from helper import SHIFT


def train(params):
    for step in range(1, 4):
        runtime.report(step=step, loss=99.0)
    return (params["x"] - SHIFT) ** 2


def both(params):
    return {"loss": params["x"], "memory": 2.0}


if __name__ == "__main__":
    with Client(home=sys.argv[1]) as client:
        space, usual = {"x": [0.25, 0.5]}, {"search": "random", "objective": "loss"}
        for function in (train, both):
            usual["constraints"] = ["memory < 5"] if function is both else None
            study = client.tune(function, {"resources": {"cpus": 1}}, space=space, **usual)
            print(study.wait(180)["states"][0]["state"], study.best()["values"], study.best()["extra"])
"""


def test_a_function_is_tuned_by_its_file_and_name(server: LiveServer, tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("SHIFT = 0.5\n")
    (tmp_path / "program.py").write_text(PROGRAM)
    job = server.submit(f"{sys.executable} program.py {server.home}", workdir=str(tmp_path), name="starts")
    assert server.wait(job["id"])["phase"] == "succeeded", server.output(job["id"])
    said = server.output(job["id"]).splitlines()
    assert said == ["complete [0.0] {}", "complete [0.25] {'memory': 2.0}"]
    with Client(home=server.home) as client:
        study = client.study("train-study")
        row = study.trials()[0]
        run = client.run(row["job"])
        assert list(run.curve("loss").last_step) == [1, 2, 3, 4]
        # The winner runs apart from its study, with its parameters.
        winner = study.promote(anyway=True, overrides={"name": "bigger"})
        assert winner.wait(PATIENCE).phase == "succeeded", server.output(winner.id)
        assert client.run(winner.id).metrics["loss"] == 0.0
        assert winner.tags["study"] == study.id


def _module_level(params: dict[str, Any]) -> float:
    return float(params["x"])


def _no_mapping() -> float:
    return 0.0


class _Holder:
    def method(self, params: dict[str, Any]) -> float:
        return 0.0


def test_what_has_no_file_and_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def local(params: dict[str, Any]) -> float:
        return 0.0

    made = function_job(_module_level, ["loss"], Path(__file__).parent, local=True)
    assert made["run"].endswith(f"-m muster.runtime.function {Path(__file__).name} _module_level --objective loss")
    outside = function_job(_module_level, ["loss"], tmp_path, local=False)
    assert outside["run"].startswith(f"python -m muster.runtime.function {__file__} ")
    typed: dict[str, Any] = {}
    exec(compile("def typed(params): return 0", "<stdin>", "exec"), typed)
    cases: list[tuple[Any, str]] = [
        (lambda params: 0.0, "it is a lambda"),
        (local, "inside of another function"),
        (_Holder.method, "it belongs to a class"),
        (functools.partial(_module_level), "it is a partial"),
        (typed["typed"], "it has no file"),
        (_no_mapping, "can't be called with one mapping"),
    ]
    for function, why in cases:
        with pytest.raises(Invalid, match=why):
            function_job(function, ["loss"], tmp_path, local=True)
    monkeypatch.setenv(TRIAL, "3")
    with pytest.raises(Invalid, match="while trial 3 loads"):
        function_job(_module_level, ["loss"], tmp_path, local=True)


# --- trials that somebody outside runs --------------------------------------------------------------------------------


def test_a_loop_goes_on_when_the_server_is_killed_in_the_middle(server: LiveServer) -> None:
    links: list[bool] = []
    with Client(home=server.home, on_link=links.append) as client:
        study = client.tune({**OUTSIDE, "study": "killed", "budget": {"trials": 4}})
        told: dict[int, float] = {}
        starting: list[threading.Thread] = []
        for trial in study.asked(every=0):
            x = float(trial.params["x"])
            trial.report(1, 1 + x)
            if trial.number == 1:
                server.kill()
                trial.report(2, 0.5 + x)  # nobody hears it, and the training goes on
                starting.append(threading.Thread(target=server.start))
                starting[0].start()
            trial.report(3, x)
            assert not trial.should_stop()
            if trial.number == 2:
                trial.tell({"loss": x, "memory": 3.0})
            elif trial.number == 3:
                trial.tell(x)
            told[trial.number] = x
        starting[0].join()
        assert False in links
        rows = study.trials()
        assert {one["number"]: one["values"] for one in rows} == {n: [x] for n, x in told.items()}
        assert [one["extra"].get("memory") for one in rows] == [None, None, 3.0, None]
        assert _ended(study) == {"complete": 4}
        assert list(study.asked()) == []


def test_a_lost_answer_a_left_loop_and_a_rule(client: Client) -> None:
    points = [{"x": 0.9}, {"x": 0.1}, {"x": 0.2}]
    rule = {"rule": "value > 0.5"}
    study = client.tune({**OUTSIDE, "enqueue": points, "stop": rule, "budget": {"trials": 3, "parallel": 2}})
    first = study.ask("one")
    assert study.ask("one") == first, "the answer was lost"
    assert study.ask("two")["number"] == 1
    assert study.ask("three")["number"] is None
    study.tell(1, outcome="lost")
    seen = []
    for trial in study.asked("one", every=0):
        seen.append((trial.number, trial.params["x"]))
        trial.report(1, float(trial.params["x"]))
        if trial.number == 0:
            assert trial.should_stop()
            assert "value > 0.5" in trial.note
        if trial.number == 3:
            break  # it is lost, and tried again
    assert seen[0] == (0, 0.9)
    for trial in study.asked():
        seen.append((trial.number, trial.params["x"]))
        trial.report(1, float(trial.params["x"]))
    rows = {one["number"]: (one["params"]["x"], one["state"]) for one in study.trials()}
    assert sorted(x for x, state in rows.values() if state == "complete") == [0.1, 0.2]
    assert rows[0] == (0.9, "stopped")
    assert sum(state == "lost" for _, state in rows.values()) == 2
    several = client.tune({**OUTSIDE, "objective": [{"minimize": "a"}, {"maximize": "b"}], "budget": {"trials": 1}})
    for trial in several.asked():
        with pytest.raises(Invalid, match="2 objectives"):
            trial.report(1, 0.5)
        trial.report(1, a=1.0, b=2.0)
        trial.tell([3.0, 4.0])
    assert several.trials()[0]["values"] == [3.0, 4.0]
    jobs = client.tune({**OUTSIDE, "job": {"run": "true"}, "budget": {"trials": 1}})
    with pytest.raises(Invalid, match="are jobs"):
        jobs.ask()
    with pytest.raises(MusterError):
        client.tell(several.id, 99, 1.0)


def test_the_asynchronous_client_does_the_same(server: LiveServer, folder: Path) -> None:
    async def main() -> None:
        async with AsyncClient(home=server.home) as client:
            study = await client.tune({**OUTSIDE, "study": "async", "budget": {"trials": 4, "parallel": 2}})

            async def loop() -> list[int]:
                done = []
                async for trial in study.asked():
                    await trial.report(1, trial.params["x"])
                    await trial.tell()
                    done.append(trial.number)
                return done

            one, other = await asyncio.gather(loop(), loop())
            assert sorted(one + other) == [0, 1, 2, 3]
            assert (await study.best())["values"] is not None
            jobs = await client.tune(folder / "study.yaml", trials=2)
            states = [found["study"]["state"] async for found in jobs.watch(every=0.05)]
            assert states[-1] == "ended"
            assert (await jobs.wait())["study"]["id"] == jobs.id
            assert len(await jobs.trials("complete")) == 2

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


# --- steering ---------------------------------------------------------------------------------------------------------

WAITS = """
import os, time
from muster import runtime

runtime.report(step=1, loss=float(os.environ["LR"]) + float(os.environ.get("SEED", 0)) / 1000)
while not os.path.exists("go") and not runtime.should_stop():
    time.sleep(0.02)
"""


def test_a_study_is_stopped_resumed_extended_changed_and_promoted(client: Client, folder: Path) -> None:
    (folder / "train.py").write_text(WAITS)
    study = client.tune(folder / "study.yaml", confirm={"top": 1, "seeds": 2})
    until(lambda: study.trials("running"), "a trial that runs")
    study.enqueue(lr=0.0)
    with pytest.raises(SpecError):
        study.enqueue({"lr": 7.0})
    with pytest.raises(Invalid):
        study.resume()
    study.stop()
    study.wait(PATIENCE)
    assert {one["state"] for one in study.trials()} == {"paused"}
    assert client.job(study.id).phase == "stopped"
    (folder / "go").touch()
    study.resume()
    assert _ended(study)["complete"] == 5  # with those that confirm
    told = study.extend(trials=4, parallel=1)
    assert told["changes"] == ["trials: 3 → 4", "parallel: 2 → 1"]
    assert _ended(study)["complete"] >= 6
    with pytest.raises(Invalid):
        study.extend()
    narrower = STUDY.replace("[0, 1]", "[0, 0.5]").replace("trials: 3", "trials: 4")
    seen = client.change_study(study.id, narrower, base=folder, dry_run=True)
    assert any(one.startswith("space.lr") for one in seen["changes"])
    assert not seen["applied"]
    with pytest.raises(Invalid, match="objective"):
        client.change_study(study.id, STUDY.replace("loss", "other"), base=folder)
    (folder / "train.yaml").write_text("name: train\nrun: python train.py\nresources: {cpus: 1, memory: 1MB}\n")
    same = STUDY.replace("trials: 3, parallel: 2", "trials: 4") + "confirm: {top: 1, seeds: 2}\n"
    assert client.change_study(study.id, same, base=folder, dry_run=True)["changes"] == [
        "job: another one; trials that run, or go on, keep theirs"
    ]
    best = study.best()
    assert best is not None
    assert best["params"]["lr"] == 0.0
    with pytest.raises(Invalid, match="trial 1 not was run"):
        study.promote(1)
    job = study.promote(overrides={"envs": {"SCALE": "4"}, "tags": {"mine": "yes"}})
    assert job.wait(PATIENCE).phase == "succeeded"
    spec = client.spec(job.id)["spec"]
    assert (spec["envs"]["LR"], spec["envs"]["SCALE"], spec["kind"]) == ("0.0", "4", "train")
    assert job.tags == {"study": study.id, "trial": str(best["number"]), "held_up": "unclear", "mine": "yes"}
    assert "over 2 seeds" in (job.purpose or "")
    assert client.study("lr").id == study.id
    with pytest.raises(NotFound):
        study.promote(77, anyway=True)
    with pytest.raises(Refused):
        study.promote(anyway=True, overrides={"queue": "nowhere"})
