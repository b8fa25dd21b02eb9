"""Reports of a rank: metrics once a step, progress, parameters and notes, written to its spool in about a microsecond.

Everything here may be called from any thread and from signal handlers. Outside Muster, in a process that a rank forked,
and in a second process beside the one that reports for the rank, the calls do nothing.
"""

from __future__ import annotations

import atexit
import math
import os
import struct
import threading
import time
from collections.abc import Callable
from operator import index
from pathlib import Path
from typing import Any, Final, SupportsFloat, SupportsIndex

from muster import wire
from muster.runtime import PROCESS
from muster.runtime.place import warn
from muster.runtime.plain import plain, text
from muster.runtime.spool import SpoolDamaged
from muster.runtime.writer import SpoolWriter

PROGRESS_SECONDS: Final = 0.25  # progress is written at most this often
_RESERVED: Final = frozenset({"type", "time"})

Number = SupportsFloat | SupportsIndex
_Layout = tuple[Callable[..., bytes], int, Callable[[bytes], None]]  # packs a row; its header as one word; writes it


class Reporter:
    """Reports into one rank's folder; without one, into the folder that the environment names when it is first used."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._lock = threading.RLock()  # for opening and for new shapes; a row of a known shape does without
        self._writer: SpoolWriter | None = None
        self._off = False
        self._layouts: dict[str | tuple[str, ...], _Layout] = {}  # one metric by its name, several by their names
        self._ids: dict[tuple[str, ...], int] = {}
        self._place: tuple[Any, str, bool] | None = None  # of the last progress: total, unit, whether it is reached
        self._place_due = 0.0  # monotonic time from which progress is written again
        self._place_held: dict[str, Any] | None = None  # progress that came too soon: written at exit at the latest

    def report(self, /, step: SupportsIndex, **metrics: Number) -> None:
        """Records one value for each metric at a step: `report(step=i, loss=loss, lr=lr)`.

        A value is what float() takes, other than text: numbers, NumPy and torch scalars; NaN and infinities too.
        Raises TypeError for what is not a number and ValueError for a name that can't be stored.
        """
        try:
            if len(metrics) == 1:
                (name,) = metrics
                pack, header, append = self._layouts[name]
                record = pack(header, step, time.time(), metrics[name])
            else:
                pack, header, append = self._layouts[tuple(metrics)]
                record = pack(header, step, time.time(), *metrics.values())
        except KeyError:  # a new set of names, or nothing to report to
            record = None
        except Exception:
            _explain(step, metrics)
            raise  # it was not the values: what a signal handler raised just then goes on
        if record is not None:
            append(record)
        else:
            self._report_anew(step, metrics)

    def progress(self, /, step: SupportsIndex, total: Number | None = None, unit: str = "step", **more: Any) -> None:
        """Says where the run is: `progress(done, total=steps, unit="step", tokens=n)`; cheap enough for every step.

        Written four times a second at most, and always the first, one with a new total and the one that reaches it.
        """
        if self._off:
            return
        if not _RESERVED.isdisjoint(more):
            raise ValueError(f"progress(): {sorted(_RESERVED & more.keys())} are set by Muster. Choose other names.")
        done = _step(step)
        goal = plain(total) if total is not None and math.isfinite(total) else None
        doc = {"type": "progress", "time": time.time(), "step": done, "total": goal, "unit": unit, **more}
        place = (goal, unit, goal is not None and done >= goal)
        now = time.monotonic()
        with self._lock:
            if place == self._place and now < self._place_due:
                self._place_held = doc
                return
            self._place, self._place_due, self._place_held = place, now + PROGRESS_SECONDS, None
        self._write(doc)

    def params(self, /, **values: Any) -> None:
        """Records parameters of the run; later values replace earlier ones of the same name."""
        self._write({"type": "params", "time": time.time(), "values": values})

    def note(self, text: str) -> None:
        """Adds a line to the run's logbook."""
        self._write({"type": "note", "time": time.time(), "text": str(text)})

    def document(self, kind: wire.DocType, **fields: Any) -> None:
        """Records a document of another kind."""
        self._write({"type": kind, "time": time.time(), **fields})

    def start(self) -> None:
        """Opens the spool, which tells the launcher that this rank uses the runtime."""
        self._opened()

    def flush(self) -> None:
        """Writes what is still in memory, if the disk takes it. Also done at exit."""
        held, self._place_held = self._place_held, None
        if held:
            self._write(held)
        if self._writer and (left := self._writer.flush()):
            warn(f"{left} reports could not be written: {self._folder} gives no room for them.")

    def _write(self, doc: dict[str, Any]) -> None:
        writer = self._opened()
        if writer is None:
            return
        record = wire.doc_record(plain(doc))
        if len(record) > wire.DOC_MAX:
            raise ValueError(
                f"{doc['type']}: {len(record)} bytes as JSON; at most {wire.DOC_MAX} can be recorded. "
                "Save what is large as a file and record where it is."
            )
        writer.append(record)

    def _report_anew(self, step: SupportsIndex, metrics: dict[str, Number]) -> None:
        """A row whose layout is not known yet."""
        writer = self._opened()
        if writer is None or not metrics:
            return
        names = tuple(metrics)
        key = names[0] if len(names) == 1 else names
        number, values = _explain(step, metrics)
        with self._lock:
            known = self._layouts.get(key)
            pack, header, append = known or self._layout(names, writer)
            row = pack(header, number, time.time(), *values)
            append(row if known else wire.shape_record(self._ids[names], names) + row)
            self._layouts[key] = pack, header, append

    def _layout(self, names: tuple[str, ...], writer: SpoolWriter) -> _Layout:
        for name in names:
            _check_name(name)
        if names not in self._ids and len(self._ids) >= wire.SHAPES_MAX:
            raise ValueError(
                f"report(): {names[:4]} would be set {wire.SHAPES_MAX + 1} of metric names; a process may use "
                f"{wire.SHAPES_MAX}. Don't put a step, a time or an id into a metric's name."
            )
        if max(len(wire.shape_record(0, names)), wire.ROW_FIXED + 8 * len(names)) > wire.DOC_MAX:
            raise ValueError(
                f"report(): {len(names)} metrics at once; a record of them is past {wire.DOC_MAX} bytes. Report less."
            )
        shape = self._ids.setdefault(names, len(self._ids))
        size = wire.ROW_FIXED + 8 * len(names)
        header = int.from_bytes(wire.RECORD_HEADER.pack(wire.KIND_ROW, shape, size), "little")
        # The same bytes as `wire.row_struct`, with the three fields of the header as one: fewer arguments, less time.
        return struct.Struct(f"<Qqd{len(names)}d").pack, header, writer.append

    def _opened(self) -> SpoolWriter | None:
        if self._writer is None and not self._off:
            with self._lock:
                if self._writer is None and not self._off:
                    self._open()
        return self._writer

    def _open(self) -> None:
        named = os.environ.get(wire.RANK_DIR)
        if self._folder is None and named:
            self._folder = Path(named)
        if self._folder is None or os.getpid() != PROCESS:
            self._off = True
            return
        writer = SpoolWriter(self._folder)
        try:
            writer.open()
        except BlockingIOError:
            self._off = True
            warn(f"reports of process {os.getpid()} are not recorded: another one reports for this rank already.")
            return
        except (OSError, SpoolDamaged) as error:
            self._off = True
            warn(f"reports are not recorded: {self._folder} cannot be used: {error}.")
            return
        os.register_at_fork(after_in_child=self._forked)
        atexit.register(self.flush)
        writer.append(wire.doc_record({"type": "started", "time": time.time(), "pid": os.getpid()}))
        self._writer = writer

    def _forked(self) -> None:
        """The segment belongs to the parent: the child, with a copy of its state, must not write a byte."""
        writer, self._writer, self._off = self._writer, None, True
        self._layouts, self._place_held, self._lock = {}, None, threading.RLock()
        if writer:
            writer.abandon()


def _explain(step: SupportsIndex, metrics: dict[str, Number]) -> tuple[int, list[float]]:
    """The numbers that a report stands for; raises what says which of them is none."""
    return _step(step), [_number(step, name, value) for name, value in metrics.items()]


def _number(step: SupportsIndex, name: str, value: Number) -> float:
    try:
        if isinstance(value, str | bytes | bytearray):
            raise TypeError("text is not converted")
        return float(value)
    except OverflowError:
        raise ValueError(f"report(step={step}): metric {name!r} is past the range of a 64-bit float.") from None
    except Exception as error:
        raise TypeError(
            f"report(step={step}): metric {name!r} got {_short(value)} ({type(value).__name__}); expected one number. "
            f"Pass a float, or leave it out. ({error})"
        ) from error


def _step(step: SupportsIndex) -> int:
    try:
        number = index(step)
    except TypeError:
        raise TypeError(
            f"step got {_short(step)} ({type(step).__name__}); expected a whole number. Pass int(step)."
        ) from None
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"step got {_short(step)}; expected a number of 64 bits. Count steps from 0.")
    return number


def _check_name(name: str) -> None:
    if not 0 < len(name) <= wire.NAME_MAX:
        raise ValueError(
            f"report(): a metric's name of {len(name)} characters, {_short(name)}; expected 1 to {wire.NAME_MAX}."
        )
    if name != text(name):
        raise ValueError(
            f"report(): metric {_short(name)} has a NUL or half a surrogate pair in its name. Use other characters."
        )


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."


_reporter: Final = Reporter()
report = _reporter.report
progress = _reporter.progress
params = _reporter.params
note = _reporter.note
document = _reporter.document
start = _reporter.start
flush = _reporter.flush
