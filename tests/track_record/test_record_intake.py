"""What ranks report becomes part of the record, once, and by one designated writer."""

from __future__ import annotations

import hashlib
import io

import pytest
from sqlalchemy import select

from muster.core.errors import NotFound
from muster.store import record_tables as tables
from muster.wire import WorkerExit
from record_kit import Record

PACKAGES = {"torch": "2.11", "numpy": "2.0"}


def environment(**packages: str) -> dict[str, object]:
    python = {"version": "3.12.1", "executable": "/usr/bin/python", "prefix": "/usr"}
    return {
        "type": "environment",
        "python": python,
        "packages": {**PACKAGES, **packages},
        "devices": [],
        "host": {"name": "n0", "kernel": "6.1"},
        "env": {},
        "seeds": {},
    }


class TestDocuments:
    def test_points_parameters_tags_and_notes(self, record: Record) -> None:
        job = record.submit("python train.py --lr 3e-4")
        record.start(job)
        record.report(
            job,
            {"type": "params", "values": {"lr": 0.0003, "optim": {"name": "adam"}}},
            {"type": "tags", "values": {"stage": "warm", "odd": 7}},
            {"type": "note", "text": "lowered **lr**"},
            {"type": "note", "text": "  "},
            rows=[(0, 3.0), (1, 2.5)],
        )
        assert record.track.runs.params([job])[job] == {"lr": "0.0003", "optim.name": "adam"}
        assert record.track.runs.tags([job])[job] == {"stage": "warm", "odd": "7"}
        assert record.track.runs.changes(job) == []  # the same number, written otherwise
        assert record.notes(job)[-1] == ("note", "lowered **lr**")
        (attempt,) = record.track.runs.attempts(job)
        assert (attempt["first_step"], attempt["params"]["lr"], attempt["nodes"]) == (0, "0.0003", ["n0"])
        assert [one.name for one in record.track.metrics.series(job)] == ["loss"]

    def test_a_parameter_that_a_run_changes_is_told(self, record: Record) -> None:
        job = record.submit()
        record.start(job)
        record.report(job, {"type": "params", "values": {"lr": 1}})
        record.report(job, {"type": "params", "values": {"lr": 2}})
        assert [(c.key, c.old, c.new, c.attempt) for c in record.track.runs.changes(job)] == [("lr", "1", "2", 1)]
        assert record.notes(job)[-1] == ("change", "Parameter changed: `lr`: `1` → `2`")

    def test_what_changed_between_two_attempts_is_one_diff(self, record: Record) -> None:
        job = record.submit()
        record.start(job, 1)
        record.report(job, {"type": "params", "values": {"lr": 1, "n": 1}}, environment(), attempt=1)
        record.restart(job, 1)
        record.start(job, 2)
        record.report(job, {"type": "params", "values": {"lr": 2, "n": 1}}, attempt=2)
        record.report(job, environment(torch="2.12"), attempt=2, stream="host")
        told = [text for kind, text in record.notes(job) if kind == "change"]
        assert told == [
            "Attempt 2 differs from attempt 1:\n\n```diff\n--- attempt 1\n+++ attempt 2\n@@ -3 +3 @@\n"
            "-environment.packages.torch: 2.11\n+environment.packages.torch: 2.12\n@@ -5 +5 @@\n"
            "-params.lr: 1\n+params.lr: 2\n```"
        ]
        assert [(c.key, c.attempt) for c in record.track.runs.changes(job)] == [("lr", 2)]
        assert record.track.runs.need(job).doc["environment"]["packages"]["torch"] == "2.11"
        assert record.track.runs.attempts(job)[1]["environment"]["packages"]["torch"] == "2.12"

    def test_the_lowest_rank_writes_for_the_run(self, record: Record) -> None:
        job = record.submit(nproc=3)
        record.start(job)
        record.report(job, {"type": "params", "values": {"lr": 9, "only": 1}}, {"type": "note", "text": "hi"}, rank=1)
        assert record.track.runs.params([job])[job] == {"lr": "9", "only": "1"}
        record.report(job, {"type": "params", "values": {"lr": 1}}, {"type": "note", "text": "hi"}, rank=0)
        record.report(job, {"type": "params", "values": {"lr": 7, "x": 2}}, {"type": "note", "text": "hi"}, rank=2)
        assert record.track.runs.params([job])[job] == {"lr": "1", "only": "1", "x": "2"}
        assert [text for kind, text in record.notes(job) if kind == "note"] == ["hi"]
        alerts = [text for kind, text in record.notes(job) if kind == "alert"]
        assert len(alerts) == 1
        assert "disagree on parameters" in alerts[0]
        record.report(job, {"type": "note", "text": "hi"}, rank=0)
        assert [text for kind, text in record.notes(job) if kind == "note"] == ["hi", "hi"]

    def test_data_checkpoints_and_where_they_lead(self, record: Record) -> None:
        job = record.submit(data=["c4-en@v3"])
        record.start(job)
        record.report(
            job,
            {"type": "data", "name": "c4-en", "version": "v3", "role": "input", "digest": "d" * 64, "rows": 9},
            {"type": "data", "name": "clean", "role": "output", "uri": "s3://b/clean"},
            {"type": "checkpoint", "step": 40, "path": "/c/40", "bytes": 5, "world": 8, "load": "torch.load"},
        )
        record.follower.reach()
        with record.track.db.reading() as connection:
            rows = connection.execute(select(tables.links).order_by(tables.links.c.source, tables.links.c.target)).all()
            saved = connection.execute(select(tables.checkpoints)).one()
        assert [(r.source, r.target, r.role) for r in rows] == [
            ("data:c4-en@v3", f"run:{job}", "reads"),
            (f"run:{job}", f"checkpoint:{job}/40", "saves"),
            (f"run:{job}", "data:clean", "writes"),
        ]
        assert rows[0].doc == '{"digest":"' + "d" * 64 + '","rows":9}'
        assert (saved.step, saved.path, saved.bytes, saved.doc) == (40, "/c/40", 5, '{"world":8,"load":"torch.load"}')

    def test_media_and_artifacts_once(self, record: Record) -> None:
        job = record.submit()
        record.start(job)
        digest, _ = record.track.blobs.put(io.BytesIO(b"picture"), owner="project:default")
        absent = hashlib.sha256(b"absent").hexdigest()
        text = {"type": "media", "id": "1", "kind": "text", "name": "sample", "step": 3, "data": {"text": "hello"}}
        image = {"type": "media", "id": "2", "kind": "image", "name": "x", "step": 3, "digest": digest, "bytes": 7}
        kept = {"type": "artifact", "id": "3", "path": "plots/a.png", "digest": digest, "bytes": 7, "kind": "file"}
        lost = {**kept, "id": "4", "path": "lost.bin", "digest": absent}
        out = {**kept, "id": "5", "path": "../../etc/passwd"}
        record.report(job, text, text, image, kept, kept, lost, out, {**image, "id": "6", "digest": absent})
        record.report(job, text, image)
        with record.track.db.reading() as connection:
            media = connection.execute(select(tables.media).order_by(tables.media.c.id)).all()
        assert [(one.kind, one.name, one.step) for one in media] == [("text", "sample", 3), ("image", "x", 3)]
        assert [one.path for one in record.track.artifacts.list(job)] == ["plots/a.png"]
        problems = record.track.runs.need(job).problems
        assert any("lost.bin" in one and "never arrived" in one for one in problems)
        assert any("/etc/passwd" in one for one in problems)
        assert any("media x" in one for one in problems)
        assert record.track.runs.need(job).valid

    @pytest.mark.parametrize(
        "doc",
        [
            {"type": "params"},
            {"type": "params", "values": [1]},
            {"type": "tags", "values": {"a": {"b": 1}}},
            {"type": "data", "name": ""},
            {"type": "media", "kind": "smell", "name": "x", "step": 1},
            {"type": "media", "kind": "text", "name": "x", "step": 2**70},
            {"type": "checkpoint", "step": "last", "path": "p"},
            {"type": "artifact", "path": "a", "digest": "short", "bytes": 1},
            {"type": "unheard-of", "x": 1},
            {"type": "params", "values": {"k" * 9000: "v" * 90000}},
        ],
    )
    def test_nonsense_loses_nothing_else(self, light: Record, doc: dict[str, object]) -> None:
        job = light.submit()
        light.start(job)
        light.report(job, doc, {"type": "params", "values": {"good": 1}}, rows=[(0, 1.0)])
        assert light.track.runs.params([job])[job]["good"] == "1"
        assert [one.name for one in light.track.metrics.series(job)] == ["loss"]

    def test_a_delivery_that_is_repeated_changes_nothing(self, record: Record) -> None:
        job = record.submit()
        record.start(job)
        record.report(job, {"type": "note", "text": "once"}, rows=[(0, 1.0)])
        record.sent.clear()
        record.report(job, {"type": "note", "text": "once"}, rows=[(0, 1.0)])
        assert [text for kind, text in record.notes(job) if kind == "note"] == ["once"]
        assert record.track.metrics.series(job)[0].summary.points == 1


class TestRunsOutside:
    def test_its_end_is_the_workers(self, record: Record) -> None:
        run = record.track.runs.create(project="p", user="ada", source="sdk", phase="running").id
        record.report(run, {"type": "params", "values": {"a": 1}}, rows=[(0, 1.0)])
        ended = WorkerExit("failed", "user_error", "Traceback\nValueError: no", 1234.0, exit_code=1)
        reply = record.report(run, exit=ended)
        assert reply.done
        found = record.track.runs.need(run)
        assert (found.phase, found.ended_at, found.attempts) == ("failed", 1234.0, 1)
        assert found.doc["reason"]["message"] == "ValueError: no"
        assert record.notes(run) == [("end", "Failed: ValueError: no.")]
        record.report(run, exit=ended)
        assert len(record.notes(run)) == 1

    def test_another_attempt_goes_on(self, record: Record) -> None:
        run = record.track.runs.create(project="p", user="ada", source="sdk").id
        record.report(run, rows=[(0, 1.0)])
        record.report(run, rows=[(0, 1.0)], attempt=2)
        assert record.track.runs.need(run).attempts == 2
        late = WorkerExit("failed", "user_error", "", 1234.0)
        record.report(run, exit=late, attempt=1)
        assert record.track.runs.need(run).phase == "running"

    def test_who_is_not_known_is_not_heard(self, light: Record) -> None:
        with pytest.raises(NotFound):
            light.report("nobody", rows=[(0, 1.0)])

    def test_a_hidden_run_still_takes_in(self, light: Record) -> None:
        run = light.track.runs.create(project="p", user="ada", source="sdk").id
        light.track.runs.hide(run, "ada")
        light.report(run, {"type": "params", "values": {"a": 1}})
        assert light.track.runs.params([run])[run] == {"a": "1"}
