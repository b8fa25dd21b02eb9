"""The reports of a rank: metrics per step, progress, parameters, tags, data and notes, in about a microsecond per step.

Everything here may be called from any thread and from signal handlers. Outside Muster, in a process that a rank forked,
and in a second process besides the one that reports for the rank, the calls do nothing.
"""

from __future__ import annotations

import atexit
import math
import os
import struct
import threading
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal, SupportsIndex

from muster import wire
from muster.runtime import PROCESS
from muster.runtime.checks import VALUE_MAX, Number, check_keys, check_name, explain, mapping, short, whole
from muster.runtime.plain import plain
from muster.runtime.rank_info import warn
from muster.runtime.spool import SpoolDamaged
from muster.runtime.writer import SpoolWriter

PROGRESS_SECONDS: Final = 0.25  # progress is written at most this often
_RESERVED: Final = frozenset({"type", "time"})
_Layout = tuple[Callable[..., bytes], int, Callable[[bytes], None]]  # packs a row; its header as one word; writes it


class Reporter:
    """Reports into one rank's folder; by default the one in the environment at first use."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._lock = threading.RLock()  # for opening and for new shapes; a row of a known shape needs no lock
        self._writer: SpoolWriter | None = None
        self._off = False
        self._layouts: dict[str | tuple[str, ...], _Layout] = {}  # one metric by its name, several by their names
        self._ids: dict[tuple[str, ...], int] = {}
        self._place: tuple[Any, str, bool] | None = None  # of the last progress: total, unit, whether it is reached
        self._place_due = 0.0  # monotonic time from which progress is written again
        self._place_held: dict[str, Any] | None = None  # progress that came too soon: written at exit at the latest

    def report(self, /, step: SupportsIndex, **metrics: Number) -> None:
        """Records one value for each metric at a step: `report(step=i, loss=loss, lr=lr)`.

        A value is anything that float() takes, except text: numbers, NumPy and torch scalars; NaN and infinities too.
        Raises TypeError for a value that is not a number and ValueError for a name that can't be stored.
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
            explain(step, metrics)
            raise  # the values were fine: re-raise what a signal handler raised
        if record is not None:
            append(record)
        else:
            self._report_anew(step, metrics)

    def log(self, values: Mapping[str, Number], step: SupportsIndex) -> None:
        """The same with the metrics in a mapping, so that a name may be any text: `log({"loss/train": loss}, step)`."""
        try:
            if len(values) == 1:
                (name,) = values
                pack, header, append = self._layouts[name]
                record = pack(header, step, time.time(), values[name])
            else:
                pack, header, append = self._layouts[tuple(values)]
                record = pack(header, step, time.time(), *values.values())
        except KeyError:
            record = None
        except Exception:
            explain(step, mapping(values))
            raise
        if record is not None:
            append(record)
        else:
            self._report_anew(step, mapping(values))

    def progress(self, /, step: SupportsIndex, total: Number | None = None, unit: str = "step", **more: Any) -> None:
        """Records the run's progress: `progress(done, total=steps, unit="step", tokens=n)`; cheap enough for every
        step.

        Written four times a second at most; always written are the first, one with a new total and the one that reaches
        it.
        """
        if self._off:
            return
        if not _RESERVED.isdisjoint(more):
            raise ValueError(f"progress(): {sorted(_RESERVED & more.keys())} are set by Muster. Choose other names.")
        done = whole(step)
        goal = plain(total) if total is not None and math.isfinite(total) else None
        doc = {"type": "progress", "time": time.time(), "step": done, "total": goal, "unit": unit, **more}
        place = (goal, unit, goal is not None and done >= goal)
        now = time.monotonic()
        with self._lock:
            if place == self._place and now < self._place_due:
                self._place_held = doc
                return
            self._place, self._place_due, self._place_held = place, now + PROGRESS_SECONDS, None
        self.write(doc)

    def params(self, /, **values: Any) -> None:
        """Records parameters of the run; later values replace earlier ones of the same name."""
        check_keys("params()", values)
        self.write({"type": "params", "time": time.time(), "values": values})

    def tags(self, /, **values: str | None) -> None:
        """Sets tags of the run; None removes one."""
        check_keys("tags()", values)
        shown = {key: None if value is None else str(value) for key, value in values.items()}
        for key, value in shown.items():
            if value is not None and len(value) > VALUE_MAX:
                raise ValueError(
                    f"tags(): {key!r} got a text of {len(value)} characters; expected {VALUE_MAX} at most. "
                    "Put long texts into the logbook: `note`."
                )
        self.write({"type": "tags", "time": time.time(), "values": shown})

    def note(self, text: str) -> None:
        """Adds a line to the run's logbook."""
        self.write({"type": "note", "time": time.time(), "text": str(text)})

    def data(
        self,
        name: str,
        version: str | None = None,
        *,
        digest: str | None = None,
        uri: str | None = None,
        role: Literal["input", "output"] = "input",
        rows: int | None = None,
        bytes: int | None = None,
        **about: Any,
    ) -> None:
        """Records the data that the run reads, or (`role="output"`) writes:
        `data("c4-en", "v3", digest=..., rows=n)`."""
        check_keys("data()", {name: None})
        if role not in ("input", "output"):
            raise ValueError(f"data({name!r}): role got {short(role)}; expected 'input' or 'output'.")
        doc = {"name": name, "version": version, "digest": digest, "uri": uri, "rows": rows, "bytes": bytes}
        given = {key: value for key, value in doc.items() if value is not None}
        self.write({"type": "data", "time": time.time(), **given, "role": role, "about": about})

    def document(self, kind: wire.DocType, /, **fields: Any) -> None:
        """Records a document of another kind."""
        self.write({"type": kind, "time": time.time(), **fields})

    def start(self) -> None:
        """Opens the spool, which shows the launcher that this rank uses the runtime."""
        self._opened()

    def place(self) -> Path | None:
        """The folder that this process reports into; None when its calls do nothing."""
        return self._folder if self._opened() is not None else None

    def mirror(self, target: str, **settings: Any) -> None:
        """Passes rank 0's reports from now on to another tool as well: `mirror("wandb", project="x")` with the
        arguments of wandb.init, or `mirror("tensorboard:FOLDER")`. Raises ValueError for any other tool."""
        writer = self._opened()
        if writer is None:
            return
        with self._lock:
            known = {shape: names for names, shape in self._ids.items()}
            # Imported on demand: most scripts never use it.
            self._writer = import_module("muster.runtime.mirrors").mirrored(writer, target, known, **settings)
            self._layouts = {}  # the old ones write to the spool only

    def flush(self) -> None:
        """Writes what is still in memory, if the disk accepts it. Also called at exit."""
        held, self._place_held = self._place_held, None
        if held:
            self.write(held)
        if self._writer and (left := self._writer.flush()):
            warn(f"{left} reports could not be written: {self._folder} gives no room for them.")

    def write(self, doc: dict[str, Any]) -> None:
        """Records a document with its type and time."""
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
        """Writes a row whose layout is not known yet."""
        writer = self._opened()
        if writer is None or not metrics:
            return
        names = tuple(metrics)
        key = names[0] if len(names) == 1 else names
        number, values = explain(step, metrics)
        with self._lock:
            known = self._layouts.get(key)
            pack, header, append = known or self._layout(names, writer)
            row = pack(header, number, time.time(), *values)
            append(row if known else wire.shape_record(self._ids[names], names) + row)
            self._layouts[key] = pack, header, append

    def _layout(self, names: tuple[str, ...], writer: SpoolWriter) -> _Layout:
        for name in names:
            check_name(name)
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
        # The same bytes as `wire.row_struct`, with the header's three fields as one: fewer arguments, less time.
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
        if os.environ.get(wire.MIRROR):
            writer = import_module("muster.runtime.mirrors").by_environment(writer)
        self._writer = writer

    def _forked(self) -> None:
        """Called in a forked child. The segment belongs to the parent: the child must not write a byte to it."""
        writer, self._writer, self._off = self._writer, None, True
        self._layouts, self._place_held, self._lock = {}, None, threading.RLock()
        if writer:
            writer.abandon()


shared: Final = Reporter()
report = shared.report
progress = shared.progress
log = shared.log
params = shared.params
tags = shared.tags
data = shared.data
note = shared.note
document = shared.document
mirror = shared.mirror
start = shared.start
flush = shared.flush
