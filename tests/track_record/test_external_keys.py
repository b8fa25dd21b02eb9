"""Keys of scripts in the documents of old databases become digests that no view shows."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
import sqlalchemy
from alembic import command
from alembic.config import Config

import muster.store
from muster.core.errors import Conflict, NotAllowed
from muster.store.connect import connect
from muster.track.external import Opening
from record_kit import open_record

FIRST, SECOND = uuid.uuid4().hex, uuid.uuid4().hex


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/m.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


def test_old_keys_are_kept_as_digests(url: str, tmp_path: Path) -> None:
    make_old(url)
    with open_record(url, tmp_path / "home") as record:
        found = record.track.runs.need("old-run")
        assert FIRST not in str(found)
        assert found.doc["external"] == {"host": "h", "pid": 7, "attempts": 2}
        assert found.doc["command"] == "train.py"
        mine = {"id": "old-run", "project": "default"}
        assert record.track.external.start(Opening(**mine, user="ada", key=FIRST)) == 1
        assert record.track.external.resume(Opening(**mine, user="ada", key=SECOND)) == 2
        assert record.track.external.resume(Opening(**mine, user="eve", key=SECOND, admin=True)) == 2
        with pytest.raises(Conflict):
            record.track.external.start(Opening(**mine, user="eve", key=FIRST))
        with pytest.raises(Conflict):
            record.track.external.start(Opening(id="old-run", project="other", user="ada", key=FIRST))
        with pytest.raises(NotAllowed, match="was opened by ada"):
            record.track.external.resume(Opening(**mine, user="eve", key=uuid.uuid4().hex))
        assert record.track.external.resume(Opening(**mine, user="eve", key=uuid.uuid4().hex, admin=True)) == 3
        assert record.track.runs.need("old-run").doc["external"]["users"] == {"3": "eve"}
        record.track.purge.purge("old-run", "ada")
        with record.track.db.reading() as connection:
            left = connection.execute(sqlalchemy.text("SELECT name FROM track_marks")).scalars().all()
        assert not [name for name in left if name.startswith("opened:")]


def make_old(url: str) -> None:
    database = connect(sqlalchemy.make_url(url))
    config = Config()
    folder = Path(muster.store.__file__).parent / "migrations"
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    external = {"host": "h", "pid": 7, "keys": {FIRST: 1, SECOND: 2}}
    row = {
        "id": "old-run", "project": "default", "experiment": 0, "name": "", "user": "ada", "kind": "train",
        "source": "sdk", "phase": "succeeded", "created_at": 1.0, "valid": True, "problems": "[]", "purpose": "",
        "attempts": 1, "code_commit": "", "code_branch": "", "code_dirty": False, "code_tree": "",
        "doc": json.dumps({"command": "train.py", "external": external}),
    }  # fmt: skip
    names = ", ".join(f'"{name}"' for name in row)
    insert = sqlalchemy.text(f"INSERT INTO runs ({names}) VALUES ({', '.join(f':{name}' for name in row)})")
    with database.writing() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0003")
        connection.execute(insert, row)
    database.close()
