"""The logbook: kept as written, found again, and exported as a document."""

from __future__ import annotations

import pytest

from muster.core.errors import Invalid, NotFound
from muster.store import record_tables as tables
from muster.store.insert import add
from muster.track.rows import note_row
from record_kit import Record


def test_entries_are_found_again(record: Record) -> None:
    logbook = record.track.logbook
    run = record.track.runs.create(project="p", user="ada", source="sdk", purpose="see").id
    text = "Lowered **lr** after the spike at 12k\n\n- 100 % sure_of it"
    made = logbook.add("p", run, "bob", text, attachments=["plot.png"], step=12_000)
    assert (made.text, made.doc, made.author) == (text, {"attachments": ["plot.png"], "step": 12_000}, "bob")
    logbook.add("p", "", "eve", "of the project")
    assert [entry.kind for entry in logbook.entries(run=run)] == ["purpose", "note"]
    assert [entry.author for entry in logbook.entries(project="p")] == ["ada", "bob", "eve"]
    assert [entry.id for entry in logbook.entries(project="p", search="SPIKE")] == [made.id]
    assert logbook.entries(project="p", search="00_%") == []
    assert [entry.id for entry in logbook.entries(run=run, search="100 %")] == [made.id]
    assert [entry.author for entry in logbook.entries(project="p", kinds=["note"], limit=1, last=True)] == ["eve"]
    assert logbook.entries(run=run, after=made.id) == []
    assert logbook.entries(project="q") == []


def test_a_mark_is_written_once(record: Record) -> None:
    logbook = record.track.logbook
    first = logbook.add("p", "", "muster", "the first", "alert", mark="m")
    assert logbook.add("p", "", "muster", "the second", "alert", mark="m") == first


@pytest.mark.parametrize(("text", "kind"), [("", "note"), (" \n", "note"), ("x" * 100_001, "note"), ("x", "rumour")])
def test_what_is_refused(light: Record, text: str, kind: str) -> None:
    with pytest.raises(Invalid):
        light.track.logbook.add("p", "", "ada", text, kind)


def test_a_run_that_is_gone_takes_no_notes(light: Record) -> None:
    with pytest.raises(NotFound):
        light.track.logbook.add("p", "nobody", "ada", "hello")


def test_the_document(record: Record) -> None:
    code = {"commit": "f" * 40, "dirty": True}
    job = record.submit("python train.py", purpose="a baseline", data=["c4-en@v3"], code=code)
    record.start(job)
    record.later(86_400)
    record.track.logbook.add("default", job, "bob", "lowered **lr**", attachments=[{"path": "a.png"}], step=12_000)
    run = record.track.runs.need(job)
    assert record.track.logbook.export(run=run) == (
        "# Logbook of train-1\n\n"
        "- **Project**: default\n- **Owner**: ada\n- **Purpose**: a baseline\n- **Command**: `python train.py`\n"
        "- **Code**: ffffffffffff with changes\n- **Data**: c4-en@v3\n- **Created**: 1970-01-01 00:16 UTC\n"
        "- **Started**: 1970-01-01 00:16 UTC\n- **Phase**: running\n- **Attempts**: 1\n\n"
        "## 1970-01-01\n\n"
        "### 00:16 · ada · purpose\n\na baseline\n\n"
        "### 00:16 · muster · start\n\nAttempt 1 runs on n0.\n\n"
        "## 1970-01-02\n\n"
        "### 00:16 · bob · step 12,000\n\nlowered **lr**\n\nAttached: `a.png`\n"
    )
    assert "### 00:16 · bob · train-1 · step 12,000" in record.track.logbook.export(project="default")


def test_a_long_one_is_whole(light: Record) -> None:
    rows = 2500
    for number in range(rows // 500):
        light.track.db.write(*(_added(light, 500 * number + one) for one in range(500)))
    assert light.track.logbook.export(project="p").count("### ") == rows


def _added(record: Record, number: int):
    row = note_row("p", "", float(number), "ada", "note", f"entry {number}")
    return lambda connection: add(connection, tables.notes, [row])
