"""Ships the files that ranks gave: first the content, by its digest, then a document that names it.

A file is removed only after that. Interrupted steps are repeated: the server stores content once, and each document has
an id.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

from muster import wire
from muster.runtime import processes
from muster.runtime.channel import BACKOFF_FIRST, BACKOFF_LAST, Away, Channel
from muster.runtime.untrusted import exists, names, open_plain, read_plain, remove

LOOK: Final = 0.5  # seconds between two looks for files
ANSWER: Final = 600.0  # seconds that a server may take to make a large file durable
CHANGES_MAX: Final = 20  # times that a file may change while it is sent before it is skipped
NOTE_MAX: Final = 2 * wire.DOC_MAX  # bytes
ASKED_FIRST: Final = 1 << 20  # bytes
_CHUNK: Final = 1 << 20
_TAKEN: Final = (200, 201, 204)
_REFUSED: Final = (409, 413, 415, 422)

State = Literal["sent", "later", "lost", "gone"]


@dataclass
class Uploader:
    """For one thread: `run` continues until everything is shipped after `finish`, or until the server wants no more."""

    folders: Mapping[int, Path]  # rank → folder of its files
    channel: Channel
    document: Callable[[dict[str, Any]], None]  # reports what was shipped
    safe: Callable[[], bool]  # whether everything reported is on disk
    say: Callable[[int, str], None]
    isolated: bool = False  # the ranks have fewer rights than this process: only what they copied is shipped
    _wake: threading.Event = field(default_factory=threading.Event)
    _finishing: bool = False
    _have: set[str] = field(default_factory=set)  # digests that the server received from here
    _shipped_notes: dict[str, list[Path]] = field(
        default_factory=dict
    )  # files to remove once their document is on disk
    _tries: dict[str, int] = field(default_factory=dict)
    _trouble: str = ""

    def finish(self) -> None:
        """Called when no rank is left that could give more files."""
        self._finishing = True
        self._wake.set()

    def run(self) -> None:
        delay = BACKOFF_FIRST
        while True:
            finishing = self._finishing  # before the look: nothing is given after it was set
            self._wake.clear()
            try:
                waiting = self._round(finishing)
                delay = BACKOFF_FIRST
            except Away as away:
                self._complain(str(away))
                waiting, delay = True, min(2 * delay, BACKOFF_LAST)
            except _Gone:
                return
            if finishing and not waiting:
                return
            self._wake.wait(delay if waiting else LOOK)

    def _round(self, finishing: bool) -> bool:
        """Ships what there is; True when something is left to retry."""
        left = False
        for rank, folder in self.folders.items():
            for note in sorted(folder / name for name in names(folder) if name.endswith(".json")):
                if note.stem not in self._shipped_notes and self._one(rank, note, finishing) == "later":
                    left = True
                    break  # keeps the order: later files may have the same name
        if self._shipped_notes and self.safe():
            for paths in self._shipped_notes.values():
                for path in paths:
                    remove(path.parent, path.name)
            self._shipped_notes.clear()
        return left or bool(self._shipped_notes)

    def _one(self, rank: int, note: Path, finishing: bool) -> State:
        try:
            note_doc = _understood(read_plain(note.parent, note.name, NOTE_MAX))
            doc = {**note_doc["doc"], "rank": rank}
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            return self._lose(rank, note, {}, f"its note can't be read: {error!r}")
        data = note.with_suffix(".data")
        if not exists(data.parent, data.name):
            if not finishing and (self.isolated or _alive(note_doc)):  # process ids in a sandbox are different
                return "later"
            if not self.isolated:
                data = Path(str(note_doc.get("source", "")))
        try:
            copied = data == note.with_suffix(".data")
            with os.fdopen(open_plain(data.parent, data.name), "rb") if copied else data.open("rb") as file:
                return self._send(rank, note, note_doc, doc, file)
        except (FileNotFoundError, IsADirectoryError):
            return self._lose(rank, note, doc, "the process was killed while it was copied, and the original is gone")
        except (OSError, ValueError) as error:
            return self._lose(rank, note, doc, f"it can't be read: {error}")

    def _send(self, rank: int, note: Path, note_doc: dict[str, Any], doc: dict[str, Any], file: BinaryIO) -> State:
        digest, size = _digest(file)
        doc |= {"digest": digest, "bytes": size}
        if _changed(note_doc, os.fstat(file.fileno()), size):
            doc["about"] = {**doc.get("about", {}), "changed": True}  # written to after it was given
        if digest not in self._have and not self._there(digest, size):
            file.seek(0)
            status, body = self.channel.send_file(f"/v1/ingest/blobs/{digest}", file, size, ANSWER)
            if status == 410:
                raise _Gone
            if status == 400 or status in _REFUSED:
                why = f"the server refused it with status {status}: {body[:300].decode(errors='replace')}"
                return self._again(rank, note, doc, why) if status == 400 else self._lose(rank, note, doc, why)
            if status not in _TAKEN:
                self.channel.turn_away()
                raise Away(f"status {status} for a file: {body[:300].decode(errors='replace')}")
        self._have.add(digest)
        processes.fault("after_upload")
        self.document(doc)
        self._shipped_notes[note.stem] = [note.with_suffix(".data"), note]
        processes.fault("after_document")
        return "sent"

    def _there(self, digest: str, size: int) -> bool:
        """Whether the server has a large file from elsewhere; a small one is sent without asking."""
        return size >= ASKED_FIRST and self.channel.call("HEAD", f"/v1/ingest/blobs/{digest}")[0] == 200

    def _again(self, rank: int, note: Path, doc: dict[str, Any], why: str) -> State:
        """Retries a file whose content did not match its digest: most likely it was written to while it was sent."""
        self._tries[note.stem] = self._tries.get(note.stem, 0) + 1
        return "later" if self._tries[note.stem] < CHANGES_MAX else self._lose(rank, note, doc, why)

    def _lose(self, rank: int, note: Path, doc: dict[str, Any], why: str) -> State:
        text = f"{doc.get('type', 'file')} {doc.get('path') or doc.get('name') or note.stem!r} is not recorded: {why}"
        self.say(rank, text)
        self.document({"type": "note", "time": time.time(), "text": text})
        self._shipped_notes[note.stem] = [note.with_suffix(".data"), note]
        return "lost"

    def _complain(self, why: str) -> None:
        if why != self._trouble:
            processes.log_line(f"files can't be shipped: {why}")
            self._trouble = why


class _Gone(Exception):
    """The server wants nothing more of this attempt."""


def _understood(note: bytes) -> dict[str, Any]:
    """Parses a rank's note about a file, which may contain anything. Raises ValueError, KeyError or TypeError."""
    note_doc: dict[str, Any] = json.loads(note)
    numbers = [note_doc[name] for name in ("pid", "start_ticks", "size", "mtime_ns") if name in note_doc]
    if not all(isinstance(number, int) for number in numbers) or ("mtime_ns" in note_doc and "size" not in note_doc):
        raise ValueError("its numbers are not those of a file")
    if not isinstance(note_doc["doc"], dict) or not isinstance(note_doc["doc"].get("about", {}), dict):
        raise TypeError("it describes nothing")
    return note_doc


def _digest(file: BinaryIO) -> tuple[str, int]:
    found, size = hashlib.sha256(), 0
    while chunk := file.read(_CHUNK):
        found.update(chunk)
        size += len(chunk)
    return found.hexdigest(), size


def _changed(note_doc: Mapping[str, Any], found: os.stat_result, size: int) -> bool:
    """Whether the file changed. Only a link, or a file that was never copied, can show that;
    a copy has its own time."""
    if "mtime_ns" not in note_doc:
        return False
    if size != note_doc["size"]:
        return True
    return found.st_nlink > 1 and found.st_mtime_ns != note_doc["mtime_ns"]


def _alive(note_doc: Mapping[str, Any]) -> bool:
    found = processes.stat(int(note_doc.get("pid", 0))) if note_doc.get("pid") else None
    return found is not None and found.start_ticks == note_doc.get("start_ticks")
