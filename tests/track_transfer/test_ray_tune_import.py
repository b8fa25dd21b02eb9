"""Results of Ray Tune, as the real one wrote them, and what is left of those of trials that were killed."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from muster.track.importers import IMPORTERS
from muster.track.importers.base import Ended, Facts, FoundRun, Item, LeftOut, Rows
from transfer_kit import FIXTURES

READER = IMPORTERS.get("ray-tune")


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    shutil.copytree(FIXTURES / "ray-tune-2.60", tmp_path / "results")
    return tmp_path / "results" / "exp"


def items(found: FoundRun) -> list[Item]:
    return list(READER.read(found))


def points(found: FoundRun, name: str) -> dict[int, float]:
    rows = [item for item in items(found) if isinstance(item, Rows) and name in item.names]
    return {
        step: values[row.names.index(name)] for row in rows for step, values in zip(row.steps, row.values, strict=True)
    }


def ended(found: FoundRun) -> Ended:
    (one,) = [item for item in items(found) if isinstance(item, Ended)]
    return one


def trial_folder(folder: Path, reports: list[dict[str, Any]], params: Any = None) -> Path:
    folder.mkdir(parents=True)
    (folder / "params.json").write_text(json.dumps({"lr": 0.1} if params is None else params))
    (folder / "result.json").write_text("".join(f"{json.dumps(one)}\n" for one in reports))
    return folder


def report(iteration: int, **values: float) -> dict[str, Any]:
    return {"training_iteration": iteration, "timestamp": 1.7e9 + iteration, "pid": 4, "done": False, **values}


def test_an_experiment_with_its_trials(experiment: Path) -> None:
    head, *trials = READER.find(experiment.parent)
    assert (head.name, len(trials), {one.parent for one in trials}) == ("exp", 4, {head.key})
    assert sorted(one.name for one in trials) == [f"f_7ea50_0000{number}" for number in range(4)]
    by_name = {one.name: one for one in trials}
    good, bad = by_name["f_7ea50_00000"], by_name["f_7ea50_00001"]
    (facts,) = [item for item in items(good) if isinstance(item, Facts)]
    assert facts.params == {"bad": False, "depth": 3, "lr": 0.1, "opt": {"betas": [0.9, 0.99], "name": "adam"}}
    assert facts.tags["ray_tune.status"] == "terminated"
    assert points(good, "loss") == pytest.approx({1: 0.1, 2: 0.2, 3: 0.3, 4: 0.4})
    assert points(good, "nested/a") == {1: 0, 2: 1, 3: 2, 4: 3}
    assert math.isnan(points(good, "acc")[1])
    names = {name for item in items(good) if isinstance(item, Rows) for name in item.names}
    assert names == {"loss", "acc", "nested/a", "time_total_s"}
    assert (ended(good).outcome, ended(bad).outcome) == ("succeeded", "failed")
    assert "broken on purpose" in ended(bad).detail
    assert "\x1b" not in ended(bad).detail
    assert all(head.created_at <= one.created_at <= ended(one).time <= ended(head).time for one in trials)


def test_a_trial_alone_belongs_to_the_same_experiment(experiment: Path) -> None:
    head, *trials = READER.find(experiment)
    for trial in trials:
        assert [one.key for one in READER.find(trial.path)] == [head.key, trial.key]


def test_the_table_is_read_if_there_is_nothing_else(experiment: Path) -> None:
    before = {one.name: points(one, "loss") for one in READER.find(experiment)[1:]}
    for path in experiment.glob("*/result.json"):
        path.unlink()
    found = READER.find(experiment)[1:]
    assert {one.name: points(one, "loss") for one in found} == before
    assert {name for item in items(found[0]) if isinstance(item, Rows) for name in item.names} >= {"acc", "nested/a"}


def test_without_the_state_of_the_experiment(experiment: Path) -> None:
    keys = [one.key for one in READER.find(experiment)]
    for path in experiment.glob("experiment_state-*"):
        path.unlink()
    found = READER.find(experiment)
    assert [one.key for one in found] == keys
    assert sorted(ended(one).outcome for one in found[1:]) == ["failed", "failed", "succeeded", "succeeded"]


def test_a_trial_that_still_runs_and_one_that_has_not_reported(experiment: Path) -> None:
    (state,) = experiment.glob("experiment_state-*")
    state.write_text(state.read_text().replace('\\"status\\": \\"TERMINATED\\"', '\\"status\\": \\"RUNNING\\"'))
    silent = next(experiment.glob("f_7ea50_00003*"))
    for name in ("result.json", "progress.csv"):
        (silent / name).unlink()
    by_name = {one.name: one for one in READER.find(experiment)[1:]}
    assert ended(by_name["f_7ea50_00000"]).detail == "it was running when it was imported"
    assert ended(by_name["f_7ea50_00003"]).outcome == "failed"
    assert not points(by_name["f_7ea50_00003"], "loss")


def test_the_newest_state_counts_and_a_change_is_of_one_trial(experiment: Path) -> None:
    before = {one.name: one.fingerprint() for one in READER.find(experiment)}
    (state,) = experiment.glob("experiment_state-*")
    docs = json.loads(state.read_text())
    docs["trial_data"] = [[half.replace('"ERROR"', '"PAUSED"') if "7ea50_00001" in half else half for half in one]
                          for one in docs["trial_data"]]  # fmt: skip
    (experiment / "experiment_state-2027-01-01_00-00-00.json").write_text(json.dumps(docs))
    after = {one.name: one.fingerprint() for one in READER.find(experiment)}
    assert {name for name in after if before[name] != after[name]} == {"f_7ea50_00001"}


def test_what_a_trial_reports_after_it_was_restored_counts(tmp_path: Path) -> None:
    reports = [report(n, loss=float(n)) for n in (1, 2, 3, 4)] + [report(n, loss=10.0 * n) for n in (3, 4, 5)]
    trial_folder(tmp_path / "exp" / "t", reports)
    found = READER.find(tmp_path)[1]
    assert points(found, "loss") == {1: 1.0, 2: 2.0, 3: 30.0, 4: 40.0, 5: 50.0}


def test_lines_that_were_cut_off_and_reports_that_make_no_sense(tmp_path: Path) -> None:
    folder = trial_folder(
        tmp_path / "exp" / "t", [report(1, loss=1.0), {"loss": 2.0}, report(2, loss=float("inf"))], []
    )
    with (folder / "result.json").open("a") as file:
        file.write('[1]\n{"training_iteration": 3, "lo')
    (found,) = READER.find(tmp_path)[1:]
    assert points(found, "loss") == {1: 1.0, 2: float("inf")}
    assert [item.what for item in items(found) if isinstance(item, LeftOut)] == [
        "the parameters of t, which are no JSON object", "a report without its iteration",
    ]  # fmt: skip


def test_metrics_that_are_not_reported_every_time(tmp_path: Path) -> None:
    trial_folder(tmp_path / "exp" / "t", [report(1, a=1.0), report(2, a=2.0, b=5.0), report(3, a=3.0)])
    found = READER.find(tmp_path)[1]
    assert (points(found, "a"), points(found, "b")) == ({1: 1.0, 2: 2.0, 3: 3.0}, {2: 5.0})
