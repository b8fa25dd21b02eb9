"""TensorBoard export: `tensorboard --logdir FOLDER` shows the runs, without Muster or TensorFlow."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from muster.foreign import tbevent
from muster.foreign.crc32c import masked
from muster.foreign.protobuf import bytes_field, text_field
from muster.foreign.tfrecord import FOOT, HEAD, framed, length_crc
from muster.track.exporters.base import ExportedRun, Facts, Medium, Series, Written, file_name
from muster.track.exporters.crc32c_batch import crc32c_long, crc32c_rows, masked_rows
from muster.track.exporters.files import whole_file

_CHUNK: Final = 32_768  # points encoded at a time
_MOST_ROWS: Final = 200  # of a table that is shown as text


class TensorBoardExporter:
    about = "event files: a folder for each run, rank-N for the other ranks, superseded for what was reported anew"

    def export(self, runs: Iterable[ExportedRun], folder: Path, superseded: bool = False) -> Iterator[Written]:
        for run in runs:
            own = folder / file_name(run.facts.id)
            with ExitStack() as stack:
                files = _Files(own, run.facts, stack)
                points = sum(files.add(each) for each in run.series(superseded))
                media = sum(files.show(medium) for medium in run.media())
            yield Written(run.facts.id, own, points, media)


class _Files:
    """The event files of one run. A file is opened when something is written to it."""

    def __init__(self, folder: Path, facts: Facts, stack: ExitStack) -> None:
        self._folder, self._facts, self._stack = folder, facts, stack
        self._open: dict[str, IO[bytes]] = {}

    def add(self, series: Series) -> int:
        where = f"rank-{series.rank}" if series.rank else ""
        if series.superseded:
            where = f"{where}/superseded".lstrip("/")
        file = self._file(where)
        for start in range(0, len(series.steps), _CHUNK):
            part = slice(start, start + _CHUNK)
            file.write(encoded(series.name, series.steps[part], series.times[part], series.values[part]))
        return len(series.steps)

    def show(self, medium: Medium) -> int:
        value = _value(medium)
        if value is None:
            return 0
        event = tbevent.event(medium.time, medium.step, value)
        self._file(f"rank-{medium.rank}" if medium.rank else "").write(framed(event, crc32c_long(event)))
        return 1

    def _file(self, where: str) -> IO[bytes]:
        if where not in self._open:
            began = self._facts.started_at or self._facts.created_at
            path = self._folder / where / f"events.out.tfevents.{int(began):010d}.{file_name(self._facts.id)}"
            file = self._open[where] = self._stack.enter_context(whole_file(path))
            file.write(framed(tbevent.first_event(began)))
            if not where:
                file.write(_about(self._facts, began))
        return self._open[where]


def encoded(tag: str, steps: NDArray[Any], times: NDArray[Any], values: NDArray[Any]) -> bytes:
    """Framed events with one scalar each, in this order. Same as `tbevent.scalar`, but thousands at a time."""
    with np.errstate(over="ignore"):
        singles = values.astype("<f4")
    # Only the varint of the step has no fixed size: neighbouring steps with varints of one size are encoded together.
    sizes = _varint_sizes(steps)
    cuts = [0, *(np.flatnonzero(np.diff(sizes)) + 1).tolist(), len(steps)]
    parts = []
    for start, stop in pairwise(cuts):
        part = slice(start, stop)
        if stop > start:
            parts.append(_same_size(tag, int(sizes[start]), steps[part], times[part], singles[part]))
    return b"".join(parts)


def _same_size(tag: str, size: int, steps: NDArray[Any], times: NDArray[Any], values: NDArray[Any]) -> bytes:
    value = text_field(1, tag) + b"\x15" + bytes(4)
    tail = bytes_field(5, bytes_field(1, value))
    length = 9 + 1 + size + len(tail)
    rows = np.zeros((len(steps), HEAD.size + length + FOOT.size), np.uint8)
    rows[:, : HEAD.size] = np.frombuffer(HEAD.pack(length, masked(length_crc(length))), np.uint8)
    body = rows[:, HEAD.size : HEAD.size + length]
    body[:, 0] = 0x09
    body[:, 1:9] = np.ascontiguousarray(times, "<f8").view(np.uint8).reshape(-1, 8)
    body[:, 9] = 0x10
    left = steps.astype(np.int64).view(np.uint64)
    for place in range(size):
        more = 0x80 if place < size - 1 else 0
        body[:, 10 + place] = (left & np.uint64(0x7F)).astype(np.uint8) | np.uint8(more)
        left = left >> np.uint64(7)
    body[:, 10 + size :] = np.frombuffer(tail, np.uint8)
    body[:, length - 4 :] = np.ascontiguousarray(values).view(np.uint8).reshape(-1, 4)
    checks = masked_rows(crc32c_rows(body)).astype("<u4")
    rows[:, HEAD.size + length :] = checks.view(np.uint8).reshape(-1, 4)
    return rows.tobytes()


def _varint_sizes(steps: NDArray[Any]) -> NDArray[np.int64]:
    bounds = np.array([1 << (7 * count) for count in range(1, 10)], np.uint64)
    return np.searchsorted(bounds, steps.astype(np.int64).view(np.uint64), side="right") + 1


def _about(facts: Facts, began: float) -> bytes:
    """The run's parameters for the hyperparameter page, and its description as a text."""
    params = {name: _param(value) for name, value in facts.params.items()}
    events = [tbevent.event(began, 0, tbevent.session_start(params, facts.id, began))]
    lines = [f"**{name}**: {text}  " for name, text in (("run", facts.id), ("purpose", facts.purpose)) if text]
    lines += [f"**{key}**: {value}  " for key, value in sorted(facts.tags.items())]
    events.append(tbevent.event(began, 0, tbevent.text("muster/run", "\n".join(lines))))
    if facts.ended_at is not None:
        events.append(tbevent.event(facts.ended_at, 0, tbevent.session_end(facts.phase, facts.ended_at)))
    return b"".join(framed(event, crc32c_long(event)) for event in events)


def _param(text: str) -> tbevent.Param:
    if text in ("True", "False", "true", "false"):
        return text in ("True", "true")
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text


def _value(medium: Medium) -> bytes | None:
    """The medium as a TensorBoard value; None if TensorBoard has no page for its kind."""
    if medium.kind == "image" and medium.content is not None:
        width, height = _png_size(medium.content)
        return tbevent.image(medium.name, medium.content, width, height)
    if medium.kind == "histogram" and (buckets := histogram_of(medium.data)) is not None:
        return tbevent.histogram(medium.name, *buckets)
    if medium.kind == "table" and isinstance(medium.data, dict):
        return tbevent.text(medium.name, _table(medium.data))
    if medium.kind == "text":
        content = medium.content.decode("utf-8", "replace") if medium.content is not None else _plain(medium.data)
        return tbevent.text(medium.name, content)
    return None


def histogram_of(data: Any) -> tuple[list[float], list[float]] | None:
    """The edges and counts of a histogram document; None if it is malformed."""
    if not isinstance(data, dict):
        return None
    edges, counts = data.get("edges"), data.get("counts")
    if not isinstance(edges, list) or not isinstance(counts, list) or not counts or len(edges) != len(counts) + 1:
        return None
    return [float(edge) for edge in edges], [float(count) for count in counts]


def _png_size(content: bytes) -> tuple[int, int]:
    """Width and height from a PNG header. 0 for other formats: TensorBoard only displays the numbers."""
    if content[:8] != b"\x89PNG\r\n\x1a\n" or len(content) < 24:
        return 0, 0
    width, height = struct.unpack_from(">II", content, 16)
    return int(width), int(height)


def _table(data: dict[str, Any]) -> str:
    """A table in Markdown, which TensorBoard renders."""
    columns, rows = data.get("columns") or [], data.get("rows") or []
    lines = [_line(columns), _line("---" for _ in columns), *(_line(row) for row in rows[:_MOST_ROWS])]
    if len(rows) > _MOST_ROWS:
        lines.append(f"\n{len(rows) - _MOST_ROWS} more rows are left out.")
    return "\n".join(lines)


def _line(cells: Iterable[Any]) -> str:
    return "| " + " | ".join(_plain(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _plain(value: Any) -> str:
    if isinstance(value, dict) and set(value) == {"text"}:
        value = value["text"]
    return value if isinstance(value, str) else json.dumps(value)
