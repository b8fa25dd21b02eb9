"""The databases that a measurement of the record is made on: SQLite in a new folder, and a PostgreSQL of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def databases() -> Iterator[tuple[str, str]]:
    """Name and URL of each, new and empty; PostgreSQL is left out, with a word, where it is not installed."""
    with tempfile.TemporaryDirectory() as folder:
        yield "sqlite", f"sqlite:///{folder}/muster.db"
    if binaries() is None:
        print("PostgreSQL is not installed: left out")
        return
    with postgres() as url:
        yield "postgresql", url


def binaries() -> Path | None:
    """Where Debian puts them, newest first, or what the PATH says."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if found := shutil.which("initdb"):
        places.append(Path(found).parent)
    return next((place for place in places if (place / "initdb").exists()), None)


@contextmanager
def postgres() -> Iterator[str]:
    """A server with its defaults, durable commits among them, reached by a socket in its own folder alone."""
    place = binaries()
    assert place is not None, "PostgreSQL is not installed"
    with tempfile.TemporaryDirectory(prefix="muster-pg-", ignore_cleanup_errors=True) as folder:
        user: dict[str, Any] = {"cwd": folder}
        if os.geteuid() == 0:  # it refuses to be root
            user |= {"user": "postgres", "group": "postgres", "extra_groups": []}
            shutil.chown(folder, "postgres", "postgres")
        data = Path(folder) / "data"
        init: list[str | Path] = [
            place / "initdb",
            "-D",
            data,
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
        ]
        subprocess.run(init, check=True, capture_output=True, **user)
        serve: list[str | Path] = [place / "postgres", "-D", data, "-k", folder, "-c", "listen_addresses="]
        with (Path(folder) / "log").open("wb") as log:
            server = subprocess.Popen(serve, stdout=log, stderr=log, **user)
        try:
            _wait(place, folder, user)
            yield f"postgresql://postgres@/postgres?host={folder}"
        finally:
            server.terminate()
            server.wait(60)


def _wait(place: Path, folder: str, user: dict[str, Any]) -> None:
    deadline = time.monotonic() + 60
    while subprocess.run([place / "pg_isready", "-q", "-h", folder], **user).returncode:
        if time.monotonic() > deadline:
            raise SystemExit(f"PostgreSQL does not answer: {(Path(folder) / 'log').read_text()[-1000:]}")
        time.sleep(0.05)
