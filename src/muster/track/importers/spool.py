"""Encodes imported items as the stream that a rank would have written, so that the server takes it in as usual.

The same items give the same bytes: an interrupted import continues at the offset that the server has.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from muster import wire
from muster.foreign.tfrecord import Damage
from muster.track.importers.base import Ended, Facts, ImportedFile, ImportedMedium, Item, LeftOut, Rows

_INLINE: Final = 200_000  # bytes of JSON inside a document; larger data is uploaded as a blob
_CHUNK: Final = 1 << 20  # bytes
_LONGEST_NAME: Final = 250  # characters in the name of a parameter, tag or medium
_LONGEST_VALUE: Final = 8000  # characters in the value of a parameter or tag


@dataclass(frozen=True, slots=True)
class Content:
    """A blob that a record refers to, to be uploaded before it: the bytes in `given`, or a file."""

    digest: str
    size: int
    given: bytes | None = None
    file: Path | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """Complete records, and the blobs that they refer to."""

    data: bytes
    points: int = 0
    apart: bool = False  # changes an earlier record: needs its own batch, else the change would not be visible
    contents: tuple[Content, ...] = ()


@dataclass(slots=True)
class Encoder:
    """Encodes the stream of one run. `problems` has texts about what was not imported, `ended` how the run ended."""

    time: float  # for documents without a time
    shapes: dict[tuple[str, ...], int] = field(default_factory=dict)
    problems: Counter[str] = field(default_factory=Counter)
    ended: Ended | None = None
    count: int = 0  # number of media and files so far: part of their ids
    params: dict[str, Any] = field(default_factory=dict)  # latest values

    def pieces(self, items: Iterable[Item]) -> Iterator[Piece]:
        for item in items:
            if isinstance(item, Rows):
                yield from self._rows(item)
            elif isinstance(item, Facts):
                yield from self._facts(item)
            elif isinstance(item, ImportedMedium):
                yield from self._shown(item)
            elif isinstance(item, ImportedFile):
                yield from self._kept(item)
            elif isinstance(item, Ended):
                self.ended = item
            elif isinstance(item, LeftOut | Damage):
                self.problems[item.what if isinstance(item, LeftOut) else str(item)] += 1

    def _rows(self, rows: Rows) -> Iterator[Piece]:
        kept = [at for at, name in enumerate(rows.names) if self._fits(name)]
        if not kept:
            return
        names = tuple(rows.names[at] for at in kept)
        values = np.asarray(rows.values, np.float64)[:, kept]
        shape, head = self._shape(names)
        times = np.asarray(rows.times, np.float64)
        self.time = float(times[-1])
        width = 3 + len(names)
        words = np.empty((len(values), width), "<u8")
        header = wire.RECORD_HEADER.pack(wire.KIND_ROW, shape, 8 * width)
        words[:, 0] = int.from_bytes(header, "little")
        words[:, 1] = np.asarray(rows.steps, np.int64).view(np.uint64)
        words[:, 2] = times.view(np.uint64)
        words[:, 3:] = np.ascontiguousarray(values).view(np.uint64)
        yield Piece(head + words.tobytes(), values.size)

    def _shape(self, names: tuple[str, ...]) -> tuple[int, bytes]:
        """The number of a set of names, and the record that defines it (empty if it is defined already).

        The numbers are limited: when they run out, they are assigned again from 0.
        """
        known = self.shapes.get(names)
        if known is not None:
            return known, b""
        if len(self.shapes) >= wire.SHAPES_MAX:
            self.shapes.clear()
        shape = self.shapes[names] = len(self.shapes)
        return shape, wire.shape_record(shape, names)

    def _facts(self, facts: Facts) -> Iterator[Piece]:
        params = {key: value for key, value in facts.params.items() if self._fits_fact(key, value)}
        tags = {key: value for key, value in facts.tags.items() if self._fits_fact(key, value)}
        if params:
            changed = any(key in self.params and self.params[key] != value for key, value in params.items())
            self.params |= params
            yield replace(self._document("params", values=_plain(params)), apart=changed)
        if tags:
            yield self._document("tags", values=_plain(tags))
        if facts.note:
            yield self._document("note", text=_plain(facts.note))
        if facts.environment is not None:
            yield self._document("environment", **_plain(dict(facts.environment)))

    def _shown(self, shown: ImportedMedium) -> Iterator[Piece]:
        if not self._fits(shown.name):
            return
        self.count += 1
        fields: dict[str, Any] = {"id": f"m{self.count}", "kind": shown.kind, "name": shown.name, "step": shown.step}
        about = {key: value for key, value in shown.about.items() if key != "path"}
        if about:
            fields["about"] = _plain(about)
        content = shown.content
        if content is None:
            data = _plain(shown.data)
            text = json.dumps(data)
            if len(text) <= _INLINE:
                yield self._document("media", time=shown.time, data=data, **fields)
                return
            content, fields["mime"] = text.encode(), "application/json"
        elif shown.mime:
            fields["mime"] = shown.mime
        made = Content(hashlib.sha256(content).hexdigest(), len(content), given=content)
        piece = self._document("media", time=shown.time, digest=made.digest, bytes=made.size, **fields)
        yield Piece(piece.data, contents=(made,))

    def _kept(self, kept: ImportedFile) -> Iterator[Piece]:
        self.count += 1
        digest, size = hashlib.sha256(), 0
        with kept.file.open("rb") as file:
            while part := file.read(_CHUNK):
                digest.update(part)
                size += len(part)
        made = Content(digest.hexdigest(), size, file=kept.file)
        fields: dict[str, Any] = {
            "id": f"a{self.count}",
            "path": kept.path,
            "digest": made.digest,
            "bytes": size,
            "kind": "file",
        }
        yield Piece(self._document("artifact", **fields).data, contents=(made,))

    def _document(self, type_: str, time: float | None = None, **fields: Any) -> Piece:
        when = self.time if time is None or not math.isfinite(time) else time
        record = wire.doc_record({"type": type_, "time": when, **fields})
        if len(record) > wire.DOC_MAX:
            self.problems[f"{type_}: a document of {len(record):,} bytes, which is too large"] += 1
            return Piece(b"")
        return Piece(record)

    def _fits(self, name: str) -> bool:
        if 0 < len(name) <= min(wire.NAME_MAX, _LONGEST_NAME):
            return True
        self.problems[f"a name of {len(name):,} characters: {name[:40]!r}"] += 1
        return False

    def _fits_fact(self, key: str, value: Any) -> bool:
        if not self._fits(key):
            return False
        if len(value if isinstance(value, str) else json.dumps(value)) <= _LONGEST_VALUE:
            return True
        self.problems[f"a value of {key[:40]!r} with more than {_LONGEST_VALUE:,} characters"] += 1
        return False


def _plain(value: Any) -> Any:
    """JSON that the server accepts: no NaN, no NUL, no unpaired surrogate."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode().replace("\0", "�")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {_plain(str(key)): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
