"""Runs that a program reports below its own: once each, with their curves, and never left running."""

from __future__ import annotations

import math
from typing import Any

import pytest

from muster.track.rows import Run
from muster.wire import WorkerExit
from record_kit import Record


def child(ident: str, **fields: Any) -> dict[str, Any]:
    return {"type": "child", "id": ident, **fields}


def begin(ident: str, **fields: Any) -> dict[str, Any]:
    return child(ident, begin=True, **fields)


def run_of(record: Record, ident: str) -> Run:
    return record.track.runs.need(ident)


def curve(record: Record, run: str, name: str) -> list[tuple[int, float]]:
    found = record.track.metrics.points(run, name)
    return list(zip(found.step.tolist(), found.value.tolist(), strict=True))


@pytest.fixture
def job(record: Record) -> str:
    made = record.submit("python search.py", tags={"task": "tune"})
    record.start(made)
    return made


def test_a_child_is_a_run_with_its_parent(record: Record, job: str) -> None:
    record.report(job, begin("a1", name="trial 1", params={"lr": 1e-3, "opt": {"name": "adam"}}, tags={"kind": "tpe"}))
    record.report(job, child("a1", step=1, values={"loss": 0.5, "acc": "nan"}), child("a1", params={"late": True}))
    record.report(job, child("a1", step=2, values={"loss": "inf"}))
    made = run_of(record, f"{job}.a1")
    assert (made.name, made.parent, made.source, made.phase) == ("trial 1", job, "child", "running")
    parent = run_of(record, job)
    assert (made.project, made.user, made.experiment) == (parent.project, parent.user, parent.experiment)
    params = record.track.runs.params([made.id])[made.id]
    assert params == {"lr": "0.001", "opt.name": "adam", "late": "True"}
    assert record.track.runs.tags([made.id])[made.id] == {"kind": "tpe"}
    assert curve(record, made.id, "loss") == [(1, 0.5), (2, math.inf)]
    assert math.isnan(curve(record, made.id, "acc")[0][1])
    assert not record.track.metrics.series(job)
    record.report(job, child("a1", outcome="failed", detail="out of memory"))
    made = run_of(record, f"{job}.a1")
    assert (made.phase, made.doc["reason"]["message"]) == ("failed", "out of memory")
    assert made.ended_at is not None
    assert made.started_at is not None
    assert made.started_at <= made.ended_at


def test_all_of_a_child_in_one_batch(record: Record, job: str) -> None:
    reports = [child("t", step=step, values={"loss": float(step)}) for step in range(5)]
    record.report(
        job, begin("t"), *reports, child("t", outcome="succeeded"), begin("u"), child("u", step=0, values={"x": 1})
    )
    assert run_of(record, f"{job}.t").phase == "succeeded"
    assert run_of(record, f"{job}.u").phase == "running"
    assert [step for step, _ in curve(record, f"{job}.t", "loss")] == list(range(5))


def test_a_batch_that_comes_again_adds_nothing(record: Record, job: str) -> None:
    record.report(job, begin("t"), child("t", step=1, values={"loss": 1.0}))
    record.sent[(job, 1, 0, "spool")] = 0  # the launcher knows nothing of the answer
    record.report(job, begin("t"), child("t", step=1, values={"loss": 1.0}))
    assert curve(record, f"{job}.t", "loss") == [(1, 1.0)]


@pytest.mark.parametrize(("phase", "outcome"), [("succeeded", "stopped"), ("failed", "failed"), ("stopped", "stopped")])
def test_what_a_program_leaves_open_ends_with_it(record: Record, job: str, phase: str, outcome: str) -> None:
    record.report(job, begin("open"), begin("closed"), child("closed", outcome="succeeded"))
    record.end(job, 1, phase)
    assert run_of(record, f"{job}.open").phase == outcome
    assert run_of(record, f"{job}.open").ended_at == run_of(record, job).ended_at
    assert run_of(record, f"{job}.closed").phase == "succeeded"


def test_an_attempt_that_goes_on_with_a_child_takes_the_place_of_the_one_before(record: Record, job: str) -> None:
    record.report(job, begin("t"), *(child("t", step=step, values={"loss": 1.0}) for step in (1, 2, 3)))
    record.report(job, begin("done"), child("done", outcome="succeeded"))
    record.restart(job, 1)
    assert run_of(record, f"{job}.t").phase == "running"
    record.start(job, 2)
    record.report(job, begin("t"), child("t", step=2, values={"loss": 5.0}), attempt=2)
    record.report(job, child("t", step=4, values={"loss": 9.0}), attempt=1)  # what the first one had still to say
    assert curve(record, f"{job}.t", "loss") == [(1, 1.0), (2, 5.0)]
    assert run_of(record, f"{job}.t").attempts == 2
    record.report(job, begin("done"), attempt=2)
    assert run_of(record, f"{job}.done").phase == "running"


def test_what_makes_no_sense_is_a_problem_of_the_program(record: Record, job: str) -> None:
    record.report(
        job, child("../x", step=1, values={"loss": 1.0}), child("ok", step="one", values={"loss": 1.0}),
        child("ok", step=1, values={"loss": "much"}), child("ok", outcome="perfect"),
        child("ok", step=2, values={"": 1}), {"type": "child"}, child("good", step=3, values={"loss": 3.0}),
    )  # fmt: skip
    problems = run_of(record, job).problems
    assert len(problems) == 6
    assert all("a child run" in one for one in problems)
    assert record.track.runs.get(f"{job}.ok") is None
    assert curve(record, f"{job}.good", "loss") == [(3, 3.0)]


def test_a_run_of_somebody_else_is_not_written_to(record: Record, job: str) -> None:
    record.track.runs.create(id=f"{job}.mine", project="default", user="eve", source="sdk", name="mine")
    record.report(job, begin("mine", params={"lr": 1}), child("mine", step=1, values={"loss": 1.0}),
                  child("mine", outcome="failed"))  # fmt: skip
    found = run_of(record, f"{job}.mine")
    assert (found.user, found.parent, found.phase) == ("eve", None, "running")
    assert not record.track.runs.params([found.id])[found.id]
    assert not record.track.metrics.series(found.id)


def test_a_child_that_was_purged_does_not_come_back(record: Record, job: str) -> None:
    record.report(job, begin("t"), child("t", outcome="succeeded"))
    record.track.purge.purge(f"{job}.t", "ada")
    record.report(job, child("t", step=1, values={"loss": 1.0}))
    assert record.track.runs.get(f"{job}.t") is None


def test_a_script_outside_has_children_too(record: Record) -> None:
    made = record.track.runs.create(id="script-x", project="default", user="ada", source="sdk", name="script")
    record.report(made.id, begin("t"), begin("u"), child("u", outcome="failed"))
    record.report(made.id, exit=WorkerExit("succeeded", "completed", "", record.later()))
    assert run_of(record, "script-x").phase == "succeeded"
    assert [run_of(record, f"script-x.{one}").phase for one in "tu"] == ["stopped", "failed"]
