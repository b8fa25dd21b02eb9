"""Runs: made, changed and read back; parameters and tags keep what they were."""

from __future__ import annotations

import pytest

from muster.core.errors import Conflict, Invalid, NotFound
from record_kit import Record


class TestRuns:
    def test_a_run_is_read_back_as_it_was_made(self, record: Record) -> None:
        track = record.track
        made = track.runs.create(
            project="p", user="ada", name="First Try", source="sdk", params={"lr": 3e-4, "opt": {"name": "adam"}},
            tags={"task": "lm"}, purpose="see", doc={"code": {"commit": "abc", "dirty": True}},
        )  # fmt: skip
        assert made.id.startswith("first-try-")
        assert track.runs.get(made.id) == made
        assert (made.code_commit, made.code_dirty, made.phase) == ("abc", True, "running")
        assert track.runs.params([made.id, "no"]) == {made.id: {"lr": "0.0003", "opt.name": "adam"}, "no": {}}
        assert track.runs.tags([made.id]) == {made.id: {"task": "lm"}}
        assert list(track.runs.many([made.id, "no"])) == [made.id]
        assert record.notes(made.id) == [("purpose", "see")]

    def test_an_id_is_given_once(self, record: Record) -> None:
        record.track.runs.create(project="p", user="ada", source="mlflow", id="a" * 32)
        with pytest.raises(Conflict, match="already"):
            record.track.runs.create(project="p", user="ada", source="mlflow", id="a" * 32)
        for taken in ("train-17", "../x", "", "a b"):
            with pytest.raises(Invalid, match="id of a run"):
                record.track.runs.create(project="p", user="ada", source="sdk", id=taken)

    def test_its_end_is_noted(self, record: Record) -> None:
        runs = record.track.runs
        run = runs.create(project="p", user="ada", source="sdk").id
        record.later(60)
        ended = runs.update(run, actor="ada", phase="failed", name="again", doc={"a": 1})
        assert (ended.phase, ended.ended_at, ended.name, ended.doc) == ("failed", 1060.0, "again", {"a": 1})
        assert record.notes(run) == [("end", "Ended: failed.")]
        back = runs.update(run, actor="ada", phase="running", doc={"a": None})
        assert (back.ended_at, back.doc) == (None, {})

    def test_hiding_and_restoring(self, record: Record) -> None:
        runs = record.track.runs
        run = runs.create(project="p", user="ada", source="sdk").id
        assert runs.hide(run, "bob").deleted_at == 1000.0
        assert runs.hide(run, "bob").deleted_at == 1000.0
        assert runs.restore(run, "bob").deleted_at is None
        assert [text for _, text in record.notes(run)] == ["Hidden by bob.", "Restored by bob."]

    def test_the_phase_of_a_job_follows_the_job(self, light: Record) -> None:
        job = light.submit()
        with pytest.raises(Invalid, match="follows the job"):
            light.track.runs.update(job, actor="ada", phase="failed")
        with pytest.raises(NotFound):
            light.track.runs.update("nobody", actor="ada", name="x")


class TestValues:
    def test_a_changed_parameter_is_kept_as_a_change(self, record: Record) -> None:
        runs = record.track.runs
        run = runs.create(project="p", user="ada", source="sdk", params={"lr": "3e-4", "n": 1}).id
        runs.set_params(run, {"lr": 0.0003, "n": 1, "new": True}, actor="bob")
        assert runs.changes(run) == []
        record.later()
        runs.set_params(run, {"lr": 0.1, "n": "one"}, actor="bob")
        kept = [(c.space, c.key, c.old, c.new, c.actor, c.time) for c in runs.changes(run)]
        assert kept == [("params", "lr", "0.0003", "0.1", "bob", 1001.0), ("params", "n", "1", "one", "bob", 1001.0)]
        assert runs.params([run])[run] == {"lr": "0.1", "n": "one", "new": "True"}
        assert record.notes(run) == [("change", "Parameters changed:\n\n- `lr`: `0.0003` → `0.1`\n- `n`: `1` → `one`")]

    def test_mlflow_refuses_a_change(self, record: Record) -> None:
        runs = record.track.runs
        run = runs.create(project="p", user="ada", source="mlflow", params={"lr": "1"}).id
        runs.set_params(run, {"lr": "1"}, actor="ada", refuse_change=True)
        with pytest.raises(Conflict, match=r"'lr'.*'1' already; '2' was given"):
            runs.set_params(run, {"b": "3", "lr": "2"}, actor="ada", refuse_change=True)
        assert runs.params([run])[run] == {"lr": "1"}

    def test_tags_come_and_go(self, record: Record) -> None:
        runs = record.track.runs
        run = runs.create(project="p", user="ada", source="sdk", tags={"a": "1", "b": "2"}).id
        runs.set_tags(run, {"a": "x", "b": None, "c": "3", "never": None}, "bob")
        assert runs.tags([run])[run] == {"a": "x", "c": "3"}
        assert [(c.key, c.old, c.new) for c in runs.changes(run)] == [("a", "1", "x"), ("b", "2", None)]

    @pytest.mark.parametrize(
        ("params", "what"),
        [
            ({"k" * 251: 1}, "name of a parameter"),
            ({"": 1}, "name of a parameter"),
            ({"k": "v" * 8001}, "8,001 characters"),
            ({"k": "a\0b"}, "can't be stored"),
            ({"k\ud800": "a"}, "can't be stored"),
        ],
    )
    def test_what_can_not_be_kept_is_refused(self, light: Record, params: dict[str, object], what: str) -> None:
        run = light.track.runs.create(project="p", user="ada", source="sdk").id
        with pytest.raises(Invalid, match=what):
            light.track.runs.set_params(run, params, actor="ada")
        assert light.track.runs.params([run])[run] == {}

    def test_ten_thousand_at_once(self, record: Record) -> None:
        runs = record.track.runs
        run = runs.create(project="p", user="ada", source="sdk").id
        runs.set_params(run, {f"p{n}": n for n in range(10_000)}, actor="ada")
        assert runs.params([run])[run]["p9999"] == "9999"


class TestExperiments:
    def test_each_project_has_its_own(self, record: Record) -> None:
        experiments = record.track.experiments
        assert experiments.of_project("default") == 0
        own = experiments.of_project("vision")
        assert own == experiments.of_project("vision") != 0
        found = experiments.get(own)
        assert found is not None
        assert (found.name, found.project) == ("vision", "vision")
        assert [one.name for one in experiments.list(["default"])] == ["Default"]

    def test_a_name_is_given_once(self, record: Record) -> None:
        experiments = record.track.experiments
        one = experiments.create("speech", "vision", tags={"a": "b"})
        with pytest.raises(Conflict):
            experiments.create("speech", "other")
        assert experiments.of_project("speech") not in (one.id, 0)  # somebody else took the name first
        other = experiments.create("other", "vision")
        with pytest.raises(Conflict):
            experiments.rename(other.id, "speech")
        assert experiments.rename(other.id, "third").name == "third"

    def test_hiding_and_tags(self, record: Record) -> None:
        experiments = record.track.experiments
        one = experiments.create("speech", "vision", tags={"a": "b"})
        assert experiments.delete(one.id).deleted_at == 1000.0
        assert [found.id for found in experiments.list(hidden=True)] == [one.id]
        assert experiments.list() == []
        assert experiments.restore(one.id).deleted_at is None
        assert experiments.set_tags(one.id, {"a": None, "c": "d"}).tags == {"c": "d"}
        with pytest.raises(NotFound):
            experiments.delete(99)
