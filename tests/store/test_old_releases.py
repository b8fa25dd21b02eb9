"""A database of every older schema, as a server of that time left it when it was killed, is opened, and work goes on.

`data/make.py` made them: one job that succeeded, one that failed, one that was stopped, a gang that ran, and one that
waited for its seats. `data/NAME.json` has the commit, the schema, and the phases as that server told them.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import sqlalchemy
from test_first_release import copy

from live import LiveServer, live_server, marked_processes
from muster.store import tables
from muster.store.base import JobFilter
from muster.store.registry import open_store
from store_kit import check_against_log

DATA = Path(__file__).parent / "data"
NAMES = sorted(path.name.removesuffix(".json") for path in DATA.glob("*.json"))


def unpack(name: str, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "muster.db"
    path.write_bytes(gzip.decompress((DATA / f"{name}.db.gz").read_bytes()))
    return path


def told(name: str) -> dict:
    return json.loads((DATA / f"{name}.json").read_text())


def test_every_schema_that_servers_ran_with_is_there() -> None:
    """The newest needs none. 0001 is `first-release`; 0004 and 0008 came together with the next."""
    schemas = {told(name)["schema"] for name in NAMES}
    newest = int(tables.REVISION)
    assert {f"{number:04}" for number in range(2, newest)} - schemas == {"0004", "0008"}


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
@pytest.mark.parametrize("name", NAMES)
def test_its_jobs_are_as_they_were(name: str, kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url = f"sqlite:///{unpack(name, tmp_path)}"
    if kind == "postgresql":
        target: str = request.getfixturevalue("postgres_url")
        copy(url, target.replace("postgresql:", "postgresql+psycopg:"), told(name)["schema"])
        url = target
    store = open_store(url)
    assert {job.id: job.phase for job in store.jobs(JobFilter())} == told(name)["phases"]
    check_against_log(store)
    assert store.database is not None
    with store.database.reading() as connection:
        found = sqlalchemy.inspect(connection)
        assert {column["name"] for column in found.get_columns("log_chunks")} >= {"data", "time"}
    store.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_server_goes_on_with_it(name: str, tmp_path: Path) -> None:
    unpack(name, tmp_path / "home")
    with live_server(tmp_path / "home", "--nodes", "2", "--accelerators", "H100:1") as server:
        go_on(server)
        assert not marked_processes(server.home)


def go_on(server: LiveServer) -> None:
    steps, values = server.metric("trains-1", "loss")[1]
    assert (steps[-1], values[-1]) == (40, 1 / 40)
    assert "done" in server.output("trains-1")
    assert "gone wrong" in server.output("fails-2")
    run = server.get("/v1/runs/trains-1")
    assert (run["id"], run["summaries"]["loss"]["last"]) == ("trains-1", 1 / 40)
    # The gang is gone with its machine: it is started again, and the job that waited runs when it has left.
    server.wait("gang-4", "running")
    server.post("/v1/jobs/gang-4/stop", {"grace": 0})
    server.wait("gang-4", "stopped")
    assert server.wait("waits-5")["phase"] == "succeeded"
    assert "at last" in server.output("waits-5")
    again = server.submit("echo new")
    assert server.wait(again["id"])["phase"] == "succeeded"
