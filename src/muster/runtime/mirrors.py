"""Mirrors: pass rank 0's reports on to W&B or TensorBoard, by a thread that the script never waits for.

    MUSTER_MIRROR=wandb                       each attempt becomes a W&B run, in a group named by the job's id
    MUSTER_MIRROR=tensorboard:FOLDER          event files under FOLDER/JOB-ATTEMPT
    runtime.mirror("wandb", project="x")      the same from the script, with the arguments of wandb.init

Several may be given, separated by commas. Artifacts and images stay with Muster only.
"""

from __future__ import annotations

import atexit
import json
import os
import struct
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any, Final, Protocol

from muster import wire
from muster.runtime.mirror_sinks import TensorBoardSink, WandbSink
from muster.runtime.rank_info import rank, warn
from muster.runtime.writer import SpoolWriter

_MOST: Final = 500_000  # records that wait; further ones are counted and not mirrored
_PAUSE: Final = 0.5  # seconds between two looks
_AT_EXIT: Final = 20.0  # seconds that the script's exit waits for pending records

Shapes = dict[int, tuple[str, ...]]


class Sink(Protocol):
    """Another tool. One thread calls it; an exception ends the mirror, and never the script."""

    name: str

    def open(self) -> None: ...

    def row(self, step: int, time: float, values: dict[str, float]) -> None: ...

    def document(self, doc: dict[str, Any]) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


class Mirrored(SpoolWriter):
    """A spool that also passes on what is written to it.
    Separate from `SpoolWriter`, as most scripts have no mirror."""

    __slots__ = ("_inner", "_mirror")

    def __init__(self, inner: SpoolWriter, mirror: Mirror) -> None:
        self._inner, self._mirror = inner, mirror

    def open(self) -> None:
        self._inner.open()

    def append(self, record: bytes) -> None:
        self._inner.append(record)
        self._mirror.take(record)

    def flush(self) -> int:
        return self._inner.flush()

    def abandon(self) -> None:
        self._inner.abandon()
        self._mirror.abandon()


class Mirror:
    """Keeps records until its thread passes them on."""

    def __init__(self, sink: Sink, shapes: Shapes) -> None:
        self._sink, self._shapes = sink, dict(shapes)
        self._waiting: deque[bytes] = deque()
        self._brought: deque[bytes] = deque()  # records with a shape: never dropped
        self._dropped = 0
        self._off = False
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"muster-mirror-{sink.name}", daemon=True)

    def start(self) -> None:
        atexit.register(self.close)
        self._thread.start()

    def take(self, record: bytes) -> None:
        """Some 100 ns; from any thread."""
        if self._off:
            return
        if record[0] == wire.KIND_SHAPE:
            self._brought.append(record)
        if len(self._waiting) < _MOST:
            self._waiting.append(record)
        else:
            self._dropped += 1

    def close(self) -> None:
        """Waits, for a while, until everything is passed on. Also called at exit."""
        if not self._off:
            self._ending.set()
            self._thread.join(_AT_EXIT)
            if self._thread.is_alive():
                warn(f"{self._sink.name} did not take the last {len(self._waiting)} reports in {_AT_EXIT:g} s.")
                self._off = True

    def abandon(self) -> None:
        """Called in a forked child, which does not have this thread."""
        self._off = True
        self._waiting.clear()

    def _run(self) -> None:
        try:
            self._sink.open()
            atexit.register(self.close)  # again, to run before what the other tool registered to end its run
            while not self._ending.wait(_PAUSE):
                self._hand_on()
            self._hand_on()
            if self._dropped:
                warn(f"{self._sink.name} was too slow: {self._dropped} reports are not mirrored, and in Muster alone.")
            self._sink.close()
        except Exception as error:
            warn(f"reports are no longer mirrored to {self._sink.name}: {error}. Muster has them all.")
        finally:
            self._off = True
            self._waiting.clear()

    def _hand_on(self) -> None:
        while self._brought:
            for kind, argument, payload in _records(self._brought.popleft()):
                if kind == wire.KIND_SHAPE:
                    self._shapes[argument] = tuple(json.loads(payload.rstrip(b"\0")))
        while self._waiting:
            for kind, argument, payload in _records(self._waiting.popleft()):
                if kind == wire.KIND_ROW and argument in self._shapes:
                    self._row(self._shapes[argument], payload)
                elif kind == wire.KIND_DOC:
                    self._sink.document(json.loads(payload.rstrip(b"\0")))
        self._sink.flush()

    def _row(self, names: tuple[str, ...], payload: bytes) -> None:
        step, time, *values = struct.unpack(f"<qd{len(names)}d", payload)
        self._sink.row(step, time, dict(zip(names, values, strict=True)))


def mirrored(writer: SpoolWriter, target: str, shapes: Shapes, **settings: Any) -> SpoolWriter:
    """The writer, with mirrors for everything in `target`; raises ValueError for an unknown one."""
    sinks = [_sink(one.strip(), settings) for one in target.split(",") if one.strip()]
    if rank() != 0:
        return writer
    for sink in sinks:
        mirror = Mirror(sink, shapes)
        mirror.start()
        writer = Mirrored(writer, mirror)
    return writer


def by_environment(writer: SpoolWriter) -> SpoolWriter:
    """As MUSTER_MIRROR says; a mistake in it leads to a warning and does not stop training."""
    target = os.environ.get(wire.MIRROR, "")
    try:
        return mirrored(writer, target, {}) if target else writer
    except ValueError as error:
        warn(f"{wire.MIRROR}: {error}")
        return writer


def _sink(target: str, settings: dict[str, Any]) -> Sink:
    name, _, folder = target.partition(":")
    if name == "wandb" and not folder:
        return WandbSink(settings)
    if name == "tensorboard" and not settings:
        return TensorBoardSink(folder or "tensorboard")
    raise ValueError(f"got {target!r}; expected wandb, tensorboard:FOLDER, or both with a comma between.")


def _records(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Kind, argument and payload of each record."""
    at = 0
    while at < len(data):
        kind, argument, size = wire.RECORD_HEADER.unpack_from(data, at)
        yield kind, argument, data[at + wire.RECORD_HEADER.size : at + size]
        at += size
