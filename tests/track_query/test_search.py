"""Questions asked of real databases: every operator on every kind of field, order, pages, views and saved queries."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from ask_kit import DAY, NOW, series_row, write_runs

from muster.core.errors import Invalid, NotFound
from muster.store import record_tables as tables
from muster.track.query import QueryError, parse_field
from muster.track.record_db import RecordDb
from muster.track.saved import SavedQueries
from muster.track.search import Search

ENV = {
    "python": {"version": "3.11.4"},
    "packages": {"torch": "2.13.0+cpu", "numpy": "2.4.6"},
    "image": "reg/train:7",
    "host": {"name": "node-a"},
}
A: dict[str, Any] = {
    "id": "gpt-small-1", "project": "language", "params": {"lr": 3e-4, "depth": 12, "flag": "True", "note": "a%b"},
    "metrics": {"val_loss": {"last": 2.0, "low": 1.5, "high": 9.0, "last_step": 400}, "acc": 0.5},
    "tags": {"task": "pretrain", "size": "7"}, "data": ["c4-en@v3"], "doc": {"environment": ENV},
    "code_commit": "abcdef0123", "code_branch": "main", "notes": ["Lowered lr after the spike at 12k"],
}  # fmt: skip
B: dict[str, Any] = {
    "id": "gpt-small-2", "project": "language", "user": "bob", "phase": "failed", "valid": False, "attempts": 3,
    "params": {"lr": "1e-3", "depth": "twelve"}, "metrics": {"val_loss": math.nan, "acc": math.inf},
    "tags": {"task": "Pretrain-2", "size": "12"}, "data": ["c4-en@v4", "wiki"], "created_at": NOW - 10 * DAY,
    "code_commit": "123456", "code_dirty": True,
    "doc": {"environment": {**ENV, "python": {"version": "3.9.1"}, "packages": {"torch": "2.6.0"}}},
}  # fmt: skip
C: dict[str, Any] = {
    "id": "vit-3", "project": "vision", "phase": "running", "ended_at": None, "started_at": NOW - 60,
    "created_at": NOW - 120, "experiment": 7, "params": {"lr": 0.1, "depth": 6}, "metrics": {"val_loss": 3.0},
    "purpose": "Größe der Modelle", "source": "sdk", "parent": "gpt-small-1", "data": ["c4-en"],
}  # fmt: skip
D: dict[str, Any] = {"id": "empty-4", "project": "vision", "phase": "queued", "started_at": None, "ended_at": None}
LETTERS = {"gpt-small-1": "A", "gpt-small-2": "B", "vit-3": "C", "empty-4": "D"}
QUERIES = [
    ("", "ABCD"),
    ("metrics.val_loss < 2.1", "A"),
    ("metrics.val_loss >= 2", "AC"),
    ("metrics.val_loss != 2", "BC"),
    ("not metrics.val_loss = 2", "BCD"),
    ("metrics.val_loss = nan", "B"),
    ("metrics.val_loss != nan", "AC"),
    ("metrics.val_loss in (2, 3)", "AC"),
    ("metrics.val_loss not in (2, nan)", "C"),
    ("metrics.acc > 1e308", "B"),
    ("metrics.acc = inf", "B"),
    ("metrics.val_loss.min <= 1.5", "A"),
    ("metrics.val_loss.max = 9", "A"),
    ("metrics.val_loss.step = 400", "A"),
    ("metrics.val_loss.nans > 0", "B"),
    ("has metrics.val_loss", "ABC"),
    ("metrics.val_loss not exists", "D"),
    ("params.lr >= 3e-4", "ABC"),
    ("params.lr = 0.0003", "A"),
    ("params.lr = 0.001", "B"),
    ("params.lr = '0.001'", ""),
    ("params.lr = '1e-3'", "B"),
    ("params.lr != 0.001", "AC"),
    ("params.depth < 100", "AC"),
    ("params.depth = twelve", "B"),
    ("params.depth != 12", "BC"),
    ("params.depth in (6, twelve)", "BC"),
    ("params.depth not in (6, twelve)", "A"),
    ("params.flag = true", "A"),
    ("params.note = 'a%b'", "A"),
    ("params.note ~ '%'", "A"),
    ("params.note ~ 'a_b'", ""),
    ("tags.task = pretrain", "A"),
    ("tags.task ~ PRETRAIN", "AB"),
    ("tags.task !~ '-'", "A"),
    ("tags.task ~ '^pre.*\\d$'", "B"),
    ("tags.task ~ '^(pre|post)train$'", "A"),
    ("tags.task like 'pre%'", "A"),
    ("tags.task ilike 'PRE%'", "AB"),
    ("tags.task not like 'pre%'", "B"),
    ("tags.task like 'pre_rain'", "A"),
    ("tags.size < 10", "A"),
    ("tags.size < '2'", "B"),
    ("tags.task < zz", "AB"),
    ("data = c4-en@v3", "A"),
    ("data = c4-en", "ABC"),
    ("data = wiki and data = c4-en@v4", "B"),
    ("data != c4-en@v3", "BC"),
    ("data ~ 'V[34]$'", "AB"),
    ("data in (wiki, 'c4-en@v3')", "AB"),
    ("data = c4", ""),
    ("has data", "ABC"),
    ("code.commit = ABCD", "A"),
    ("code.commit != abcd", "B"),
    ("code.dirty", "B"),
    ("code.branch = main", "A"),
    ("env.python = 3.11", "A"),
    ("env.python >= 3.10", "A"),
    ("env.packages.torch >= 2.6", "AB"),
    ("env.packages.torch > 2.6.0", "A"),
    ("env.packages.torch = 2.13", "A"),
    ("env.packages.torch = 2.13.0", "A"),
    ("env.packages.torch = 2.1", ""),
    ("env.packages.nothing exists", ""),
    ("env.image ~ train and env.host = node-a", "AB"),
    ("name = gpt-small", "AB"),
    ("id = vit-3", "C"),
    ("user in (bob, eve)", "B"),
    ("owner = ada", "ACD"),
    ("project = vision", "CD"),
    ("experiment = 7", "C"),
    ("experiment = big", "C"),
    ("source = sdk or failed", "BC"),
    ("phase != failed", "ACD"),
    ("running or queued", "CD"),
    ("not (running or queued)", "AB"),
    ("purpose ~ GRÖSSE or purpose ~ größe", "C"),
    ("not valid", "B"),
    ("valid = false", "B"),
    ("attempts > 1", "B"),
    ("created > -2d", "ACD"),
    ("created < -2d", "B"),
    ("created = today", "C"),
    ("created = yesterday", "AD"),
    ("created <= 2026-05-18", "B"),
    ("started exists", "ABC"),
    ("ended not exists", "CD"),
    ("duration >= 1h", "AB"),
    ("duration < 5m", "C"),
    ("parent = gpt-small-1", "C"),
    ("parent not exists", "ABD"),
    ("note ~ spike", "A"),
    ("note = 'LOWERED LR'", "A"),
    ("not note ~ 'sp.ke'", "BCD"),
    ("metrics.val_loss < 2.1 and params.lr >= 3e-4 and data = c4-en@v3", "A"),
]  # fmt: skip


@pytest.fixture
def search(db: RecordDb) -> Search:
    write_runs(db, A, B, C, D)
    row = {"id": 7, "name": "big", "project": "vision", "created_at": 0.0, "updated_at": 0.0, "artifacts": ""}
    db.write(lambda connection: connection.execute(tables.experiments.insert(), {**row, "tags": "{}"}) and None)
    return Search(db)


def letters(ids: list[str]) -> str:
    return "".join(
        sorted({run["id"]: letter for run, letter in zip((A, B, C, D), "ABCD", strict=True)}[one] for one in ids)
    )


def test_every_question(search: Search) -> None:
    wrong = [
        (query, wanted, found)
        for query, wanted in QUERIES
        if (found := letters(search.find(query, projects=None).ids)) != wanted
    ]
    assert not wrong


def test_only_what_may_be_seen(search: Search) -> None:
    assert letters(search.find("", projects=["vision"]).ids) == "CD"
    assert search.find("project = language", projects=["vision"]).ids == []
    assert search.find("", projects=[]).ids == []
    assert letters(search.find("", projects=None, experiments=[7]).ids) == "C"
    # Nothing of another project shows in what is suggested, either.
    assert search.find("params.note = 3", projects=["vision"]).hints == ("No run has a parameter 'note'.",)


def test_hints_name_what_is_near(search: Search) -> None:
    page = search.find("metrics.val_los < 2 or tags.`x y` = 3", projects=None)
    assert page.hints == ("No run has a metric 'val_los'; did you mean `metrics.val_loss`?", "No run has a tag 'x y'.")
    assert search.find("metrics.val_loss < 0", projects=None).hints == ()


def test_fields_are_found_by_a_part_of_their_name(search: Search) -> None:
    def fields(text: str, projects: list[str] | None = None, limit: int = 100) -> list[str]:
        return [one["field"] for one in search.fields(text, projects=projects, limit=limit)["fields"]]

    assert {"phase", "metrics.val_loss", "params.lr", "tags.task"} <= set(fields(""))
    assert fields("LOSS") == ["metrics.val_loss"]  # inside a name, and in either case
    assert fields("metrics.") == ["metrics.acc", "metrics.val_loss"]
    assert fields("code.d") == ["code.dirty"]
    assert fields("params.d", ["vision"]) == ["params.depth"]
    assert fields("params.note", ["vision"]) == []  # only a run of another project has it
    assert search.fields("params.", projects=None, limit=2) == {
        "fields": [{"field": "params.depth", "kind": "param"}, {"field": "params.flag", "kind": "param"}],
        "more": True,
    }


def test_hidden_runs(db: RecordDb, search: Search) -> None:
    write_runs(db, {"id": "gone-5", "deleted_at": NOW})
    assert "gone-5" not in search.find("", projects=None).ids
    assert search.find("", projects=None, hidden=True).ids == ["gone-5"]
    assert "gone-5" in search.find("", projects=None, hidden=None).ids


def test_series_of_the_lowest_rank_counts(db: RecordDb) -> None:
    """In a pipeline only the last stage knows the loss; where every rank reports it, rank 0 counts."""
    write_runs(db, {"id": "pipe-1"}, {"id": "data-2", "metrics": {"loss": 5.0}})
    rows = [
        series_row("pipe-1", "loss", {"last": 1.0, "rank": 3}),
        series_row("pipe-1", "loss", {"last": 9.0, "rank": 7}),
        series_row("data-2", "loss", {"last": 1.0, "rank": 1}),
    ]
    db.write(lambda connection: connection.execute(tables.metric_series.insert(), rows) and None)
    search = Search(db)
    assert search.find("metrics.loss < 2", projects=None).ids == ["pipe-1"]
    assert search.find("metrics.loss > 6", projects=None).ids == []
    shown = search.views(["pipe-1", "data-2"])
    assert [view["metrics"]["loss"] for view in shown] == [1.0, 5.0]
    cells = search.cells(["pipe-1", "data-2"], [parse_field("metrics.loss")])
    assert [view["cells"]["metrics.loss"] for view in cells] == [1.0, 5.0]


class TestOrder:
    def test_by_any_field_with_nothing_last(self, search: Search) -> None:
        orders = {
            "": "CADB", "metrics.val_loss": "ACDB", "-metrics.val_loss": "CADB", "params.lr": "ABCD",
            "-params.depth": "ACBD", "tags.size": "ABCD", "project, -attempts": "BACD", "name desc": "CABD",
            "duration": "CABD", "data": "CABD", "env.packages.torch": "ABCD", "phase": "BDCA", "created": "BADC",
        }  # fmt: skip
        found = {
            sort: "".join(LETTERS[one] for one in search.find("", projects=None, sort=sort).ids) for sort in orders
        }
        assert found == orders

    def test_pages_of_any_size_make_the_whole(self, db: RecordDb) -> None:
        chance = random.Random(4)
        write_runs(
            db,
            *(
                {
                    "id": f"r-{i}",
                    "created_at": NOW - chance.randrange(4),
                    "params": chance.choice([{}, {"a": chance.randrange(4)}, {"a": chance.choice("xyz")}]),
                    "metrics": chance.choice(
                        [{}, {"m": math.nan}, {"m": math.inf}, {"m": chance.random()}, {"m": 1.5}]
                    ),
                }
                for i in range(40)
            ),
        )
        search = Search(db)
        for sort in ("", "params.a", "-params.a,metrics.m", "-metrics.m", "metrics.m,-params.a"):
            whole = search.find("", projects=None, sort=sort).ids
            assert len(set(whole)) == 40
            for size in (3, 39):
                paged: list[str] = []
                cursor = None
                while True:
                    page = search.find("", projects=None, sort=sort, limit=size, after=cursor, count=cursor is None)
                    paged += page.ids
                    cursor = page.cursor
                    assert page.total == (40 if len(paged) <= size else None)
                    if cursor is None:
                        break
                assert paged == whole, (sort, size)

    def test_a_cursor_of_another_question_is_refused(self, search: Search) -> None:
        cursor = search.find("", projects=None, limit=1).cursor
        for bad in (cursor, "x", "", "W10=", "bnVsbA=="):
            with pytest.raises(Invalid, match="cursor"):
                search.find("", projects=None, sort="name", after=bad)


def test_views(search: Search) -> None:
    first, second = search.views(["gpt-small-2", "not-there", "gpt-small-1"])
    assert (first["id"], second["id"]) == ("gpt-small-2", "gpt-small-1")
    assert second["params"] == {"lr": "0.0003", "depth": "12", "flag": "True", "note": "a%b"}
    assert second["tags"] == {"task": "pretrain", "size": "7"}
    assert second["metrics"] == {"val_loss": 2.0, "acc": 0.5}
    assert first["metrics"] == {"val_loss": "NaN", "acc": "Infinity"}
    assert (first["data"], first["valid"], first["code"]["dirty"]) == (["c4-en@v4", "wiki"], False, True)


def test_columns(search: Search) -> None:
    names = [
        "metrics.val_loss",
        "metrics.val_loss.min",
        "params.lr",
        "data",
        "env.packages.torch",
        "duration",
        "experiment",
    ]
    fields = [parse_field(name) for name in names]
    shown = {view["id"]: view["cells"] for view in search.cells(["gpt-small-1", "gpt-small-2", "vit-3"], fields)}
    assert list(shown["gpt-small-1"].values()) == [2.0, 1.5, "0.0003", "c4-en@v3", "2.13.0+cpu", 3600.0, None]
    assert list(shown["gpt-small-2"].values())[:4] == ["NaN", None, "1e-3", "c4-en@v4, wiki"]
    assert list(shown["vit-3"].values())[4:] == [None, 60.0, "big"]


def test_a_document_that_postgresql_cannot_read_hides_no_other_run(db: RecordDb) -> None:
    write_runs(
        db, {"id": "odd-1", "doc": {"environment": {"image": "a\0b"}}}, {"id": "good-2", "doc": {"environment": ENV}}
    )
    assert Search(db).find("env.image ~ train", projects=None).ids == ["good-2"]


def test_values_are_never_pasted_into_the_statement(search: Search) -> None:
    nasty = "x'; DROP TABLE runs; --"
    for query in (f'name = "{nasty}"', f'tags.`{nasty}` = "{nasty}"', f'data ~ "{nasty}"', f"metrics.`{nasty}` < 1"):
        assert search.find(query, projects=None).ids == []
    assert len(search.find("", projects=None).ids) == 4


class TestSaved:
    def test_kept_listed_used_and_removed(self, db: RecordDb) -> None:
        saved = SavedQueries(db)
        saved.save("ada", "good", "metrics.loss < 2", sort="-created", columns=["params.lr"])
        saved.save("ada", "team", "failed", project="language")
        saved.save("bob", "team", "failed and not valid", project="language")
        assert [(one.project, one.name, one.query, one.user) for one in saved.list("ada", ["language"])] == [
            ("", "good", "metrics.loss < 2", "ada"),
            ("language", "team", "failed and not valid", "bob"),
        ]
        assert saved.get("ada", ["language"], "good").columns == ("params.lr",)
        assert saved.get("eve", ["language"], "language/team").query == "failed and not valid"
        for user, projects, name in (("bob", ["language"], "good"), ("bob", [], "team"), ("ada", [], "language/team")):
            with pytest.raises(NotFound):
                saved.get(user, projects, name)
        saved.remove(saved.get("bob", None, "team"))
        assert [one.name for one in saved.list("ada", None)] == ["good"]

    def test_ones_own_comes_first_and_two_projects_must_be_told_apart(self, db: RecordDb) -> None:
        saved = SavedQueries(db)
        for project in ("a", "b"):
            saved.save("ada", "x", f"project = {project}", project=project)
        with pytest.raises(Invalid, match="Several"):
            saved.get("ada", None, "x")
        saved.save("ada", "x", "valid")
        assert saved.get("ada", None, "x").query == "valid"

    def test_what_could_not_be_asked_is_not_kept(self, db: RecordDb) -> None:
        saved = SavedQueries(db)
        for arguments in ({"query": "oops >"}, {"query": "", "sort": "oops"}, {"query": "", "columns": ["oops"]}):
            with pytest.raises(QueryError):
                saved.save("ada", "x", **arguments)  # type: ignore[arg-type]
        with pytest.raises(Invalid):
            saved.save("ada", "a b", "")


def test_the_first_thousand_and_all_of_them_answer_alike(db: RecordDb) -> None:
    """Past a thousand runs a first page may come from those at the front: it must be the same page."""
    chance = random.Random(6)
    runs = [
        {
            "id": f"r-{i}",
            "created_at": NOW - chance.randrange(600),
            "params": {"a": chance.randrange(4)},
            "metrics": chance.choice([{}, {"m": math.nan}, {"m": chance.randrange(300)}, {"m": chance.random()}]),
        }
        for i in range(2200)
    ]
    write_runs(db, *runs)
    search = Search(db)
    for query in ("", "params.a < 3 and has metrics.m", "metrics.m > 298"):
        for sort in ("", "metrics.m", "-metrics.m", "-metrics.m,created"):
            whole = search.find(query, projects=None, sort=sort, limit=5000).ids
            assert search.find(query, projects=None, sort=sort, limit=60).ids == whole[:60], (query, sort)
