"""No room, or no database: everyone is told, nothing is half-written, and it goes on by itself afterwards."""

from __future__ import annotations

import random
import shutil
import signal
import sqlite3
from pathlib import Path

import pytest
from cutting import cutting

from components import Postgres, require_root, small_disk
from muster.core.errors import Unavailable
from muster.core.event import Event
from muster.core.server_events import ServerLeads
from muster.store.base import Entry, EventFilter, Store, StreamWrite
from muster.store.db_errors import translate
from muster.store.registry import open_store
from scheduler_kit import job_event
from store_kit import check_against_log, picture

NOTE = Event(ServerLeads(holder="a", epoch=1), 5.0)
INCOMPRESSIBLE = random.Random(1).randbytes(1 << 16)


def test_a_quota_or_a_limit_of_the_file_is_no_damage() -> None:
    """SQLite tells them with its number of a write that failed; the same class has errors of a damaged disk."""
    for code, words in ((sqlite3.SQLITE_IOERR_WRITE, "over a quota"), (sqlite3.SQLITE_IOERR_READ, "damaged")):
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = code
        assert words in translate(error, "x.db").message


def fill(store: Store) -> int:
    """Appends jobs and logs until there is no room; how many transactions went through."""
    for count in range(10_000):
        before = picture(store.state())
        entry = one_more(store, count)
        try:
            store.transact([lambda state, entry=entry: entry])
        except Unavailable as error:
            refused = error
            break
    assert "disk is full" in refused.message
    assert "Free some space" in refused.hint
    assert picture(store.state()) == before
    return count


def one_more(store: Store, written: int) -> Entry:
    return Entry([job_event(store.state().next_number)], [log(written * len(INCOMPRESSIBLE))])


def log(start: int) -> StreamWrite:
    return StreamWrite("j", 1, 0, "log", start, start + len(INCOMPRESSIBLE), log=INCOMPRESSIBLE)


def check_goes_on(store: Store, written: int) -> None:
    assert len(store.events(EventFilter(limit=100_000))) == written
    store.transact([lambda state: one_more(store, written)])
    assert len(store.logs("j", 1, 0, 0, 100_000)) == written + 1
    check_against_log(store)


class TestFullDisk:
    def test_sqlite(self, tmp_path: Path) -> None:
        with small_disk(tmp_path / "disk", "6m") as disk:
            (disk / "ballast").write_bytes(b"x" * (2 << 20))
            store = open_store(f"sqlite:///{disk}/m.db")
            written = fill(store)
            with pytest.raises(Unavailable):  # still, for the same that was refused
                store.transact([lambda state: one_more(store, written)])
            (disk / "ballast").unlink()
            check_goes_on(store, written)
            store.close()

    def test_postgres(self, tmp_path: Path, postgres_server: Postgres) -> None:
        require_root("give PostgreSQL a small file system")
        with small_disk(postgres_server.folder / "disk", "24m") as disk:
            shutil.chown(disk, "postgres", "postgres")
            postgres_server.sql(f"CREATE TABLESPACE small LOCATION '{disk}'")
            (disk / "ballast").write_bytes(b"x" * (4 << 20))
            with postgres_server.database("TABLESPACE small") as name:
                store = open_store(postgres_server.url(name))
                written = fill(store)
                (disk / "ballast").unlink()
                check_goes_on(store, written)
                store.close()
            postgres_server.sql("DROP TABLESPACE small")


class TestLostConnection:
    def test_sessions_that_were_ended_are_replaced(self, postgres_server: Postgres, postgres_url: str) -> None:
        store = open_store(postgres_url)
        store.append([NOTE])
        postgres_server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        assert store.append([NOTE])[0].seq == 2
        store.close()

    @pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
    def test_a_server_that_is_away_and_comes_back(
        self, postgres_server: Postgres, postgres_url: str, how: signal.Signals
    ) -> None:
        store = open_store(postgres_url)
        store.append([job_event(1)])
        before = picture(store.state())
        postgres_server.stop(how)
        try:
            with pytest.raises(Unavailable, match="can't be reached"):
                store.append([job_event(2)])
            asking = (store.state, store.reload, lambda: store.job("job-1"), store.lease, lambda: store.append([NOTE]))
            for ask in asking:
                with pytest.raises(Unavailable):  # what is not durable is not shown
                    ask()
        finally:
            postgres_server.start()
        assert picture(store.state()) == before
        assert store.append([job_event(2)])[0].seq == 2
        check_against_log(store)
        store.close()

    def test_in_the_middle_of_a_transaction(self, postgres_server: Postgres, postgres_url: str) -> None:
        """The first statement has gone through when the session dies; none of it stays."""
        with cutting(postgres_server.folder, b"INSERT INTO jobs", deliver=False) as cutter:
            store = open_store(cutter.url(postgres_url))
            cutter.armed.set()
            with pytest.raises(Unavailable, match="can't be reached"):
                store.append([job_event(1)])
            assert store.events(EventFilter()) == []
            assert store.append([job_event(1)])[0].seq == 1
            check_against_log(store)
            store.close()

    def test_between_the_commit_and_its_answer(self, postgres_server: Postgres, postgres_url: str) -> None:
        """It is durable, so its proposers must not be told otherwise."""
        with cutting(postgres_server.folder, b"COMMIT\0", deliver=True) as cutter:
            store = open_store(cutter.url(postgres_url))
            cutter.armed.set()
            assert store.append([job_event(1)])[0].seq == 1
            assert not cutter.armed.is_set()
            assert store.append([job_event(2)])[0].seq == 2
            check_against_log(store)
            store.close()

    def test_between_the_commit_and_the_server(self, postgres_server: Postgres, postgres_url: str) -> None:
        with cutting(postgres_server.folder, b"COMMIT\0", deliver=False) as cutter:
            store = open_store(cutter.url(postgres_url))
            cutter.armed.set()
            with pytest.raises(Unavailable):
                store.append([job_event(1)])
            assert store.state().version == 0
            assert store.append([job_event(1)])[0].seq == 1
            store.close()
