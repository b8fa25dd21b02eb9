"""Fields that a project requires: refused at submit, or marked, and looked at again at the end."""

from __future__ import annotations

import pytest

from muster.control.admission import Context
from muster.control.admission.required import check
from muster.core.entities import RulesInForce
from muster.core.event import Event
from muster.core.payload import decode
from muster.core.rules import ProjectRules, Rules
from muster.core.spec import JobSpec
from muster.core.state import State
from muster.wire import WorkerExit
from record_kit import Record


def context(require: tuple[str, ...], missing: str = "refuse") -> Context:
    rules = Rules(projects={"p": ProjectRules(require=require, missing=missing)})
    return Context(State(in_force=RulesInForce(rules, "")), "ada", lambda project, name: True, False)


def spec(run: str = "true", **fields: object) -> JobSpec:
    return JobSpec.model_validate({"name": "a", "run": run, "project": "p", **fields})


class TestAdmission:
    def test_each_is_named_with_how_to_give_it(self) -> None:
        found = check(spec(), context(("owner", "purpose", "data", "task", "tags.team", "seed", "code")))
        assert found is not None
        assert found.code == "required_missing"
        assert found.data["missing"] == ["purpose", "data", "task", "tags.team"]
        assert "purpose, data, task, tags.team" in found.message
        assert "`purpose`" in found.hint
        assert "`team`" in found.hint

    @pytest.mark.parametrize(
        ("job", "wanted"),
        [
            (spec(purpose="why"), "purpose"),
            (spec(data=["d"]), "data"),
            (spec(tags={"task": "lm"}), "task"),
            (spec(tags={"task": "lm"}), "tags.task"),
            (spec("python t.py --task lm"), "task"),
            (spec(), "owner"),
            (spec(), "seed"),  # only the run can bring it
        ],
    )
    def test_what_is_enough(self, job: JobSpec, wanted: str) -> None:
        assert check(job, context((wanted,))) is None

    def test_a_policy_that_marks_refuses_nothing(self) -> None:
        assert check(spec(), context(("purpose",), "mark")) is None

    def test_an_empty_tag_is_none(self) -> None:
        assert check(spec(tags={"task": ""}), context(("tags.task",))) is not None


class TestMarking:
    def test_a_job_is_judged_when_it_comes_and_when_it_ends(self, record: Record) -> None:
        require(record, "purpose", "seed", "task", "data", "code")
        job = record.submit("python t.py", purpose="why")
        run = record.track.runs.need(job)
        lacks = ("required: seed", "required: task", "required: data", "required: code")
        assert (run.valid, run.problems) == (False, lacks)
        record.start(job)
        record.report(job, {"type": "params", "values": {"seed": 1}}, {"type": "data", "name": "d", "role": "input"})
        record.track.runs.set_tags(job, {"task": "lm"}, "bob")
        assert record.track.runs.need(job).problems == ("required: code",)
        record.end(job, 1, "failed", "user_error")
        run = record.track.runs.need(job)
        assert (run.valid, run.problems) == (False, ("required: code",))

    def test_a_job_that_has_everything_is_valid(self, record: Record) -> None:
        require(record, "owner", "purpose", "seed", "code", "tags.task")
        code = {"commit": "f" * 40}
        job = record.submit("python t.py --seed 3", purpose="why", tags={"task": "lm"}, code=code)
        assert record.track.runs.need(job).valid
        assert record.track.runs.need(job).problems == ()

    def test_a_script_outside_is_judged_too(self, record: Record) -> None:
        require(record, "task")
        run = record.track.runs.create(project="default", user="ada", source="sdk").id
        assert not record.track.runs.need(run).valid
        record.report(run, {"type": "tags", "values": {"task": "lm"}})
        record.report(run, exit=WorkerExit("succeeded", "completed", "", 5.0))
        assert record.track.runs.need(run).valid

    def test_a_rule_that_is_gone_holds_no_more(self, record: Record) -> None:
        require(record, "task")
        run = record.track.runs.create(project="default", user="ada", source="sdk").id
        require(record)
        record.track.runs.update(run, actor="ada", phase="succeeded")
        assert (record.track.runs.need(run).valid, record.track.runs.need(run).problems) == (True, ())


def require(record: Record, *names: str) -> None:
    rules = Rules(projects={"default": ProjectRules(require=names)})
    data = {"rules": rules.model_dump(mode="json"), "text": ""}
    record.events(Event(decode("rules.set", data), record.later(), "ada"))
