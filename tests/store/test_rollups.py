"""Roll-ups in every store, the space that years of them take, and a database of before that is brought up to date."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from alembic import command
from alembic.config import Config

import muster.store
from muster.core.errors import Invalid
from muster.core.event import Event
from muster.core.job_events import JobRequeued
from muster.core.payload import decode
from muster.core.reasons import reason
from muster.core.rules import Rules
from muster.monitor.rollup import DAY, MINUTE, QUARTER, held, merge, to_text, waited
from muster.store import tables
from muster.store.base import Entry, JobFilter, Store
from muster.store.connect import connect
from muster.store.past import LevelFilter, Rollup, levels_of, targets_of
from muster.store.registry import open_store
from muster.store.sql import SqlStore
from scheduler_kit import job_event, node_event

TARGETS = targets_of(Rules())


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    urls = {"memory": lambda: "memory:", "sqlite": lambda: f"sqlite:///{tmp_path}/muster.db"}
    opened = open_store(urls.get(request.param, lambda: request.getfixturevalue("tables_url"))())
    yield opened
    opened.close()


def put(store: Store, *rows: Rollup, forget: dict[int, int] | None = None) -> None:
    (result,) = store.transact([lambda state: Entry(rollups=rows, forget=forget or {})])
    assert result == []


def row(start: int, pool: str = "main", resolution: int = MINUTE, until: int = 0, data: str = "{}") -> Rollup:
    return Rollup(resolution, start, pool, until, data)


class TestRollups:
    def test_a_range_of_one_resolution_in_order(self, store: Store) -> None:
        put(store, row(120), row(0), row(60, "b"), row(60), row(0, resolution=DAY), row(180))
        assert store.rollups(MINUTE, None, 0, 180) == [row(0), row(60, "b"), row(60), row(120)]
        assert store.rollups(MINUTE, "main", 60, 120) == [row(60)]
        assert store.rollups(DAY, None, 0, 10**12) == [row(0, resolution=DAY)]
        assert store.rollups(QUARTER, None, 0, 10**12) == []

    def test_the_last_of_a_key_stays(self, store: Store) -> None:
        put(store, row(60, data='{"ms":1}'))
        put(store, row(60, data='{"ms":2}', until=9))
        assert store.rollups(MINUTE, None, 0, 100) == [row(60, data='{"ms":2}', until=9)]

    def test_old_ones_go_with_the_write_of_new_ones(self, store: Store) -> None:
        put(store, row(0), row(60), row(0, resolution=DAY))
        put(store, row(120), forget={MINUTE: 60})
        assert [found.start for found in store.rollups(MINUTE, None, 0, 1000)] == [60, 120]
        assert len(store.rollups(DAY, None, 0, 1000)) == 1

    def test_how_far_they_go(self, store: Store) -> None:
        assert store.rolled_up_until(DAY) == 0
        put(store, row(0, "a", DAY, 5000), row(0, "b", DAY, 9000), row(0, "a", MINUTE, 99_999))
        assert store.rolled_up_until(DAY) == 9000

    def test_with_events_all_or_nothing(self, store: Store) -> None:
        nonsense = Event(JobRequeued(reason("node_lost"), "node", 0.0), 5.0, job="nobody")
        (refused,) = store.transact([lambda state: Entry([nonsense], rollups=[row(0)])])
        assert isinstance(refused, Exception)
        assert store.rollups(MINUTE, None, 0, 1000) == []
        (told,) = store.transact([lambda state: Entry(rollups=[row(0, pool="a\0b")])])
        assert isinstance(told, Invalid)

    def test_a_reload_loses_none(self, store: Store) -> None:
        put(store, row(0))
        store.reload()
        assert store.rollups(MINUTE, None, 0, 1000) == [row(0)]


class TestSpace:
    def test_a_year_of_a_busy_pool(self, tmp_path: Path) -> None:
        """Two days of minutes, sixty of quarters and a year of days; every one of them as full as they come."""
        store = open_store(f"sqlite:///{tmp_path}/m.db")
        before = size_of(store)
        kept = [(MINUTE, 2 * 1440), (QUARTER, 60 * 96), (DAY, 365)]
        steady, yearly = 0, 0
        for resolution, count in kept:
            texts = [busy(resolution, seed) for seed in range(3)]
            rows = [row(at * resolution, "h100-pool", resolution, 10**13, texts[at % 3]) for at in range(count)]
            put(store, *rows)
            grown = size_of(store) - before
            before += grown
            steady, yearly = (steady, grown) if resolution == DAY else (steady + grown, 0)
        store.close()
        assert steady < 6_000_000  # as docs/history.md says
        assert yearly < 400_000


def busy(resolution: int, seed: int) -> str:
    """A bucket of a pool where everything moves all the time and ten jobs start in a minute."""
    choose = random.Random(seed)
    names = ("used", "there", "cpus_used", "cpus", "free", "out", "jobs", "asked", "usable")
    parts = []
    for minute in range(resolution // MINUTE):
        sample = {name: choose.randrange(2_000_000) for name in names}
        middle = minute * 60_000 + 30_000  # two samples have a part of every minute
        parts += [part for _, part in held(sample, middle - 60_000, middle, DAY)]
        parts += [part for _, part in held(sample, middle, middle + 30_000, DAY)]
        parts += [waited(choose.lognormvariate(6, 2)) for _ in range(10)]
    return to_text(merge(parts))


def size_of(store: Store) -> int:
    assert isinstance(store, SqlStore)
    with store._db.reading() as connection:
        pages, size = (connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("page_count", "page_size"))
    return int(pages) * int(size)


def some_jobs(store: Store, count: int = 60) -> None:
    """Jobs of all kinds, of which some started, some ended before they did, and some still wait."""
    choose = random.Random(5)
    store.append([node_event("n1", 0, 512)])
    for number in range(1, count + 1):
        kind = choose.choice(["train", "eval", "sweep", "session", "data"])
        queue, priority = choose.choice(["default", "q1"]), choose.choice([20, 50, 74, 75, 95])
        store.append([job_event(number, kind=kind, queue=queue, priority=priority, num_nodes=choose.randint(1, 2))])
        job, now = f"job-{number}", store.state().time
        seats = [{"node": "n1", "devices": []}]
        wait = choose.choice([0.125, 299.5, 300.0, 1800.0, 1800.5, 5000.0])
        if choose.random() < 0.8:
            store.append([of(job, "attempt.planned", now, 1, seats=seats)])
        if choose.random() < 0.8 and store.state().jobs[job].attempt:
            store.append([of(job, "attempt.running", now + wait, 1)])
        if choose.random() < 0.5:
            why = {"code": "user_stop", "message": "say \0", "hint": ""}
            attempt = store.state().jobs[job].attempt
            ended = [of(job, "attempt.ended", now, 1, outcome="stopped", reason=why)] if attempt else []
            store.append([*ended, of(job, "job.stopped", now, 0, reason=why)])


def of(job: str, kind: str, time: float, attempt: int, **data: Any) -> Event:
    return Event(decode(kind, data), time, "muster", "default", job, attempt)


class TestLevels:
    @pytest.mark.parametrize("queue", [None, "q1"])
    @pytest.mark.parametrize("share", [0.0, 0.5])
    def test_what_the_jobs_themselves_say(self, store: Store, queue: str | None, share: float) -> None:
        some_jobs(store)
        end = store.state().time
        for projects in (None, ["default"], ["other"]):
            want = LevelFilter(share * end, end + 60.0, TARGETS, projects, queue)
            expected = levels_of(want, store.jobs(JobFilter(limit=1000)))
            assert store.levels(want) == expected
            assert bool(expected) == (projects != ["other"])

    def test_by_hand(self, store: Store) -> None:
        store.append([node_event("n1", 0, 512)])
        waits = [10.0, 1800.0, 1800.5, 20.0]
        for number, wait in enumerate(waits, start=1):
            job, seats = f"job-{number}", [{"node": "n1", "devices": []}]
            (submitted,) = store.append([job_event(number)])
            store.append([of(job, "attempt.planned", submitted.time, 1, seats=seats)])
            store.append([of(job, "attempt.running", submitted.time + wait, 1)])
        (late,) = store.append([job_event(5, num_nodes=2, priority=80)])
        (level, other) = store.levels(LevelFilter(0.0, late.time + 301, TARGETS))
        assert (level.work, level.high, level.target, level.started, level.within) == ("single", False, 1800.0, 4, 3)
        assert (level.p50, level.p90, level.waiting, level.late) == (20.0, 1800.5, 0, 0)
        assert (other.work, other.high, other.started, other.p50) == ("distributed", True, 0, None)
        assert (other.waiting, other.late) == (1, 1)
        (still,) = store.levels(LevelFilter(late.time + 1, late.time + 300, TARGETS))
        assert (still.waiting, still.late) == (1, 0)

    def test_a_restart_is_no_second_start(self, store: Store) -> None:
        store.append([node_event("n1", 0, 512), job_event(1)])
        why, seats = {"code": "user_stop", "message": "", "hint": ""}, [{"node": "n1", "devices": []}]
        for attempt, time in ((1, 10.0), (2, 500.0)):
            store.append([of("job-1", "attempt.planned", time, attempt, seats=seats)])
            store.append([of("job-1", "attempt.running", time + 1, attempt)])
            store.append([
                of("job-1", "attempt.ended", time + 2, attempt, outcome="failed", reason=why),
                of("job-1", "job.requeued", time + 2, 0, reason=why, charge="node", not_before=0.0),
            ])  # fmt: skip
        (level,) = store.levels(LevelFilter(0.0, 600.0, TARGETS))
        assert (level.started, level.p50, level.waiting) == (1, 8.0, 0)
        assert store.levels(LevelFilter(400.0, 600.0, TARGETS)) == []

    def test_the_query_reads_the_index_alone(self, tmp_path: Path) -> None:
        store = open_store(f"sqlite:///{tmp_path}/m.db")
        assert isinstance(store, SqlStore)
        plans: list[str] = []
        with store._db.reader.connect() as connection:

            @sqlalchemy.event.listens_for(store._db.reader, "before_cursor_execute")
            def explain(conn, cursor, statement, parameters, context, executemany):
                if statement.startswith("SELECT"):
                    rows = connection.connection.cursor().execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
                    plans.extend(row[3] for row in rows)

            store.levels(LevelFilter(1.0, 2.0, TARGETS, ["default"], "q"))
            store.rollups(MINUTE, "main", 0, 60), store.rolled_up_until(DAY)
        store.close()
        assert any("USING COVERING INDEX jobs_by_start" in plan for plan in plans)
        assert any("USING INDEX jobs_by_phase" in plan for plan in plans)
        assert sum("SEARCH rollups USING PRIMARY KEY" in plan for plan in plans) == 2
        assert [plan for plan in plans if plan.startswith("SCAN jobs")] == []


class TestUpgrade:
    @pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
    def test_jobs_of_before_are_counted_too(self, kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
        url = f"sqlite:///{tmp_path}/old.db" if kind == "sqlite" else request.getfixturevalue("postgres_url")
        new = open_store(f"sqlite:///{tmp_path}/new.db")
        assert isinstance(new, SqlStore)
        some_jobs(new)
        make_old(url, new)
        old = open_store(url)
        assert isinstance(old, SqlStore)
        columns = sqlalchemy.select(tables.jobs).order_by(tables.jobs.c.number)
        found = []
        for store in (new, old):
            with store._db.reading() as connection:
                assert tables.revision(connection) == tables.REVISION
                found.append(connection.execute(columns).all())
        assert found[0] == found[1]
        want = LevelFilter(0.0, new.state().time, TARGETS)
        assert old.levels(want) == new.levels(want) != []
        put(old, row(0))
        assert old.rollups(MINUTE, None, 0, 60) == [row(0)]
        old.close()
        new.close()

    @pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
    def test_messages_of_before_have_receivers(self, kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
        url = f"sqlite:///{tmp_path}/old.db" if kind == "sqlite" else request.getfixturevalue("postgres_url")
        database = connect(sqlalchemy.make_url(url))
        with database.writing() as connection:
            upgrade(connection, "0006")
            add = "INSERT INTO outbox (made_at, kind, doc, due_at, tries, error) VALUES (1, 'hook', :doc, 1, 0, '')"
            for name in ("chat", "mail"):
                connection.execute(sqlalchemy.text(add), {"doc": f'{{"hook":"{name}","event":{{}}}}'})
        database.close()
        store = open_store(url)
        assert store.database is not None
        with store.database.reading() as connection:
            found = connection.execute(sqlalchemy.select(tables.outbox.c.receiver).order_by(tables.outbox.c.id))
            assert found.scalars().all() == ["hook chat", "hook mail"]
        store.close()


def upgrade(connection: sqlalchemy.Connection, revision: str) -> None:
    config = Config()
    folder = Path(muster.store.__file__).parent / "migrations"
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def _columns(connection: sqlalchemy.Connection, table: sqlalchemy.Table) -> set[str]:
    """Those that the table has in this database."""
    return {column["name"] for column in sqlalchemy.inspect(connection).get_columns(table.name)}


def make_old(url: str, like: SqlStore) -> None:
    """A database of the first schema with the jobs and the log of another."""
    database = connect(sqlalchemy.make_url(url))
    with database.writing() as connection, like._db.reading() as source:
        upgrade(connection, "0001")
        for table in (tables.events, tables.jobs, tables.attempts, tables.entities):
            first = [column for column in table.columns if column.name in _columns(connection, table)]
            rows = source.execute(sqlalchemy.select(*first)).mappings().all()
            connection.execute(table.insert(), [dict(found) for found in rows])
        head = source.execute(sqlalchemy.select(tables.head)).mappings().one()
        known = _columns(connection, tables.head)
        connection.execute(tables.head.update().values({name: head[name] for name in known}))
    database.close()
