"""A database that the first release wrote is loaded by this one, and work goes on.

`data/first-release.db.gz` was written by the server of commit bb6fd22 (schema 0001), started with `muster up --nodes
3 --accelerators H100:2` and driven by its own commands: a job that succeeded, one that failed after two restarts, one
that was stopped, resumed and stopped again, two that ran when the server got SIGKILL (one of them in its second
attempt), one that was queued, and one that was stopped before it started; next to them a project with a member and a
secret, a queue, three tokens and a drained node. The file was then checkpointed and vacuumed.
"""

from __future__ import annotations

import gzip
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy
from alembic import command
from alembic.config import Config

import muster.store
from live import LiveServer, marked_processes, until
from muster.core.errors import ConfigError
from muster.store import tables
from muster.store.base import JobFilter
from muster.store.registry import open_store
from store_kit import check_against_log, used_by_attempts

DATA = Path(__file__).parent / "data" / "first-release.db.gz"
PHASES = {
    "good-1": "succeeded",
    "fails-2": "failed",
    "stopped-3": "stopped",
    "gang-4": "running",
    "single-5": "running",
    "waits-6": "queued",
    "never-7": "stopped",
}
OUTCOMES = {
    "good-1": ["succeeded"],
    "fails-2": ["failed", "failed", "failed"],
    "stopped-3": ["stopped", "stopped"],
    "gang-4": ["failed", None],
    "single-5": [None],
    "waits-6": [],
    "never-7": [],
}


def unpack(folder: Path) -> Path:
    path = folder / "muster.db"
    path.write_bytes(gzip.decompress(DATA.read_bytes()))
    return path


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The same rows in both databases."""
    path = unpack(tmp_path)
    if request.param == "sqlite":
        return f"sqlite:///{path}"
    url: str = request.getfixturevalue("postgres_url")
    copy(f"sqlite:///{path}", url.replace("postgresql:", "postgresql+psycopg:"))
    return url


def copy(source: str, target: str, revision: str = "0001") -> None:
    """Makes the tables of a revision and copies their rows."""
    old, new = sqlalchemy.create_engine(source), sqlalchemy.create_engine(target)
    config = Config()
    config.set_main_option("script_location", str(Path(muster.store.__file__).parent / "migrations"))
    with old.connect() as reading, new.begin() as writing:
        config.attributes["connection"] = writing
        command.upgrade(config, revision)
        made, there = sqlalchemy.MetaData(), sqlalchemy.MetaData()
        made.reflect(writing)
        there.reflect(reading)
        for name, table in made.tables.items():
            writing.execute(table.delete())
            if rows := [dict(row) for row in reading.execute(there.tables[name].select()).mappings()]:
                writing.execute(table.insert(), rows)
    old.dispose()
    new.dispose()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    server = LiveServer(tmp_path / "home", ["--nodes", "3", "--accelerators", "H100:2"])
    server.home.mkdir()
    unpack(server.home)
    server.start()
    yield server
    server.stop()


def test_every_job_and_attempt_is_there(url: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "muster.store"):
        store = open_store(url)
    assert "from 91 events" in caplog.text
    assert {job.id: job.phase for job in store.jobs(JobFilter())} == PHASES
    attempts = {job: store.attempts(job) for job in PHASES}
    assert {job: [one.outcome for one in some] for job, some in attempts.items()} == OUTCOMES
    assert {one.pool for some in attempts.values() for one in some} == {"local"}
    check_against_log(store)
    store.close()


def test_what_the_first_release_did_not_fold_is_folded(url: str) -> None:
    store = open_store(url)
    state = store.state()
    accelerators = {name: account.rate[0] for name, account in state.accounts.items()}
    assert accelerators == {"default/ada": 2.0, "research/ada": 2.0}
    assert all(account.used[0] > 0 for account in state.accounts.values())
    assert {name: ledger.use for name, ledger in state.ledgers.items()} == used_by_attempts(store)
    assert state.jobs["gang-4"].waited > 1.0  # its backoff
    assert state.nodes["local-2"].by == "ada"
    store.close()


def test_the_tables_are_rebuilt_once(url: str, caplog: pytest.LogCaptureFixture) -> None:
    open_store(url).close()
    with caplog.at_level(logging.INFO, "muster.store"):
        store = open_store(url)
        store.append([])
    assert "rebuil" not in caplog.text
    store.close()


def test_a_new_database_has_the_newest_fold_and_says_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "muster.store"):
        store = open_store(f"sqlite:///{tmp_path}/new.db")
    assert store.database is not None
    with store.database.reading() as connection:
        assert connection.execute(sqlalchemy.select(tables.head.c.fold)).scalar() == tables.FOLD
    assert "rebuil" not in caplog.text
    store.close()


def test_a_newer_fold_is_refused(url: str) -> None:
    store = open_store(url)
    assert store.database is not None
    with store.database.writing() as connection:
        connection.execute(sqlalchemy.update(tables.head).values(fold=tables.FOLD + 1))
    store.close()
    with pytest.raises(ConfigError, match="folded by a newer version"):
        open_store(url)


def test_an_event_that_can_not_be_folded_is_named_and_nothing_is_written(url: str, tmp_path: Path) -> None:
    open_store(url).close()
    engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.execute(sqlalchemy.update(tables.head).values(fold=1))
        broken = sqlalchemy.update(tables.events).where(tables.events.c.seq == 91)
        connection.execute(broken.values(kind="job.requeued", job="nobody", data='{"charge":"node"}'))
    with pytest.raises(ConfigError, match="Event 91 of the log"):
        open_store(url)
    with engine.connect() as connection:
        assert len(connection.execute(sqlalchemy.select(tables.jobs)).all()) == len(PHASES)
        assert connection.execute(sqlalchemy.select(tables.head.c.fold)).scalar() == 1
    engine.dispose()


def test_a_server_goes_on_with_it(server: LiveServer) -> None:
    """The gangs are gone with the machine: one is started again, and the job that waited runs when they have left."""
    assert server.get("/v1/jobs/good-1")["phase"] == "succeeded"
    steps, values = server.metric("good-1", "loss")[1]
    assert (steps[-1], values[-1]) == (40, 1 / 40)
    assert "done" in server.output("good-1")
    until(lambda: server.job("gang-4")["attempt"] == 3, "the gang to be started again")
    server.wait("gang-4", "running")
    for job in ("gang-4", "single-5"):
        server.post(f"/v1/jobs/{job}/stop", {"grace": 0})
        server.wait(job, "stopped")
    assert server.wait("waits-6")["phase"] == "succeeded"
    assert not marked_processes(server.home)
