"""What only a store on a database has: schema, reopening, several servers on one database, and honest refusals."""

from __future__ import annotations

import logging
import os
import random
import sqlite3
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from components import small_disk
from muster.core.errors import ConfigError, Conflict, Unavailable
from muster.core.event import Event
from muster.core.job import Attempt, CheckpointMark, Job, Seat, StopOrder, Worker
from muster.core.reasons import reason
from muster.core.server_events import ServerLeads
from muster.core.spec import JobSpec
from muster.store import codec, tables
from muster.store.base import Entry, EventFilter, JobFilter, RunPatch, SecretWrite, StreamWrite
from muster.store.connect import file_system
from muster.store.registry import open_store
from muster.store.sql import SqlStore
from muster.store.tables import VERSION_TABLE
from scheduler_kit import job_event, node_event
from store_kit import History, check_against_log, picture

NOTE = Event(ServerLeads(holder="a", epoch=1), 5.0)
Opener = Callable[[], SqlStore]


@pytest.fixture(params=["sqlite", "postgresql"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """Opens the same database again and again, as several servers would."""
    url = f"sqlite:///{tmp_path}/m.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    opened: list[SqlStore] = []

    def opener() -> SqlStore:
        store = open_store(url)
        assert isinstance(store, SqlStore)
        opened.append(store)
        return store

    yield opener
    for store in opened:
        store.close()


class TestReopening:
    def test_everything_is_there(self, opener: Opener) -> None:
        store, history = opener(), History(random.Random(3))
        for _ in range(80):
            store.append(history.entry(store))
        entry = Entry(
            streams=[StreamWrite("j", 1, 0, "log", 0, 3, log=b"abc")],
            patches=[RunPatch("j", {"a": 1})],
            secrets=[SecretWrite("p", "S", b"c")],
        )
        store.transact([lambda state: entry])
        store.close()
        again = opener()
        assert picture(again.state()) == picture(store.state())
        assert (again.run("j"), again.secret("p", "S")) == ({"a": 1}, b"c")
        assert again.streams("j", 1)[(0, "log")].acked == 3
        check_against_log(again)

    def test_opening_and_closing_twice_is_harmless(self, opener: Opener) -> None:
        store = opener()
        store.append([NOTE])
        store.open()
        assert store.state().version == 1
        store.close()
        store.close()

    def test_a_job_is_written_as_its_own_document(self) -> None:
        spec = JobSpec(name="a", run="true", envs={"A": "é"}, secrets=("S",), resources={"cpus": 2})
        why = reason("node_lost", node="n")
        attempt = Attempt(2, 3.0, [Worker(Seat("n", (0, 1)), "ended", {"ranks": [1]})], 4.0, 5.0, "failed", why, 7)
        stop, mark = StopOrder(why, "queued", 1.0, 2.0), CheckpointMark(5, "/c", 1.0, 9, 1)
        job = Job("j", 1, "p", "q", "u", spec, 1.5, "stopping", 2.5, why, "k", 3.5, None, attempt)
        job.charges, job.not_before, job.stop, job.checkpoint = {"node": 1}, 8.5, stop, mark
        text = codec.job_text(job)
        assert codec.loads(text) == codec.loads(codec.dumps(job.to_doc()))
        read = codec.job_from(codec.dumps(spec.model_dump(mode="json")), text)
        assert read.to_doc() == job.to_doc()
        assert read.spec == spec


class TestSeveralServers:
    def test_the_one_that_is_behind_writes_nothing_and_catches_up(self, opener: Opener) -> None:
        first, second = opener(), opener()
        first.append([job_event(1)])
        with pytest.raises(Conflict, match="Another server"):
            second.append([node_event("n", 0, 4), job_event(1)])
        assert picture(second.state()) == picture(first.state())
        assert second.append([job_event(2)])[0].seq == 2
        with pytest.raises(Conflict):
            first.append([NOTE])
        check_against_log(first)
        check_against_log(second)

    def test_even_without_events(self, opener: Opener) -> None:
        """Else a server that lost the lease could store a rank's points a second time."""
        first, second = opener(), opener()
        pieces = [Entry(streams=[StreamWrite("j", 1, 0, "log", at, at + 3, log=b"abc")]) for at in (0, 3)]
        second.transact([lambda state: pieces[0]])
        first.reload()
        first.transact([lambda state: pieces[1]])
        with pytest.raises(Conflict):
            second.transact([lambda state: pieces[1]])
        second.transact([lambda state: pieces[1]])
        assert [chunk.offset for chunk in second.logs("j", 1, None, 0, 9)] == [0, 3]

    def test_of_two_at_once_one_wins_every_time(self, opener: Opener) -> None:
        stores, won = [opener(), opener()], [0, 0]

        def work(index: int) -> None:
            for _ in range(40):
                try:
                    stores[index].append([NOTE])
                    won[index] += 1
                except Conflict:
                    pass

        threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        events = stores[0].events(EventFilter(limit=1000))
        assert [event.seq for event in events] == list(range(1, sum(won) + 1))

    def test_both_may_find_the_database_empty(self, opener: Opener) -> None:
        failed: list[Exception] = []

        def work() -> None:
            try:
                opener()
            except Exception as error:
                failed.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []


def test_a_question_without_end_is_ended_and_the_next_one_is_answered(opener: Opener) -> None:
    database = opener().database
    assert database is not None
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT -i FROM n) SELECT count(*) FROM n"
    for _ in range(20):  # more often than there are connections: each is given back as it was
        with pytest.raises(Unavailable, match="takes too long"), database.reading(0.01) as connection:
            connection.exec_driver_sql(endless).scalar()
    with database.reading() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM jobs").scalar() == 0


class TestSchema:
    def test_migrations_make_the_tables_that_the_code_expects(self, opener: Opener) -> None:
        with opener()._db.reader.connect() as connection:
            context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
            assert compare_metadata(context, tables.metadata) == []
            assert context.get_current_revision() == tables.REVISION

    def test_a_newer_schema_is_refused(self, opener: Opener) -> None:
        store = opener()
        with store._db.writing() as connection:
            connection.execute(sqlalchemy.text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
        with pytest.raises(ConfigError, match=r"'9999'.*knows up to") as caught:
            opener()
        assert "newer" in caught.value.hint

    def test_a_job_that_cannot_be_read_is_named(self, opener: Opener) -> None:
        store = opener()
        store.append([job_event(1)])
        with store._db.writing() as connection:
            connection.execute(tables.jobs.update().values(doc='{"phase": "queued"}'))
        with pytest.raises(ConfigError, match="job 1 "):
            opener()


class TestSecrecy:
    def test_no_log_and_no_error_shows_a_value(self, opener: Opener, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        store = opener()
        store.transact([lambda state: Entry(secrets=[SecretWrite("p", "S", b"ciphertext-42")])])
        with store._db.writing() as connection:
            connection.execute(tables.secrets.delete())
            connection.execute(sqlalchemy.text("DROP TABLE secrets"))
        with pytest.raises(Exception) as caught:
            store.transact([lambda state: Entry(secrets=[SecretWrite("p", "S", b"ciphertext-42")])])
        assert "ciphertext-42" not in f"{caught.value} {caught.value.__cause__} {caplog.text}"

    def test_a_password_is_not_shown(self) -> None:
        with pytest.raises(ConfigError) as caught:
            open_store("postgresql://ada:hunter2@127.0.0.1:1/muster")
        assert "hunter2" not in str(caught.value)
        assert "ada" in str(caught.value)


class TestSqliteFile:
    def test_only_its_owner_can_read_it(self, tmp_path: Path) -> None:
        store = open_store(f"sqlite:///{tmp_path}/m.db")
        store.append([NOTE])
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
        store.close()
        assert modes == {"m.db": 0o600, "m.db-wal": 0o600, "m.db-shm": 0o600}

    def test_durable_settings(self, tmp_path: Path) -> None:
        store = open_store(f"sqlite:///{tmp_path}/m.db")
        assert isinstance(store, SqlStore)
        with store._db.writing() as connection:
            found = [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("journal_mode", "synchronous")]
        store.close()
        assert found == ["wal", 2]

    def test_queries_follow_an_index(self, tmp_path: Path) -> None:
        """A listing must not grow slow with the history behind it."""
        store = open_store(f"sqlite:///{tmp_path}/m.db")
        assert isinstance(store, SqlStore)
        plans = []
        with store._db.reader.connect() as connection:

            @sqlalchemy.event.listens_for(store._db.reader, "before_cursor_execute")
            def explain(conn, cursor, statement, parameters, context, executemany):
                if statement.startswith(("SELECT", "WITH")):
                    rows = connection.connection.cursor().execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
                    plans.extend((statement, row[3]) for row in rows)

            store.job("x"), store.job_by_number(1), store.jobs_by_key("u", ["k"]), store.attempts("x")
            store.jobs(JobFilter(projects=["p"])), store.jobs(JobFilter(user="u")), store.jobs(JobFilter(name="n"))
            store.events(EventFilter(job="x")), store.events(EventFilter(actor="u")), store.secret_names("p")
            store.events(EventFilter(kind="a.b")), store.events(EventFilter(projects=["p"], last=True))
            store.logs("x", 1, None, 0, 5), store.logs("x", 1, 0, 0, 5)
            store.run("x"), store.streams("x", 1), store.reload()
        scans = [plan for plan in plans if plan[1].startswith("SCAN") and "names" not in plan[1]]
        expected = ("entities", "head")  # both are read whole when the state is loaded
        assert [plan for plan in scans if not plan[1].removeprefix("SCAN ").startswith(expected)] == []
        assert [plan for plan in plans if "TEMP B-TREE" in plan[1]] == []
        store.close()

    def test_no_folder(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="there is no folder") as caught:
            open_store(f"sqlite:///{tmp_path}/none/m.db")
        assert f"mkdir -p {tmp_path}/none" in caught.value.hint

    def test_a_folder(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="is a folder"):
            open_store(f"sqlite:///{tmp_path}")

    def test_no_name(self) -> None:
        for url in ("sqlite://", "sqlite:///:memory:"):
            with pytest.raises(ConfigError, match="names no file"):
                open_store(url)

    def test_something_else_in_the_file(self, tmp_path: Path) -> None:
        (tmp_path / "m.db").write_bytes(b"a letter to my aunt " * 100)
        with pytest.raises(ConfigError, match="damaged or unreadable"):
            open_store(f"sqlite:///{tmp_path}/m.db")
        assert (tmp_path / "m.db").read_bytes().startswith(b"a letter")

    def test_a_place_that_is_read_only(self, tmp_path: Path) -> None:
        with small_disk(tmp_path / "disk", "2m") as disk:
            open_store(f"sqlite:///{disk}/m.db").close()
            subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
            for name in ("m.db", "new.db"):
                with pytest.raises(ConfigError, match="not writable"):
                    open_store(f"sqlite:///{disk}/{name}")

    def test_a_shell_that_holds_the_file_is_named_as_the_cause(self, tmp_path: Path, monkeypatch) -> None:
        monkeypatch.setattr("muster.store.connect._TIMEOUT", 0.1)
        store = open_store(f"sqlite:///{tmp_path}/m.db")
        shell = sqlite3.connect(tmp_path / "m.db", isolation_level=None)
        shell.execute("BEGIN IMMEDIATE")
        with pytest.raises(Exception, match="Another process has held it"):
            store.append([NOTE])
        shell.execute("ROLLBACK")
        shell.close()
        assert store.append([NOTE])[0].seq == 1
        store.close()

    def test_which_file_system(self) -> None:
        text = "\n".join([
            "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw",
            "30 22 0:40 / /home rw - nfs4 server:/home rw",
            r"31 30 0:41 / /home/a\040b rw - tmpfs tmpfs rw",
            "32 22 0:42 / /home2 rw shared:1 master:2 - lustre l rw",
        ])  # fmt: skip
        found = [file_system(Path(path), text) for path in ("/var/x", "/home/ada", "/home/a b/c", "/home2/x")]
        assert found == ["ext4", "nfs4", "tmpfs", "lustre"]


class TestRegistry:
    def test_an_unknown_kind(self) -> None:
        with pytest.raises(ConfigError, match="starts with 'mysql'; expected one of memory, postgres"):
            open_store("mysql://x")

    @pytest.mark.parametrize("url", ["sqlite:muster.db", "postgresql://host:port/x"])
    def test_no_url(self, url: str) -> None:
        with pytest.raises(ConfigError, match="no database URL"):
            open_store(url)

    def test_no_url_shows_no_password(self) -> None:
        with pytest.raises(ConfigError) as caught:
            open_store("postgresql://ada:hunter2@host:port/x")  # pragma: allowlist secret
        assert "hunter2" not in str(caught.value)

    def test_no_server(self) -> None:
        with pytest.raises(ConfigError, match="can't be reached"):
            open_store(f"postgresql://x@/none?host={os.devnull}")
