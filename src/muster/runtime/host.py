"""The launcher's own reports about a rank: rows of figures and documents, in a spool next to the rank's own."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from muster import wire
from muster.runtime import processes
from muster.runtime.plain import plain
from muster.runtime.spool import SpoolDamaged
from muster.runtime.writer import SpoolWriter

FOLDER: Final = "host"  # below the rank's folder


@dataclass
class HostStream:
    """Opened at the first report; a folder that can't be used is logged once."""

    rank_dir: Path
    _writer: SpoolWriter | None = None
    _off: bool = False
    _shapes: dict[tuple[str, ...], int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def row(self, step: int, values: Mapping[str, float]) -> None:
        """Writes one value for each series."""
        names = tuple(values)
        with self._lock:
            writer = self._opened()
            if writer is None or not names:
                return
            shape = self._shapes.get(names)
            record = b""
            if shape is None:
                shape = self._shapes[names] = len(self._shapes)
                record = wire.shape_record(shape, names)
            row = wire.row_struct(len(names))
            writer.append(record + row.pack(wire.KIND_ROW, shape, row.size, step, time.time(), *values.values()))

    def document(self, doc: Mapping[str, Any]) -> None:
        """Writes one document, complete with its type."""
        with self._lock:
            writer = self._opened()
            if writer is not None:
                writer.append(wire.doc_record(plain({"time": time.time(), **doc})))

    def safe(self) -> bool:
        """Whether everything written is on disk, or never will be."""
        with self._lock:
            return self._writer is None or self._writer.flush() == 0

    def _opened(self) -> SpoolWriter | None:
        if self._writer is None and not self._off:
            folder = self.rank_dir / FOLDER
            writer = SpoolWriter(folder)
            try:
                folder.mkdir(parents=True, exist_ok=True)
                writer.open()
                self._writer = writer
            except (OSError, SpoolDamaged) as error:
                self._off = True
                processes.log_line(f"{folder} cannot be used, so hardware and files are not told: {error}")
        return self._writer
