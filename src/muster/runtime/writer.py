"""The writer of a rank's spool: records go straight into a mapped file, so a killed rank loses none of them.

Training never waits or fails because of it: while the disk has no room for a new segment, records are kept in memory,
up to a limit, and a new segment is tried about once a second and at exit.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import sys
import time
from collections import deque
from pathlib import Path
from typing import Final

from muster import wire
from muster.runtime.rank_info import warn
from muster.runtime.spool import CAPACITY, HEADER_BYTES, SpoolDamaged, read_segment, segment_numbers, segment_path

BACKLOG_BYTES: Final = 64 << 20
RETRY_SECONDS: Final = 1.0
_OVERHEAD: Final = 48  # bytes that Python needs to keep one record in memory, besides its own
_PATIENCE: Final = 20  # rounds of yielding to another thread
_COMMITTED_WORD: Final = wire.SEGMENT_COMMITTED_AT // 8


class SpoolWriter:
    """Appends records from any thread, and from signal handlers and finalizers that interrupt an append.

    A lock costs as much as the rest of an append, and a handler that interrupts its holder would wait for ever. So a
    writer puts its own record, which no other append has, under the single key of `_owner`: `setdefault` decides
    atomically, and after an exception at any point it is known which append holds it. The second append leaves its
    record in `_late` and looks again; the first looks there when it is done. So one of the two writes it.
    """

    __slots__ = (
        "_at",
        "_backlog",
        "_base",
        "_dropped",
        "_folder",
        "_folder_fd",
        "_held",
        "_late",
        "_limit",
        "_map",
        "_number",
        "_owner",
        "_retry_at",
        "_words",
    )
    _map: mmap.mmap  # the current segment; there is one when `_limit` is not 0
    _words: memoryview[int]  # the same, in words: an aligned store, so a reader sees the old length or the new one

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folder_fd = -1
        self._owner: dict[int, object] = {}
        self._late: deque[bytes] = deque()  # records that came during another append
        # Only the owner uses the rest.
        self._at = HEADER_BYTES  # where the next record goes in the segment
        self._limit = 0  # bytes of the current segment; 0 when there is none
        self._number = -1
        self._base = 0  # offset in the stream where the current segment starts
        self._backlog: deque[bytes] = deque()  # what the disk had no room for, in order
        self._held = 0  # bytes in the backlog
        self._dropped = 0  # records lost since the last note about it
        self._retry_at = 0.0  # monotonic time before which no segment is created

    def open(self) -> None:
        """Claims the folder for this process and continues after the existing segments.

        Raises BlockingIOError when another process writes here, SpoolDamaged when the end can't be determined.
        """
        self._folder_fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(self._folder_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            numbers = segment_numbers(self._folder)
            if numbers:
                last = read_segment(self._folder, numbers[-1])
                self._number, self._base = last.number, last.end
        except ValueError as error:
            self.abandon()
            raise SpoolDamaged(0, str(error)) from error
        except BaseException:
            self.abandon()
            raise

    def append(self, record: bytes) -> None:
        """Writes a record, or several concatenated ones. No other append may use the same object.

        It is in the segment when this returns, or in memory while the disk is full. Beyond the limit it is dropped and
        counted, unless it has a shape, without which later rows could not be read.
        """
        owner = self._owner
        try:
            if owner.setdefault(0, record) is not record:
                self._late.append(record)
            elif not self._backlog and (end := self._at + len(record)) <= self._limit:
                self._map[self._at : end] = record
                self._at = end
                self._words[_COMMITTED_WORD] = end - HEADER_BYTES
                del owner[0]
            else:
                self._late.append(record)
                del owner[0]
        except BaseException:
            if 0 in owner and owner[0] is record:  # no call: a second signal must not come in between
                del owner[0]
            raise
        if self._late:
            self._settle()

    def flush(self) -> int:
        """Writes what is kept in memory, if the disk accepts it now. Returns how many records were not written."""
        self._retry_at = 0.0
        self._settle()
        return len(self._late) + len(self._backlog) + self._dropped

    def abandon(self) -> None:
        """Releases the folder; in a forked child, the parent's."""
        if self._folder_fd >= 0:
            os.close(self._folder_fd)
            self._folder_fd = -1

    def _settle(self) -> None:
        for _ in range(_PATIENCE):
            self._drain()
            if not self._late or _interrupts_an_append():
                return
            time.sleep(0)  # lets the writing thread continue

    def _drain(self) -> None:
        owner, token = self._owner, object()
        try:
            if owner.setdefault(0, token) is token:
                while self._late:
                    self._keep_first()
                self._write_backlog()
        finally:
            if 0 in owner and owner[0] is token:
                del owner[0]

    def _keep_first(self) -> None:
        """Moves a record from `_late` to the backlog.
        Statements that belong together contain no call, as in `_roll`."""
        record = self._late[0]
        size = len(record) + _OVERHEAD
        full = self._held + size > BACKLOG_BYTES and not self._write_backlog()
        if (full and record[0] != wire.KIND_SHAPE) or len(record) > CAPACITY:
            self._dropped += 1
        else:
            self._backlog += (record,)
            self._held += size
        del self._late[0]

    def _write_backlog(self) -> bool:
        """Writes the backlog to the segment. False when the disk is full."""
        while self._backlog or self._dropped:
            if not self._backlog:
                note = _dropped_note(self._dropped)
                size = len(note) + _OVERHEAD
                self._backlog += (note,)
                self._held += size
                self._dropped = 0
            record = self._backlog[0]
            size = len(record)
            if self._at + size > self._limit and not self._roll():
                return False
            end = self._at + size
            self._map[self._at : end] = record
            self._at = end
            self._words[_COMMITTED_WORD] = end - HEADER_BYTES
            del self._backlog[0]
            self._held -= size + _OVERHEAD
        return True

    def _roll(self) -> bool:
        """Starts a new segment. False when the disk has no room, or was tried less than a second ago."""
        now = time.monotonic()
        if now < self._retry_at:
            return False
        base = self._base + (self._at - HEADER_BYTES if self._limit else 0)
        try:
            fresh = _create(self._folder, self._number + 1, base)
        except OSError as error:
            if error.errno is None:  # not a disk error: a timeout raised by a signal handler
                raise
            if self._retry_at == 0.0:
                warn(f"reports are kept in memory for now: {self._folder} gives no room for them: {error}.")
            self._retry_at = now + RETRY_SECONDS
            return False
        words = memoryview(fresh).cast("Q")
        full = (self._map, self._words) if self._limit else None
        # Without a call, because signal handlers run when one returns:
        # what they raise finds the old state or the new one.
        self._map, self._words, self._at, self._limit, self._number, self._base, self._retry_at = (
            fresh, words, HEADER_BYTES, wire.SEGMENT_BYTES, self._number + 1, base, 0.0
        )  # fmt: skip
        if full:
            full[0][wire.SEGMENT_FLAGS_AT] = wire.SEGMENT_SEALED
            full[1].release()
            full[0].close()
        return True


def _interrupts_an_append() -> bool:
    """True in a handler or finalizer that interrupts an append, which will look into `_late` itself."""
    frame = sys._getframe(2).f_back  # beyond this function, `_settle` and the append that called it
    while frame is not None:
        if frame.f_code is SpoolWriter.append.__code__ or frame.f_code is SpoolWriter.flush.__code__:
            return True
        frame = frame.f_back
    return False


def _create(folder: Path, number: int, base: int) -> mmap.mmap:
    """A new segment, complete before it gets its name.
    Its blocks are reserved, so that a full disk is an error now and not a SIGBUS when a page is first written."""
    draft = folder / f".spool.{number}"
    fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.posix_fallocate(fd, 0, wire.SEGMENT_BYTES)
        fresh = mmap.mmap(fd, wire.SEGMENT_BYTES)
        fresh[:HEADER_BYTES] = wire.SEGMENT_HEADER.pack(wire.SEGMENT_MAGIC, number, 0, base, 0)
        draft.rename(segment_path(folder, number))
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)
    return fresh


def _dropped_note(count: int) -> bytes:
    text = f"{count} reports were dropped: the disk was full and {BACKLOG_BYTES >> 20} MiB of memory for them as well"
    return wire.doc_record({"type": "note", "time": time.time(), "text": text, "dropped": count})
