"""Many workers on one study: no trial is lost or doubled, whatever happens to the server meanwhile."""

from __future__ import annotations

import json
import pickle
import zlib
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState
from workers_kit import finish, noted, open_named, workers

import muster
from live import LiveServer, until
from muster.client.optuna import Backend, Place
from muster.core.errors import Conflict, Unavailable


def check_sound(name: str, folder: Path, count: int) -> optuna.Study:
    study = optuna.load_study(study_name=name, storage="muster://")
    assert noted(folder) == list(range(count)), "each trial was run once"
    assert [one.number for one in study.trials] == list(range(count))
    assert {one.state for one in study.trials} == {TrialState.COMPLETE}
    assert all(one.value == one.params["x"] ** 2 == one.intermediate_values[1] for one in study.trials)
    return study


def test_sixteen_processes_share_a_study(tmp_path: Path) -> None:
    with workers(16, 8, tmp_path, open_named("sixteen")) as processes:
        finish(processes)
    check_sound("sixteen", tmp_path, 128)


def test_two_studies_of_one_journal_do_not_mix(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    with (
        workers(2, 10, folders[0], open_named("left")) as left,
        workers(2, 10, folders[1], open_named("right")) as right,
    ):
        finish([*left, *right])
    values = [{one.value for one in check_sound(name, tmp_path / part, 20).trials}
              for name, part in (("left", "a"), ("right", "b"))]  # fmt: skip
    assert not values[0] & values[1]


def test_the_server_is_killed_and_restarted_under_eight_workers(server: LiveServer, tmp_path: Path) -> None:
    with workers(8, 20, tmp_path, open_named("restarted")) as processes:
        for done in (20, 70, 120):
            until(lambda least=done: len(noted(tmp_path)) >= least, f"{done} trials")
            server.kill()
            server.start()
        finish(processes)
    check_sound("restarted", tmp_path, 160)


@pytest.mark.parametrize("place", ["store.after_commit", "store.before_commit"])
@pytest.mark.parametrize("arrival", [30, 47])
def test_an_append_whose_answer_is_lost_is_not_appended_twice(
    server: LiveServer, tmp_path: Path, place: str, arrival: int
) -> None:
    """A killed server had made the append durable, or not: the worker can't know."""
    name = f"lost-{place.rpartition('.')[2]}-{arrival}"
    server.stop()
    server.start(MUSTER_FAULT=f"{place}:{arrival}")
    with workers(3, 30, tmp_path, open_named(name, f"muster://?journal={name}")) as processes:
        server.wait_dead()
        server.start()
        finish(processes)
    study = optuna.load_study(study_name=name, storage=f"muster://?journal={name}")
    assert noted(tmp_path) == [one.number for one in study.trials] == list(range(90))
    # Every operation is there once: a study, and of each trial its creation, parameter, report and value.
    kinds = [(one["op_code"], one.get("trial_id")) for one in Backend(Place(journal=name)).read_logs(0)]
    told = [kind for kind in kinds if kind[1] is not None]
    assert len(told) == len(set(told)) == 270
    assert sum(op == 4 for op, _ in kinds) == 90


def test_a_worker_that_forks_does_not_share_its_trials(tmp_path: Path) -> None:
    """Optuna knows workers by process and thread, and a forked process has both from its parent."""
    study = open_named("forked")()
    with workers(6, 10, tmp_path, lambda: study) as processes:
        finish(processes)
    check_sound("forked", tmp_path, 60)


def test_a_worker_without_a_server_gives_up_when_it_was_told_to(server: LiveServer) -> None:
    storage = muster.optuna_storage(journal="impatient", retry_for=0.3)
    study = optuna.create_study(storage=storage)
    server.kill()
    with pytest.raises(Unavailable):
        study.ask()
    with pytest.raises(Unavailable):  # and one that begins does not wait at all
        muster.optuna_storage(journal="impatient")
    server.start()
    assert study.ask().number == 0


def test_a_deleted_study_and_a_deleted_journal(server: LiveServer) -> None:
    uri = "muster://?journal=gone"
    first, second = open_named("first", uri)(), open_named("second", uri)()
    first.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=3)
    optuna.delete_study(study_name="first", storage=uri)
    assert optuna.get_all_study_names(uri) == ["second"]
    with muster.Client() as client:
        assert "gone" in [one["name"] for one in client.optuna_journals()]
        client.delete_optuna_journal("gone")
        assert "gone" not in [one["name"] for one in client.optuna_journals()]
    third = open_named("third", uri)()  # makes it anew: an old worker must not write into it
    with pytest.raises(Conflict, match="was deleted while it was in use"):
        second.ask()
    assert optuna.get_all_study_names(uri) == ["third"]
    assert third.ask().number == 0


def test_values_that_json_has_no_word_for(server: LiveServer) -> None:
    uri = "muster://?journal=odd"
    study = open_named("odd", uri)()
    trial = study.ask()
    trial.suggest_categorical("c", [None, True, 1.5, "ü\n\0"])
    trial.report(float("nan"), 0)
    trial.report(float("-inf"), 1)
    trial.set_user_attr("text", "ü\n\0" * 100_000)
    study.tell(trial, float("inf"))
    (found,) = optuna.load_study(study_name="odd", storage=uri).trials
    assert found.value == float("inf")
    assert found.intermediate_values[1] == float("-inf")
    assert json.dumps(found.intermediate_values[0]) == "NaN"
    assert found.user_attrs["text"] == "ü\n\0" * 100_000
    assert found.params == trial.params


def test_a_snapshot_spares_the_replay_and_can_not_run_code(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("muster.client.optuna._SNAPSHOT_FROM", 100)
    uri = "muster://?journal=many"
    study = open_named("many", uri)()
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=210)
    read: list[int] = []
    plain = Backend._read
    monkeypatch.setattr(Backend, "_read", lambda self, after: read.append(after) or plain(self, after))
    storage = muster.optuna_storage(journal="many")
    assert read[0] > 300
    again = optuna.load_study(study_name="many", storage=storage)
    assert again.trials == study.trials

    evil = b"cos\nsystem\n(S'touch " + str(server.home / "evil").encode() + b"'\ntR."
    path = "/v1/projects/default/optuna/many/snapshot"
    with server.http() as http:
        asked = {"format": f"optuna-{optuna.__version__}", "logs": len(Backend(Place(journal="many")).read_logs(0))}
        assert http.put(path, params=asked, content=zlib.compress(evil)).status_code == 200
    del read[:]
    assert optuna.load_study(study_name="many", storage=muster.optuna_storage(journal="many")).trials == study.trials
    assert read[0] == 0
    assert "posix.system" in caplog.text or "os.system" in caplog.text
    assert not (server.home / "evil").exists()


def test_a_study_that_is_pickled_opens_its_storage_anew() -> None:
    """As joblib and Dask do it."""
    storage = muster.optuna_storage(journal="pickled")
    study = optuna.create_study(storage=storage, study_name="p")
    again = pickle.loads(pickle.dumps(study))
    again.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=2)
    assert len(study.trials) == 2
