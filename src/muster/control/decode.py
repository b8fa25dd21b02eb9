"""Decodes the records of a rank's spool into columns as they are stored: steps, times and values of each metric.

Nearly all data is runs of rows of one shape. They are cut into columns by strided copies, without one Python object per
value. Works on little-endian machines only, like the memory-mapped spool itself.
"""

from __future__ import annotations

import json
import math
import re
import struct
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, NoReturn

from muster import wire
from muster.store.base import Column

DEPTH: Final = 64  # maximum nesting of a document; documents that Muster itself writes have 20 levels at most
DROPPED: Final = "dropped"  # type of a document that replaces one that was not kept
_FAR: Final = 7  # rows; a run that is not longer is decoded row by row, which is faster then
_FIRST_WINDOW: Final = 16  # headers compared in the first step; doubled while they agree
_LAST_WINDOW: Final = 1 << 14
_NUL: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")  # an escaped NUL, but not an escaped backslash followed by u0000


@dataclass(frozen=True, slots=True)
class Decoded:
    columns: dict[str, Column]
    docs: list[dict[str, Any]]
    shapes: dict[int, tuple[str, ...]]  # the given ones, and those that the records define


def decode(records: bytes, shapes: dict[int, tuple[str, ...]]) -> Decoded:
    """Decodes whole records. `shapes` are the known ones. Raises ValueError for anything that is not a whole record."""
    if len(records) % 8:
        raise ValueError(f"{len(records)} bytes are not whole records: their sizes are multiples of 8")
    found = Decoded({}, [], dict(shapes))
    words = memoryview(records).cast("Q")
    layouts: dict[int, _Layout] = {}  # by header: kind, shape and size in one word
    at = 0
    while at < len(words):
        head = words[at]
        if head & 0xFFFF != wire.KIND_ROW:
            at += _document(found, records, 8 * at, head) // 8
            layouts.clear()  # a shape may have a new meaning: a second process may continue the same spool
            continue
        layout = layouts.get(head)
        if layout is None:
            layouts[head] = layout = _layout(found, head, 8 * at)
        stride, unpack, columns = layout
        if at + stride > len(words):
            raise ValueError(f"at byte {8 * at}: a row of {8 * stride} bytes; {len(records) - 8 * at} are left")
        after, far = at + stride, at + _FAR * stride
        if far < len(words) and words[far] == head and words[after] == head:
            after = at + _run(words, at, stride) * stride
            _many(columns, words[at:after], stride, 8 * at)
        else:
            _one(columns, unpack(records, 8 * at), 8 * at)
        at = after
    return found


class _Layout(NamedTuple):
    stride: int  # words per row
    unpack: Callable[[bytes, int], tuple[Any, ...]]  # step, time, values
    columns: list[Column]


def _layout(found: Decoded, head: int, at: int) -> _Layout:
    shape, size = head >> 16 & 0xFFFF, head >> 32
    names = found.shapes.get(shape)
    if names is None:
        raise ValueError(f"at byte {at}: a row of shape {shape}, which no record has brought")
    if size != wire.ROW_FIXED + 8 * len(names):
        raise ValueError(f"at byte {at}: a row of {size} bytes for {len(names)} metrics")
    columns = [found.columns.setdefault(name, Column()) for name in names]
    return _Layout(size // 8, struct.Struct(f"<8xqd{len(names)}d").unpack_from, columns)


def _run(words: memoryview[int], at: int, stride: int) -> int:
    """The number of consecutive records from `at` on that have the same header."""
    head, most = words[at], (len(words) - at) // stride
    count, window = 1, _FIRST_WINDOW
    while count < most:
        upto = min(most, count + window)
        heads = words[at + count * stride : at + (upto - 1) * stride + 1 : stride].tolist()
        same = heads.count(head)
        if same < len(heads):
            return count + next(i for i, each in enumerate(heads) if each != head)
        count = upto
        window = min(2 * window, _LAST_WINDOW)
    return count


def _one(columns: list[Column], row: tuple[Any, ...], at: int) -> None:
    step, time = row[0], row[1]
    if not math.isfinite(time):
        _no_time(at)
    for place, column in enumerate(columns, start=2):
        column.steps.append(step)
        column.times.append(time)
        column.values.append(row[place])


def _many(columns: list[Column], rows: memoryview[int], stride: int, at: int) -> None:
    steps, times = rows[1::stride].tobytes(), rows[2::stride].tobytes()
    if not math.isfinite(sum(array("d", times))):
        _no_time(at)
    for place, column in enumerate(columns, start=3):
        column.steps.frombytes(steps)
        column.times.frombytes(times)
        column.values.frombytes(rows[place::stride].tobytes())


def _no_time(at: int) -> NoReturn:
    raise ValueError(f"at byte {at}: a row, or one of those that follow it, without a time")


def _document(found: Decoded, records: bytes, at: int, head: int) -> int:
    """Decodes a shape or a document and returns its size in bytes."""
    kind, argument, size = head & 0xFFFF, head >> 16 & 0xFFFF, head >> 32
    if size % 8 or size < wire.RECORD_HEADER.size or at + size > len(records):
        raise ValueError(f"at byte {at}: a record of {size} bytes; {len(records) - at} are left")
    payload = records[at + wire.RECORD_HEADER.size : at + size]
    if kind == wire.KIND_SHAPE:
        found.shapes[argument] = _shape(payload, at, argument)
    elif kind == wire.KIND_DOC:
        # An empty document replaces a damaged record that had no room for more.
        if doc := _doc(payload, at):
            found.docs.append(doc)
    else:
        raise ValueError(f"at byte {at}: a record of kind {kind}, which does not exist")
    return size


def _shape(payload: bytes, at: int, shape: int) -> tuple[str, ...]:
    names = _json(payload, at)
    if shape >= wire.SHAPES_MAX:
        raise ValueError(f"at byte {at}: shape {shape}; there are at most {wire.SHAPES_MAX}")
    if not isinstance(names, list) or not all(
        isinstance(name, str) and 0 < len(name) <= wire.NAME_MAX for name in names
    ):
        raise ValueError(f"at byte {at}: shape {shape} is not a list of names of at most {wire.NAME_MAX} characters")
    if len(set(names)) != len(names):
        raise ValueError(f"at byte {at}: shape {shape} names a metric twice")
    return tuple(names)


def _doc(payload: bytes, at: int) -> dict[str, Any]:
    if _too_deep(payload):
        # Refusing it would block everything that the rank wrote after it, forever.
        why = f"{len(payload):,} bytes of JSON, nested more than {DEPTH} deep"
        return {"type": DROPPED, "time": 0.0, "why": why}
    doc = _json(payload, at)
    if doc == {}:
        return {}
    if not isinstance(doc, dict) or not isinstance(doc.get("type"), str):
        raise ValueError(f"at byte {at}: a document without a type")
    time = doc.get("time")
    if not isinstance(time, int | float) or isinstance(time, bool) or not abs(time) < 1e18:  # seconds
        raise ValueError(f"at byte {at}: a document without a time")
    return doc


def _too_deep(payload: bytes) -> bool:
    """Whether the JSON is nested too deeply. Brackets in strings count too, so it is parsed only if there are many."""
    if payload.count(b"[") + payload.count(b"{") <= DEPTH:
        return False
    try:
        level = [json.loads(payload.rstrip(b"\0"))]
    except RecursionError:
        return True
    except ValueError:
        return False  # `_json` reports the error
    for _ in range(DEPTH + 1):
        level = [inner for one in level for inner in _inside(one)]
    return bool(level)


def _inside(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _json(payload: bytes, at: int) -> Any:
    """Accepts only JSON that databases and browsers accept too: no NaN, no NUL, no half of a surrogate pair."""
    try:
        text = payload.rstrip(b"\0").decode("utf-8")
        found = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
        if "\\u" in text:
            json.dumps(found, ensure_ascii=False).encode("utf-8")  # UnicodeEncodeError is a ValueError
            if _NUL.search(text):
                raise ValueError("a NUL character")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"at byte {at}: not the JSON that a rank writes: {error}") from error
    return found


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _no_constant(text)


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number in JSON")
