"""A backup that is made while the server works is whole, a server starts on it, and damage is found."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import sqlalchemy

from components import Postgres, postgres_binaries
from live import live_server, until
from metric_kit import curve_of, metric_store
from muster.cli.main import main
from muster.core.errors import ConfigError, Invalid, NotFound
from muster.store.backup import Source, back_up
from muster.store.backup_check import verify

SCRIPT = """
import sys, time
import muster.runtime as m
for step in range(int(sys.argv[1])):
    m.report(step=step, loss=float(step))
    time.sleep(0.0005)
    if m.should_stop():
        break
"""


def quiet(what: str, done: int, total: int) -> None:
    assert 0 <= done <= total, what


def put_blob(home: Path, data: bytes) -> Path:
    digest = hashlib.sha256(data).hexdigest()
    path = home / "blobs" / digest[:2] / digest
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def home_with(tmp_path: Path, rows: int = 50) -> Source:
    home = tmp_path / "home"
    home.mkdir()
    (home / "key").write_bytes(b"k" * 32)
    (home / "config.toml").write_text("port = 0\n")
    put_blob(home, b"weights" * 1000)
    put_blob(home, b"")
    url = f"sqlite:///{home}/muster.db"
    with metric_store(url) as made:
        made.add("r", 1, 0, loss=curve_of(range(rows)))
    return Source(url, home, home / "blobs")


def test_a_server_that_works_is_copied_and_another_starts_on_the_copy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home, copy = tmp_path / "home", tmp_path / "copy"
    with live_server(home) as server:
        (home / "write.py").write_text(SCRIPT)
        blob = put_blob(home, b"x" * 100_000)
        over = server.submit(f"exec {sys.executable} write.py 300")["id"]
        server.wait(over)
        job = server.submit(f"exec {sys.executable} write.py 1000000000")["id"]
        until(lambda: server.job(job)["progress"], "points")
        assert main(["--home", str(home), "backup", str(copy), "--json"]) == 0
        copied = json.loads(capsys.readouterr().out)
        assert (copied["blobs"], copied["blob_bytes"], copied["problems"]) == (1, 100_000, [])
        assert {"muster.db", "key", "manifest.json"} <= {path.name for path in copy.iterdir()}
        assert (copy / "blobs" / blob.name[:2] / blob.name).stat().st_ino == blob.stat().st_ino
        server.post(f"/v1/jobs/{job}/stop", {})
        server.wait(job)
    assert main(["backup", str(copy), "--verify"]) == 0
    assert "is whole" in capsys.readouterr().out
    with live_server(copy) as restored:
        curve = restored.get(f"/v1/runs/{over}/metrics/loss")
        assert curve["first_step"] == list(range(300))
        assert restored.get(f"/v1/runs/{job}/metrics/loss")["points"] > 0
        restored.post(f"/v1/jobs/{job}/stop", {})  # what ran when the copy was made has been started again
        restored.wait(job)


def test_a_database_that_grows_meanwhile_is_copied_as_it_was_at_one_moment(tmp_path: Path) -> None:
    source = home_with(tmp_path)
    over = threading.Event()

    def grow() -> None:
        with metric_store(source.store_url) as made:
            at = 50
            while not over.is_set():
                made.add("r", 1, 0, loss=curve_of(range(at, at + 20)))
                made.metrics._compaction.compact("r")
                at += 20

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        for number in range(5):
            copy = tmp_path / f"copy-{number}"
            assert back_up(source, copy, quiet).problems == []
            assert verify(copy, quiet).problems == []
            with metric_store(f"sqlite:///{copy}/muster.db") as restored:
                steps = restored.metrics.points("r", "loss").step.tolist()
                assert steps == list(range(len(steps)))
                assert restored.metrics.summaries(["r"])["r"]["loss"].points == len(steps) >= 50
    finally:
        over.set()
        writer.join()


def test_what_is_private_stays_private_and_what_is_damaged_is_named(tmp_path: Path) -> None:
    source, copy = home_with(tmp_path), tmp_path / "copy"
    bad = put_blob(source.home, b"good")
    bad.write_bytes(b"evil")
    made = back_up(source, copy, quiet)
    assert len(made.problems) == 1
    assert bad.name in made.problems[0]
    for name in ("muster.db", "key"):
        assert stat.S_IMODE((copy / name).stat().st_mode) == 0o600
    assert stat.S_IMODE(copy.stat().st_mode) == 0o700
    assert (copy / "config.toml.copy").read_text() == "port = 0\n"
    bad.unlink()
    other = tmp_path / "other"
    assert back_up(source, other, quiet).problems == []
    content = next(path for path in (other / "blobs").glob("*/*") if path.stat().st_size)
    content.unlink()
    with (other / "muster.db").open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 100)
    problems = verify(other, quiet).problems
    assert [("muster.db" in problem, content.name in problem) for problem in problems] == [(True, False), (False, True)]
    assert main(["backup", str(other), "--verify"]) == 1


def test_what_is_no_backup_or_no_place_for_one_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, copy = home_with(tmp_path), tmp_path / "copy"
    copy.mkdir()
    (copy / "mine.txt").write_text("do not touch")
    with pytest.raises(Invalid, match="is not empty"):
        back_up(source, copy, quiet)
    assert [path.name for path in copy.iterdir()] == ["mine.txt"]
    with pytest.raises(NotFound, match="no manifest"):
        verify(copy, quiet)
    monkeypatch.setenv("MUSTER_HOME", str(tmp_path / "nowhere"))
    assert main(["backup", str(tmp_path / "new")]) == 1
    assert "There is no database" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_postgresql_is_dumped_and_restored(
    postgres_server: Postgres, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with metric_store(postgres_url) as made:
        made.add("r", 1, 0, loss=curve_of(range(100)))
    source, copy = Source(postgres_url, tmp_path, None, "s3://bucket/x"), tmp_path / "copy"
    assert set(back_up(source, copy, quiet).files) == {"muster.pgdump"}
    assert verify(copy, quiet).problems == []
    assert json.loads((copy / "manifest.json").read_text())["content"] == "s3://bucket/x"
    binaries = postgres_binaries()
    assert binaries is not None
    with postgres_server.database() as name:
        target = postgres_server.url(name)
        restore = [str(binaries / "pg_restore"), "--no-owner", f"--dbname={target}", str(copy / "muster.pgdump")]
        subprocess.run(restore, check=True, timeout=180)
        with metric_store(target) as restored:
            assert restored.metrics.points("r", "loss").step.tolist() == list(range(100))
    wrong = sqlalchemy.make_url(postgres_url).set(database="nobody").render_as_string()
    with pytest.raises(Exception, match="pg_dump failed"):
        back_up(Source(wrong, tmp_path, None), tmp_path / "second", quiet)
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter(()))
    with pytest.raises(ConfigError, match="copied by `pg_dump`"):
        back_up(source, tmp_path / "third", quiet)
    assert not os.path.exists(tmp_path / "third")  # noqa: PTH110  (Path is tampered with)
