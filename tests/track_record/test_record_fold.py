"""The event log folded into the record: what a job brings without a line of its own code."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from live import until
from muster.control.follow import Follower
from muster.core.attempt_events import AttemptRunning
from muster.core.errors import Unavailable
from muster.core.event import Event
from muster.core.payload import decode
from muster.core.reasons import reason
from muster.store import record_tables as tables
from muster.store.base import Entry
from record_kit import Record


def test_what_a_submission_says_is_captured(record: Record) -> None:
    code = {"commit": "f" * 40, "branch": "main", "dirty": True, "tree": "e" * 64, "notes": []}
    job = record.submit(
        "python -m trainer --lr $LR --steps=100 depth=4 --fp16", user="ada", name="gpt", purpose="a baseline",
        envs={"LR": "3e-4"}, tags={"task": "lm"}, data=["c4-en@v3"], code=code, kind="eval",
    )  # fmt: skip
    run = record.track.runs.need(job)
    assert (run.project, run.user, run.name, run.kind, run.source) == ("default", "ada", "gpt", "eval", "job")
    assert (run.phase, run.created_at, run.purpose, run.experiment) == ("queued", 1001.0, "a baseline", 0)
    assert (run.code_commit, run.code_branch, run.code_dirty, run.code_tree) == ("f" * 40, "main", True, "e" * 64)
    assert run.doc["spec"]["envs"] == {"LR": "3e-4"}
    assert run.doc["command"].startswith("python -m trainer")
    assert run.doc["code"] == code
    expected = {"lr": "3e-4", "steps": "100", "depth": "4", "fp16": "True"}
    assert record.track.runs.params([job])[job] == expected
    assert record.track.runs.tags([job])[job] == {"task": "lm"}
    assert links(record) == [("data:c4-en@v3", f"run:{job}", "reads")]
    assert record.notes(job) == [("purpose", "a baseline")]


def test_a_run_through_its_attempts(record: Record) -> None:
    job = record.submit()
    record.start(job, 1, ["n0", "n1"])
    record.saved(job, 400, "/c/400")
    record.restart(job, 1)
    assert record.track.runs.need(job).phase == "queued"
    record.start(job, 2)
    run = record.track.runs.need(job)
    assert (run.phase, run.attempts, run.started_at) == ("running", 2, 1003.0)
    record.end(job, 2)
    run = record.track.runs.need(job)
    assert (run.phase, run.ended_at, run.started_at) == ("succeeded", 1010.0, 1003.0)
    assert run.doc["reason"]["code"] == "completed"
    first, second = record.track.runs.attempts(job)
    assert (first["nodes"], first["outcome"], first["reason"]["code"]) == (["n0", "n1"], "failed", "node_lost")
    assert (second["from_step"], second["running_at"], second["ended_at"]) == (400, 1008.0, 1009.0)
    assert record.notes(job) == [
        ("start", "Attempt 1 runs on n0, n1."),
        ("restart", "Attempt 1 ended: the node went away. It starts again."),
        ("start", "Attempt 2 runs on n0, from step 400."),
        ("end", "Succeeded after 2 attempts: every rank ended with exit code 0."),
    ]
    assert (f"run:{job}", f"checkpoint:{job}/400", "saves") in links(record)


def test_preemption_stop_and_resume_are_told(record: Record) -> None:
    job = record.submit()
    record.start(job)
    why = reason("preempted").to_dict()
    record.events(record.of(job, "job.stopping", 1, reason=why, then="queued", grace=30.0))
    record.restart(job, 1, "preempted")
    found = record.store.job(job)
    assert found is not None
    stopped = reason("user_stop", "stopped by bob").to_dict()
    record.events(Event(decode("job.stopped", {"reason": stopped}), record.later(), "bob", "default", job, 1))
    ended = record.store.job(job)
    assert ended is not None
    assert record.track.runs.need(job).ended_at is not None
    data = {"doc": ended.to_doc(), "spec": ended.spec.model_dump(mode="json"), "reason": reason("resumed").to_dict()}
    record.events(Event(decode("job.resumed", data), record.later(), "eve", "default", job, 1))
    run = record.track.runs.need(job)
    assert (run.phase, run.ended_at) == ("queued", None)
    assert "reason" not in run.doc
    assert [kind for kind, _ in record.notes(job)] == ["start", "preemption", "restart", "end", "restart"]
    assert record.notes(job)[-1][1] == "Resumed by eve."


def test_a_late_report_changes_nothing(record: Record) -> None:
    job = record.submit()
    record.start(job)
    record.end(job, 1)
    before = record.notes(job)
    record.events(Event(AttemptRunning(), record.later(), "muster", "default", job, 1))
    assert record.track.runs.need(job).phase == "succeeded"
    assert record.notes(job) == before


def new_follower(record: Record) -> Follower:
    return Follower("record", record.track.fold.fold, record.store, record.commit)


def test_an_old_database_is_folded_from_its_first_event_and_once(record: Record) -> None:
    job = record.submit(purpose="why", data=["d"])
    record.start(job)
    record.end(job, 1)
    before = picture(record)
    again = new_follower(record)
    assert not again.reach()
    everything = [tables.runs, tables.notes, tables.links, tables.run_attempts, tables.run_params]
    record.track.db.write(*(clear(table) for table in everything))
    record.commit.submit(lambda state: Entry(marks={"record": 0})).result()
    anew = new_follower(record)
    assert anew.reach()
    assert picture(record) == before


def test_a_write_that_fails_is_done_again_and_nothing_twice(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    job = record.submit(purpose="why")
    write, calls = type(record.store)._write, []

    def failing(store: object, batch: object) -> None:
        """Once before anything is written, and once after all of it is: the answer got lost."""
        calls.append(batch)
        if len(calls) == 2:
            write(store, batch)
        raise Unavailable("The connection broke.")

    event = record.of(job, "checkpoint.committed", 1, step=1, path="/c/1", bytes=1, rank=0)
    record.commit.submit(lambda state: Entry([event])).result()
    why = reason("user_stop").to_dict()
    stopped = Event(decode("job.stopped", {"reason": why}), record.later(), "bob", "default", job, 0)
    record.commit.submit(lambda state: Entry([stopped])).result()
    with monkeypatch.context() as patch:
        patch.setattr(type(record.store), "_write", failing)
        for _ in range(2):
            with pytest.raises(Unavailable):
                record.follower.reach()
    record.follower.reach()
    assert [kind for kind, _ in record.notes(job)] == ["purpose", "end"]
    assert record.track.runs.need(job).phase == "stopped"


def test_a_thousand_jobs_are_folded(light: Record) -> None:
    for _ in range(40):
        events = []
        for _ in range(25):
            number = light.store.state().next_number + len(events)
            spec = {"name": "many", "run": f"python t.py --n {number}"}
            data = {"number": number, "name": "many", "queue": "default", "user": "a", "key": None, "spec": spec}
            events.append(Event(decode("job.submitted", data), light.later(), "a", "default", f"many-{number}"))
        light.commit.submit(lambda state, events=events: entry(events)).result()
    assert light.follower.reach()
    runs = [f"many-{n}" for n in range(1, 1001)]
    assert list(light.track.runs.many(runs)) == sorted(runs)
    assert light.track.runs.params(["many-77"])["many-77"] == {"n": "77"}


def test_what_a_run_starts_from_is_found(record: Record) -> None:
    first = record.submit()
    record.start(first)
    record.saved(first, 400, "/c/step-400")
    tuned = record.submit("python tune.py --init-from /c/step-400/model.pt")
    judged = record.submit(f"python eval.py --model checkpoint:{first}/400", kind="eval")
    assert (f"checkpoint:{first}/400", f"run:{tuned}", "starts_from") in links(record)
    assert (f"checkpoint:{first}/400", f"run:{judged}", "evaluates") in links(record)


def test_its_thread_folds_what_is_committed(light: Record) -> None:
    light.follower.start()
    try:
        job = light.submit()
        number = light.store.state().next_number
        data = {"number": number, "name": "x", "queue": "default", "user": "a", "key": None}
        data["spec"] = {"name": "x", "run": "true"}
        event = Event(decode("job.submitted", data), light.later(), "a", "default", "x-2")
        done = light.commit.submit(lambda state: entry([event])).result()
        light.follower.on_commit(done)
        until(lambda: light.track.runs.get("x-2"), "the fold")
        assert light.track.runs.get(job) is not None
    finally:
        light.follower.close()


def links(record: Record) -> list[tuple[str, str, str]]:
    table = tables.links.c
    with record.track.db.reading() as connection:
        rows = connection.execute(select(table.source, table.target, table.role).order_by(table.source, table.target))
        return [tuple(row) for row in rows]


def picture(record: Record) -> object:
    (run,) = [record.track.runs.need(one) for one in ("train-1",)]
    return run, record.track.runs.attempts("train-1"), record.notes("train-1"), links(record)


def clear(table):
    return lambda connection: connection.execute(table.delete())


def entry(events):
    return Entry(events)
