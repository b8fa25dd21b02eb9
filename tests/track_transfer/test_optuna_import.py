"""Studies of Optuna as it keeps them itself, in databases and journals."""

from __future__ import annotations

import sqlite3
from datetime import datetime
from pathlib import Path

import optuna
import pytest
from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState, create_trial

from muster.core.errors import ConfigError
from muster.track.importers import IMPORTERS
from muster.track.importers.base import Ended, Facts, FoundRun, Item, LeftOut, Rows
from muster.track.importers.optuna import OptunaImporter

READER = IMPORTERS.get("optuna")


def journal(path: Path) -> BaseStorage:
    return JournalStorage(JournalFileBackend(str(path)))


def make_study(storage: BaseStorage | str, name: str = "lr") -> optuna.Study:
    """A trial of each kind: complete with and without reports, pruned, failed, running, waiting."""
    sampler = optuna.samplers.RandomSampler(1)
    study = optuna.create_study(storage=storage, study_name=name, direction="maximize", sampler=sampler)
    study.set_user_attr("team", "blue")
    for kind in ("reports", "plain", "pruned", "failed", "running"):
        trial = study.ask()
        trial.suggest_float("lr", 1e-5, 1e-1, log=True)
        trial.suggest_int("depth", 1, 4)
        trial.suggest_categorical("act", ["relu", None, True])
        trial.set_user_attr("note", {"a": [1]})
        for step in range(3) if kind in ("reports", "pruned") else ():
            trial.report(0.5 * step, 10 * step)
        if kind in ("reports", "plain"):
            study.tell(trial, 7.0 if kind == "plain" else 1.0)
        elif kind != "running":
            study.tell(trial, state=TrialState.PRUNED if kind == "pruned" else TrialState.FAIL)
    study.enqueue_trial({"lr": 0.5e-3})
    return study


def items(found: FoundRun) -> list[Item]:
    return list(READER.read(found))


def facts(found: FoundRun) -> Facts:
    (one,) = [item for item in items(found) if isinstance(item, Facts)]
    return one


def points(found: FoundRun, name: str) -> list[tuple[int, float]]:
    rows = [item for item in items(found) if isinstance(item, Rows) and item.names == (name,)]
    return [(step, values[0]) for row in rows for step, values in zip(row.steps, row.values, strict=True)]


def ended(found: FoundRun) -> Ended:
    (one,) = [item for item in items(found) if isinstance(item, Ended)]
    return one


def test_each_trial_is_told_as_it_was(tmp_path: Path) -> None:
    study = make_study(journal(tmp_path / "s.log"))
    head, *trials = READER.find(tmp_path / "s.log")
    assert (head.name, head.parent) == ("lr", "")
    assert [one.name for one in trials] == [f"lr[{number}]" for number in range(5)]
    assert {one.parent for one in trials} == {head.key}
    for one, trial in zip(trials, study.trials, strict=False):
        assert facts(one).params == trial.params
        assert {name: type(value) for name, value in facts(one).params.items()} == {
            name: type(value) for name, value in trial.params.items()
        }
        assert facts(one).tags["note"] == '{"a": [1]}'
        assert isinstance(trial.datetime_start, datetime)
        assert one.created_at == trial.datetime_start.timestamp()
        assert ended(one).time >= one.created_at
    assert [points(one, "value") for one in trials] == [
        [(0, 0.0), (10, 0.5), (20, 1.0)],  # it ended with what it reported last
        [(0, 7.0)],
        [(0, 0.0), (10, 0.5), (20, 1.0)],
        [],
        [],
    ]
    outcomes = [(ended(one).outcome, ended(one).detail) for one in trials]
    assert outcomes == [
        ("succeeded", ""), ("succeeded", ""), ("stopped", "pruned at step 20"), ("failed", ""),
        ("stopped", "it ran when it was imported"),
    ]  # fmt: skip


def test_the_study_tells_of_its_best_so_far(tmp_path: Path) -> None:
    make_study(journal(tmp_path / "s.log"))
    head = READER.find(tmp_path)[0]
    assert facts(head).tags == {"optuna.study": "lr", "optuna.trials": "2", "optuna.value": "maximize", "team": "blue"}
    assert points(head, "best.value") == [(0, 1.0), (1, 7.0)]
    assert LeftOut("1 trials of lr that had not begun") in items(head)
    assert ended(head).outcome == "succeeded"


def test_a_value_that_was_not_reported_is_the_last_of_its_curve(tmp_path: Path) -> None:
    study = optuna.create_study(storage=journal(tmp_path / "s.log"))
    trial = study.ask()
    trial.report(float("nan"), 4)
    study.tell(trial, 0.25)
    found = READER.find(tmp_path)[1]
    (step, value), last = points(found, "value")
    assert (step, str(value)) == (4, "nan")
    assert last == (5, 0.25)


def test_several_objectives_have_their_names(tmp_path: Path) -> None:
    study = optuna.create_study(storage=journal(tmp_path / "s.log"), directions=["minimize", "maximize"])
    study.add_trial(create_trial(values=[1.0, 2.0]))
    assert [points(READER.find(tmp_path)[1], name) for name in ("value_0", "value_1")] == [[(0, 1.0)], [(0, 2.0)]]
    with pytest.warns(optuna.exceptions.ExperimentalWarning):
        study.set_metric_names(["loss", "speed"])
    head, trial = READER.find(tmp_path)
    assert [points(trial, name) for name in ("loss", "speed")] == [[(0, 1.0)], [(0, 2.0)]]
    assert {name: facts(head).tags[f"optuna.{name}"] for name in ("loss", "speed")} == {
        "loss": "minimize", "speed": "maximize",
    }  # fmt: skip


def test_a_database_gives_what_a_journal_gives(tmp_path: Path) -> None:
    study = make_study(journal(tmp_path / "s.log"))
    address = f"sqlite:///{tmp_path}/s.db"
    optuna.copy_study(from_study_name="lr", from_storage=study._storage, to_storage=address)
    from_journal, from_file = READER.find(tmp_path / "s.log"), READER.find(tmp_path / "s.db")
    assert [one.key for one in from_file] == [one.key for one in from_journal]
    assert [items(one)[1:] for one in from_file] == [items(one)[1:] for one in from_journal]
    assert [one.key for one in OptunaImporter().find_at(address)] == [one.key for one in from_file]


def test_a_trial_that_has_ended_since_is_another_and_the_others_are_not(tmp_path: Path) -> None:
    study = make_study(journal(tmp_path / "s.log"))
    before = {one.name: one.fingerprint() for one in READER.find(tmp_path)}
    study.tell(4, 3.0)
    after = {one.name: one.fingerprint() for one in READER.find(tmp_path)}
    assert {name for name in after if before[name] != after[name]} == {"lr", "lr[4]"}


def test_studies_that_are_called_the_same_are_different_runs(tmp_path: Path) -> None:
    for name in ("a.log", "b.log"):
        make_study(journal(tmp_path / name))
    keys = [one.key for one in READER.find(tmp_path) if not one.parent]
    assert len(set(keys)) == 2


def test_an_empty_study_and_an_empty_storage(tmp_path: Path) -> None:
    optuna.create_study(storage=journal(tmp_path / "s.log"), study_name="none")
    (head,) = READER.find(tmp_path)
    assert ended(head) == Ended("succeeded", 0.0)
    optuna.storages.RDBStorage(f"sqlite:///{tmp_path}/empty.db")
    assert not READER.find(tmp_path / "empty.db")


def test_a_damaged_storage_is_said_to_be_one(tmp_path: Path) -> None:
    make_study(f"sqlite:///{tmp_path}/s.db")
    with sqlite3.connect(tmp_path / "s.db") as database:
        database.execute("UPDATE alembic_version SET version_num = 'v3.0.0.a'")
    database.close()
    with pytest.raises(ConfigError, match=r"s\.db.* can't be read: .*storage upgrade"):
        READER.find(tmp_path)
    (tmp_path / "s.log").write_text('{"op_code": 0, "worker_id": "x"}\nnonsense\n{}\n')
    with pytest.raises(ConfigError, match="can't be read"):
        READER.find(tmp_path / "s.log")
