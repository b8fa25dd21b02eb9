"""Brings a job's code to a node that lacks its folder: fetches the snapshot's files, by digest, from the server.

Fetched files are cached for the other workers of the node. All content is verified by its digest: the launch has the
manifest's digest, and the manifest those of its files. Ranks get copies, so that no job can write into another's.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from muster.runtime import processes
from muster.runtime.channel import BACKOFF_FIRST, BACKOFF_LAST, Away, Channel, Gone

ROUTE: Final = "/v1/ingest/code"
BUNDLE: Final = 8 << 20  # bytes of files per request
BUNDLE_FILES: Final = 1000
KEEP: Final = 7 * 86400.0  # seconds that an unused file is kept
PRUNE_EVERY: Final = 86400.0  # seconds
ROUNDS: Final = 5  # how often files may be missing from the cache, or damaged, before giving up
_DIGEST: Final = re.compile("[0-9a-f]{64}")
_HEAD: Final = 72  # bytes before each file in a bundle: its digest, its size in hex
_BUNDLED: Final = re.compile("[0-9a-f]{72}")

Files = Mapping[str, tuple[str, int, int]]  # path → digest, bytes, mode
Wait = Callable[[float], bool]


def bring(channel: Channel, tree: str, into: Path, cache: Path, wait: Wait) -> Path:
    """Creates the snapshot's files under `into`, completely or not at all. Raises Away once `wait(seconds)` returns
    False.

    Raises Gone, with the reason, when the snapshot can never be fetched, and OSError for a disk error.
    """
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    requester = _Requester(channel, wait)
    try:
        for _ in range(ROUNDS):
            if _try(requester, tree, into, cache):
                _prune(cache)
                return into
    finally:
        channel.turn_away()  # closes the connection
    raise Gone(f"what the server sends as snapshot {tree} is not that")


def _try(requester: _Requester, tree: str, into: Path, cache: Path) -> bool:
    manifest = _read(cache, tree)
    if manifest is None:
        _keep(cache, tree, requester.manifest())
        manifest = _read(cache, tree)
    if manifest is None:
        return False
    files = parse(manifest)
    for group in groups({digest: size for digest, size, _ in files.values() if not (cache / digest).exists()}):
        requester.files(group, cache)
    processes.fault("after_fetching")
    return _build(files, into, cache)


def parse(manifest: bytes) -> Files:
    """Parses a manifest. Raises Gone for an invalid one, or one with paths outside of the folder."""
    try:
        raw = json.loads(manifest)
        files = {str(path): (str(digest), int(size), int(mode)) for path, (digest, size, mode) in raw.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise Gone(f"its manifest makes no sense: {error}") from None
    for path, (digest, _, _) in files.items():
        if path.startswith("/") or "\0" in path or not _DIGEST.fullmatch(digest):
            raise Gone(f"its manifest holds {path!r}")
        if any(part in ("", ".", "..") for part in path.split("/")):
            raise Gone(f"its manifest holds {path!r}, which leads out of the folder")
    return files


def groups(sizes: Mapping[str, int]) -> Iterator[list[str]]:
    """Splits digests into groups that fit into memory."""
    group: list[str] = []
    room = BUNDLE
    for digest, size in sizes.items():
        if group and (size > room or len(group) >= BUNDLE_FILES):
            yield group
            group, room = [], BUNDLE
        group.append(digest)
        room -= size
    if group:
        yield group


class _Requester:
    """Repeats requests until there is an answer."""

    def __init__(self, channel: Channel, wait: Wait) -> None:
        self._channel, self._wait = channel, wait

    def manifest(self) -> bytes:
        return self._call("GET", ROUTE, None)

    def files(self, digests: list[str], cache: Path) -> None:
        """Fetches files and stores the valid ones."""
        body = self._call("POST", f"{ROUTE}/bundle", json.dumps(digests).encode())
        for digest, data in _unbundled(body):
            if digest in digests:
                _keep(cache, digest, data)

    def _call(self, method: str, path: str, body: bytes | None) -> bytes:
        delay = BACKOFF_FIRST
        while True:
            try:
                status, answer = self._channel.call(method, path, body)
                if status == 200:
                    return answer
                if status in (404, 410):
                    raise Gone(f"the server does not have it (status {status})")
                self._channel.turn_away()
            except Away:
                pass
            if not self._wait(delay):
                raise Away(f"pid {os.getpid()} was told to stop before the code was there")
            delay = min(2 * delay, BACKOFF_LAST)


def _unbundled(body: bytes) -> Iterator[tuple[str, bytes]]:
    """The files of a bundle, up to the first invalid entry; missing ones are requested again."""
    at = 0
    while at + _HEAD <= len(body):
        head = body[at : at + _HEAD].decode("ascii", "replace")
        if not _BUNDLED.fullmatch(head):
            return
        at += _HEAD
        size = int(head[64:], 16)
        yield head[:64], body[at : at + size]
        at += size


def _keep(cache: Path, digest: str, data: bytes) -> None:
    """Stores a file atomically; content that does not match the digest is dropped."""
    if hashlib.sha256(data).hexdigest() != digest:
        return
    draft = cache / f".{digest}.{os.urandom(4).hex()}"
    try:
        draft.write_bytes(data)
        draft.replace(cache / digest)
    finally:
        draft.unlink(missing_ok=True)


def _read(cache: Path, digest: str) -> bytes | None:
    """A file of the cache; None when it is missing, or damaged by a power failure."""
    path = cache / digest
    try:
        data = path.read_bytes()
        os.utime(path)
    except FileNotFoundError:
        return None
    if hashlib.sha256(data).hexdigest() != digest:
        path.unlink(missing_ok=True)
        return None
    return data


def _build(files: Files, into: Path, cache: Path) -> bool:
    """Builds the folder. Returns False when a file was missing from the cache, or damaged."""
    draft = into.with_name(f".{into.name}.{os.urandom(4).hex()}")
    try:
        draft.mkdir()
        for path, (digest, _, mode) in files.items():
            data = _read(cache, digest)
            if data is None:
                return False
            target = draft / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
            target.chmod(0o755 if mode & 0o100 else 0o644)
        draft.rename(into)
        return True
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _prune(cache: Path) -> None:
    """Removes files that were not used for long; once a day, because it scans everything."""
    mark = cache / ".pruned"
    now = time.time()
    with contextlib.suppress(OSError):
        if mark.exists() and now - mark.stat().st_mtime < PRUNE_EVERY:
            return
        mark.touch()
        for entry in os.scandir(cache):
            if now - entry.stat().st_mtime > KEEP:
                os.unlink(entry.path)  # noqa: PTH108  (thousands of them)
