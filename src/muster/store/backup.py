"""Backup of a running server: its database at one point in time, its key and its content.

The copy has the layout of a home folder: muster.db (or muster.pgdump), key, blobs/ab/abcd..., and manifest.json, which
is written last and lists the files. A folder without a manifest is an incomplete copy.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, make_url

from muster.core.errors import ConfigError, Invalid, NotFound, Unavailable

MANIFEST: Final = "manifest.json"
VERSION: Final = 1
_PAGES: Final = 2_000  # database pages copied between two progress reports: 8 MB
_BLOCK: Final = 1 << 20
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

Progress = Callable[[str, int, int], None]  # what is copied or checked, bytes done, bytes in all


@dataclass(frozen=True, slots=True)
class Source:
    """What is copied. `blobs` None: the content is stored elsewhere, `elsewhere` says where."""

    store_url: str
    home: Path
    blobs: Path | None
    elsewhere: str = ""


@dataclass(slots=True)
class Copied:
    folder: Path
    files: dict[str, dict[str, Any]] = field(default_factory=dict)  # name → bytes, sha256
    blobs: int = 0
    blob_bytes: int = 0
    problems: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        count = {"blobs": self.blobs, "blob_bytes": self.blob_bytes, "problems": self.problems}
        return {"folder": str(self.folder), "files": self.files, **count}


def back_up(source: Source, folder: Path, progress: Progress) -> Copied:
    """Copies everything into a new or empty folder."""
    url = make_url(source.store_url)
    dump = _check_database(url)
    _check_empty(folder)
    copied = Copied(folder)
    with _writing(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Content first, then the database, then content that is new since. So nothing that the database refers to is
        # missing, even if it is deleted during the backup.
        known = _copy_blobs(source, copied, {}, progress)
        _copy_database(url, dump, source.home, folder, progress)
        known = _copy_blobs(source, copied, known, progress)
        for name in ("key", "config.toml"):
            if (source.home / name).exists():
                _copy_file(source.home / name, folder / _renamed(name))
        _write_manifest(source, copied, known, progress)
    return copied


def _check_empty(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        kind = "is not empty" if folder.is_dir() else "is no folder"
        raise Invalid(f"{folder} {kind}; a backup needs a folder of its own.", "Name a folder that does not exist yet.")


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            hint = "Remove that folder, make room or choose another disk, and try again."
            raise Unavailable(f"There is no room for the backup in {folder}: it is cut off.", hint) from error
        raise Unavailable(f"The backup in {folder} failed: {error}.", "Mend that and try again.") from error
    except sqlite3.Error as error:
        hint = "Make room, or see what `muster doctor` says of the database, and try again."
        raise Unavailable(f"The database could not be copied into {folder}: {error}.", hint) from error


def _check_database(url: URL) -> str:
    """The program that copies the database; "" for SQLite, which needs none."""
    if url.get_backend_name() == "sqlite":
        if not url.database or not Path(url.database).is_file():
            hint = "Name the home folder with `muster --home`, or the database with --store."
            raise NotFound(f"There is no database at {url.database}.", hint)
        return ""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_dump"), key=lambda path: path.parts[-3].zfill(3))
    found = shutil.which("pg_dump") or next((str(place) for place in reversed(places)), None)
    if found is None:
        raise ConfigError(
            "The database is PostgreSQL, which is copied by `pg_dump`, and there is none on this machine.",
            "Install it, for instance with `apt-get install postgresql-client`, or run this where it is.",
        )
    return found


def _copy_database(url: URL, dump: str, home: Path, folder: Path, progress: Progress) -> None:
    if dump:
        _dump(url, dump, folder / "muster.pgdump")
    else:
        _copy_sqlite(Path(url.database or ""), folder / "muster.db", progress)
    if (home / "mlflow.db").exists():
        _copy_sqlite(home / "mlflow.db", folder / "mlflow.db", progress)


def _copy_sqlite(path: Path, target: Path, progress: Progress) -> None:
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    with (
        closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=15)) as source,
        closing(sqlite3.connect(target)) as copy,
    ):
        (size,) = source.execute("PRAGMA page_size").fetchone()
        source.isolation_level = None
        source.execute("BEGIN")
        source.execute("SELECT count(*) FROM sqlite_master").fetchone()  # from here on it reads one snapshot

        def tell(_: int, left: int, pages: int) -> None:
            progress(path.name, (pages - left) * size, pages * size)

        source.backup(copy, pages=_PAGES, progress=tell)
    _sync(target)


def _dump(url: URL, program: str, target: Path) -> None:
    plain = url.set(drivername="postgresql", password=None).render_as_string(hide_password=False)
    environment = {**os.environ, **({"PGPASSWORD": str(url.password)} if url.password else {})}
    command = [program, "--format=custom", "--no-password", f"--file={target}", f"--dbname={plain}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip().splitlines()
        hint = "It must be as new as the server, and be let in by it. Mend that and try again in another folder."
        raise Unavailable(f"pg_dump failed: {said[-1] if said else done.returncode}.", hint)
    target.chmod(0o600)
    _sync(target)


def _copy_blobs(source: Source, copied: Copied, known: dict[str, int], progress: Progress) -> dict[str, int]:
    """Links or copies the content that is not known yet, and reads it to check that it matches its digest."""
    if source.blobs is None or not source.blobs.is_dir():
        return known
    new = {path.name: path for path in source.blobs.glob("[0-9a-f][0-9a-f]/*") if path.name not in known}
    done, total = 0, sum(_size(path) for path in new.values())
    found = dict(known)
    for digest, path in sorted(new.items()):
        target = copied.folder / "blobs" / digest[:2] / digest
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            _link(path, target)
        except FileNotFoundError:
            continue  # deleted a moment ago, by retention or with its run
        size = target.stat().st_size
        if digest_of(target) != digest:
            copied.problems.append(f"The content {digest} is damaged in {source.blobs}: it is not what its name says.")
        found[digest] = size
        copied.blobs, copied.blob_bytes, done = copied.blobs + 1, copied.blob_bytes + size, done + size
        progress("content", done, total)
    return found


def _link(path: Path, target: Path) -> None:
    """Makes a hard link, which is enough because content never changes; copies it if the target is on another disk."""
    try:
        os.link(path, target)
    except FileNotFoundError:
        raise
    except OSError:
        _copy_file(path, target)


def _copy_file(path: Path, target: Path) -> None:
    with path.open("rb") as file, os.fdopen(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as copy:
        shutil.copyfileobj(file, copy, _BLOCK)
        copy.flush()
        os.fsync(copy.fileno())


def _write_manifest(source: Source, copied: Copied, known: dict[str, int], progress: Progress) -> None:
    if known:
        (copied.folder / "blobs.txt").write_text(
            "".join(f"{digest} {size}\n" for digest, size in sorted(known.items()))
        )
    for path in sorted(copied.folder.iterdir()):
        if path.is_file():
            size = path.stat().st_size
            copied.files[path.name] = {"bytes": size, "sha256": digest_of(path)}
            progress(path.name, size, size)
    store = make_url(source.store_url).render_as_string(hide_password=True)
    about = {"version": VERSION, "time": time.time(), "store": store, "content": source.elsewhere or "blobs"}
    text = json.dumps({**about, "files": copied.files, "blobs": len(known)}, indent=2)
    new = copied.folder / f"{MANIFEST}.new"
    new.write_text(text + "\n")
    _sync(new)
    new.replace(copied.folder / MANIFEST)
    _sync(copied.folder)


def _renamed(name: str) -> str:
    """The settings are copied for reference only, under another name: their paths may be wrong for the copy."""
    return "config.toml.copy" if name == "config.toml" else name


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _size(path: Path) -> int:
    with suppress(FileNotFoundError):
        return path.stat().st_size
    return 0


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
