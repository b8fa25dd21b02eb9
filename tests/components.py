"""Real outside components for tests: what to do when one is missing, and a PostgreSQL of our own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from live import until
from muster.store.tables import metadata


def require(name: str, found: bool, how: str) -> None:
    """Leaves the test out, with a word, when a component is missing; with CI=true that is a failure."""
    if found:
        return
    words = f"left out: needs {name}. {how}"
    if os.environ.get("CI") == "true":
        pytest.fail(words)
    pytest.skip(words)


def memory_groups() -> tuple[Path, str]:
    """Where a memory control group can be made, and the file of its limit; version 1 where it is mounted, else 2."""
    root = Path("/sys/fs/cgroup")
    if (root / "memory").is_dir():
        return root / "memory", "memory.limit_in_bytes"
    switch = root / "cgroup.subtree_control"
    if os.access(switch, os.W_OK) and "memory" not in switch.read_text().split():
        switch.write_text("+memory")
    return root, "memory.max"


def require_root(what: str) -> None:
    require(f"root, to {what}", os.geteuid() == 0, "Run the tests as root, in a container for instance.")


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of its own with room for `size`, such as `2m`."""
    require_root("mount a small file system")
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@dataclass
class Postgres:
    """A server in a folder of its own, reached by a socket in that folder and by nothing else."""

    folder: Path
    binaries: Path
    made: int = 0
    process: subprocess.Popen[bytes] | None = None
    user: dict[str, Any] = field(default_factory=dict)  # whom to run it as: it refuses to be root

    def init(self) -> None:
        if os.geteuid() == 0:
            self.user = {"user": "postgres", "group": "postgres", "extra_groups": []}
            shutil.chown(self.folder, "postgres", "postgres")
        command = [self.binaries / "initdb", "-D", self.folder / "data", "-U", "postgres", "-A", "trust", "--no-sync"]
        done = subprocess.run(
            [*command, "-E", "UTF8", "--locale=C"], capture_output=True, cwd=self.folder, timeout=120, **self.user
        )
        assert done.returncode == 0, done.stderr.decode()

    def start(self) -> None:
        # The disk's flushes are off: these tests end processes, not machines.
        settings = ["fsync=off", "listen_addresses=", "max_connections=60", "log_min_messages=fatal"]
        options = [word for setting in settings for word in ("-c", setting)]
        command = [self.binaries / "postgres", "-D", self.folder / "data", "-k", self.folder, "-p", "5432"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen([*command, *options], stdout=log, stderr=log, cwd=self.folder, **self.user)
        until(self._answers, "PostgreSQL to answer")

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT ends every session and leaves in order; SIGQUIT leaves as a crash would."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(180)
            self.process = None

    def sql(self, text: str) -> None:
        with psycopg.connect(f"host={self.folder} user=postgres dbname=postgres", autocommit=True) as connection:
            connection.execute(text)

    def url(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self.folder}"

    @contextmanager
    def database(self, options: str = "") -> Iterator[str]:
        """A new, empty database, by name."""
        self.made += 1
        name = f"test_{self.made}"
        self.sql(f"CREATE DATABASE {name} {options}")
        try:
            yield name
        finally:
            self.sql(f"DROP DATABASE {name} WITH (FORCE)")

    def _answers(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(f"PostgreSQL left:\n{(self.folder / 'log').read_text()[-2000:]}")
        try:
            self.sql("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True


@contextmanager
def postgres() -> Iterator[Postgres]:
    binaries = postgres_binaries()
    require("PostgreSQL", binaries is not None, "Install it: apt-get install postgresql.")
    assert binaries is not None
    # A socket's path has at most 107 characters, which pytest's own folders may pass.
    with tempfile.TemporaryDirectory(prefix="muster-pg-", ignore_cleanup_errors=True) as folder:
        server = Postgres(Path(folder), binaries)
        server.init()
        server.start()
        try:
            yield server
        finally:
            server.stop()


def clear(url: str) -> None:
    """Brings a database back to what it was when Muster had just made its tables, and ends whoever still uses it."""
    with psycopg.connect(url) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        names = [name for name in metadata.tables if name != "head"]
        asked = " UNION ALL ".join(f"SELECT '{name}' WHERE EXISTS (SELECT FROM \"{name}\")" for name in names)
        used = [name for (name,) in connection.execute(asked.encode()).fetchall()]
        if used:
            words = ", ".join(f'"{name}"' for name in used)
            connection.execute(f"TRUNCATE {words} CASCADE".encode())
        counted = "SELECT sequencename FROM pg_sequences WHERE last_value IS NOT NULL"
        for (name,) in connection.execute(counted).fetchall():
            connection.execute(f'ALTER SEQUENCE "{name}" RESTART'.encode())
        connection.execute("UPDATE head SET turn = 0, token = '', version = 0, time = 0")


def postgres_binaries() -> Path | None:
    """Where Debian puts them, newest first; or what pg_config or the PATH say."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    if pg_config := shutil.which("pg_config"):
        places.append(Path(subprocess.run([pg_config, "--bindir"], capture_output=True, text=True).stdout.strip()))
    if found := shutil.which("initdb"):
        places.append(Path(found).parent)
    return next((place for place in places if (place / "initdb").exists() and (place / "postgres").exists()), None)
