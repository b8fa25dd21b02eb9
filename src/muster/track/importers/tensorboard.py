"""TensorBoard import: every folder with event files is a run, as in TensorBoard itself."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from muster.foreign import tfrecord
from muster.foreign.protobuf import Malformed, double, fields, raw, text, whole
from muster.foreign.tfrecord import Damage
from muster.track.importers.base import Ended, Facts, FoundRun, ImportedMedium, Item, LeftOut, Rows
from muster.track.importers.tensorboard_reader import Event, Tensor, Value, events, tensor_of

_MARK: Final = "tfevents"
_TOGETHER: Final = 4096  # points of a tag in one item
_STATUS: Final = {1: "succeeded", 2: "failed"}
_PARAM_KINDS: Final[dict[int, Callable[[bytes | int], Any]]] = {2: double, 3: text, 4: lambda value: bool(whole(value))}
_SILENT: Final = ("hparams",)  # plug-ins whose values are not reported as left out


class TensorBoardImporter:
    about = "folders of TensorBoard's event files (*tfevents*)"

    def find(self, path: Path) -> list[FoundRun]:
        if path.is_file():
            folders = {path.parent: [path]} if _MARK in path.name else {}
        else:
            folders = {}
            for file in sorted(path.rglob(f"*{_MARK}*")):
                if file.is_file():
                    folders.setdefault(file.parent, []).append(file)
        found = [one for folder, files in folders.items() if (one := _found(path, folder, files)) is not None]
        return sorted(found, key=lambda one: (one.created_at, one.key))

    def read(self, found: FoundRun) -> Iterator[Item]:
        yield Facts(tags={"tensorboard.run": found.name})
        reading = _Reading()
        for path in found.files:
            for event in events(path):
                if isinstance(event, Damage):
                    yield event
                else:
                    yield from reading.take(event)
        yield from reading.rest()


def _found(root: Path, folder: Path, files: list[Path]) -> FoundRun | None:
    """The run of a folder; None if its files have no records yet."""
    first: bytes | None = None
    created = math.inf
    for path in files:
        for record in tfrecord.records(path):
            if isinstance(record, tuple):
                first = first if first is not None else path.name.encode("utf-8", "replace") + record[0]
                created = min(created, _time(record[0]))
            break
    if first is None:
        return None
    inside = folder.relative_to(root) if folder != root and root in folder.parents else Path()
    name = f"{root.resolve().name}/{inside}" if inside.parts else folder.resolve().name
    # The file name contains time, host and process of its creation: together with its first bytes it is unique.
    key = f"tensorboard:{hashlib.sha256(first).hexdigest()[:32]}"
    return FoundRun(key, "tensorboard", name, folder, tuple(files), created if math.isfinite(created) else 0.0)


def _time(record: bytes) -> float:
    try:
        return next((double(value) for number, value in fields(record) if number == 1), math.inf)
    except Malformed:
        return math.inf


@dataclass(slots=True)
class _Reading:
    """State between events: only the first value of a tag names its plug-in."""

    plugins: dict[str, str] = field(default_factory=dict)
    points: dict[str, tuple[list[int], list[float], list[float]]] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    last: float = 0.0
    ended: Ended | None = None

    def take(self, event: Event) -> Iterator[Item]:
        time = event.time if math.isfinite(event.time) else self.last
        self.last = max(self.last, time)
        if event.graph:
            self.left_out["graphs"] += 1
        for value in event.values:
            plugin = self.plugins.setdefault(value.tag, value.plugin)
            try:
                yield from self._value(value, plugin, event.step, time)
            except (Malformed, ValueError) as error:
                self.left_out[f"values of {value.tag!r} that can't be read ({error})"] += 1

    def rest(self) -> Iterator[Item]:
        for tag in self.points:
            yield from self._flush(tag)
        for what, count in sorted(self.left_out.items()):
            yield LeftOut(f"{count} {what}")
        yield self.ended or Ended("succeeded", self.last, "as far as its event files say")

    def _value(self, value: Value, plugin: str, step: int, time: float) -> Iterator[Item]:
        if value.scalar is not None:
            yield from self._point(value.tag, step, time, value.scalar)
        elif value.histogram is not None:
            yield ImportedMedium(value.tag, "histogram", step, time, _old_histogram(value.histogram))
        elif value.image is not None:
            yield _old_image(value.tag, value.image, step, time)
        elif value.audio is not None:
            yield _old_audio(value.tag, value.audio, step, time)
        elif plugin == "hparams":
            yield from self._session(value.content)
        elif value.tensor is not None:
            yield from self._tensor(value.tag, plugin, tensor_of(value.tensor), step, time)

    def _tensor(self, tag: str, plugin: str, tensor: Tensor, step: int, time: float) -> Iterator[Item]:
        numbers = tensor.numbers
        if plugin in ("scalars", "") and numbers is not None and numbers.size == 1:
            yield from self._point(tag, step, time, float(numbers.astype(np.float64)[0]))
        elif plugin == "histograms" and numbers is not None and numbers.size and numbers.size % 3 == 0:
            yield ImportedMedium(
                tag, "histogram", step, time, _new_histogram(numbers.astype(np.float64).reshape(-1, 3))
            )
        elif plugin == "images" and len(tensor.texts) > 2:
            for place, content in enumerate(tensor.texts[2:]):  # after width and height
                name = tag if len(tensor.texts) == 3 else f"{tag}/{place}"
                yield ImportedMedium(name, "image", step, time, content=content, mime=_mime(content))
        elif plugin == "text" and tensor.texts:
            words = "\n".join(each.decode("utf-8", "replace") for each in tensor.texts)
            yield ImportedMedium(tag, "text", step, time, {"text": words.replace("\0", "�")})
        elif plugin == "audio" and tensor.texts:
            yield ImportedMedium(tag, "audio", step, time, content=tensor.texts[0], mime="audio/wav")
        elif plugin not in _SILENT:
            self.left_out[f"values of the plug-in {plugin or 'that is not named'!r}"] += 1

    def _point(self, tag: str, step: int, time: float, value: float) -> Iterator[Item]:
        steps, times, values = self.points.setdefault(tag, ([], [], []))
        steps.append(step)
        times.append(time)
        values.append(value)
        if len(steps) >= _TOGETHER:
            yield from self._flush(tag)

    def _flush(self, tag: str) -> Iterator[Item]:
        steps, times, values = self.points[tag]
        if steps:
            yield Rows((tag,), steps, times, [[value] for value in values])
            self.points[tag] = ([], [], [])

    def _session(self, content: bytes) -> Iterator[Item]:
        """Reads the parameters at a session's start, or its end."""
        for number, value in fields(content):
            if number == 3:
                entries = [raw(each) for at, each in fields(raw(value)) if at == 1]
                yield Facts(params=dict(_param(entry) for entry in entries))
            elif number == 4:
                parts = dict(fields(raw(value)))
                outcome = _STATUS.get(whole(parts.get(1, 0)))
                at = double(parts[2]) if 2 in parts else self.last
                if outcome is not None and math.isfinite(at):
                    self.ended = Ended("succeeded" if outcome == "succeeded" else "failed", at or self.last)


def _param(entry: bytes) -> tuple[str, Any]:
    name, given = "", None
    for number, value in fields(entry):
        if number == 1:
            name = text(value)
        elif number == 2:
            for kind, content in fields(raw(value)):
                read = _PARAM_KINDS.get(kind)
                given = read(content) if read is not None else None
    return name, given


def _old_histogram(message: bytes) -> dict[str, Any]:
    """An old-format histogram: upper limits of buckets. The first begins at the minimum, the last ends at the
    maximum.
    """
    low, high, limits, counts = 0.0, 0.0, np.zeros(0), np.zeros(0)
    for number, value in fields(message):
        if number in (1, 2):
            low, high = (double(value), high) if number == 1 else (low, double(value))
        elif number in (6, 7):
            data = np.frombuffer(raw(value), "<f8")
            limits, counts = (np.append(limits, data), counts) if number == 6 else (limits, np.append(counts, data))
    if not len(limits) or len(limits) != len(counts):
        raise Malformed("a histogram without buckets")
    filled = np.flatnonzero(counts)
    if not len(filled):
        return {"edges": [low, max(high, low)], "counts": [0.0]}
    part = slice(filled[0], filled[-1] + 1)
    upper = np.minimum(limits[part], high)
    first = low if filled[0] == 0 else max(low, float(limits[filled[0] - 1]))
    return _buckets(np.concatenate(([first], upper)), counts[part])


def _new_histogram(rows: np.ndarray[Any, np.dtype[np.float64]]) -> dict[str, Any]:
    """A new-format histogram: rows of lower limit, upper limit and count."""
    return _buckets(np.concatenate((rows[:1, 0], rows[:, 1])), rows[:, 2])


def _buckets(edges: np.ndarray[Any, np.dtype[np.float64]], counts: np.ndarray[Any, Any]) -> dict[str, Any]:
    if not (np.isfinite(edges).all() and np.isfinite(counts).all()):
        raise Malformed("a histogram with limits that are no numbers")
    return {"edges": np.maximum.accumulate(edges).tolist(), "counts": counts.tolist()}


def _old_image(tag: str, message: bytes, step: int, time: float) -> ImportedMedium:
    parts = dict(fields(message))
    content = raw(parts.get(4, b""))
    about = {"height": whole(parts.get(1, 0)), "width": whole(parts.get(2, 0))}
    return ImportedMedium(tag, "image", step, time, content=content, mime=_mime(content), about=about)


def _old_audio(tag: str, message: bytes, step: int, time: float) -> ImportedMedium:
    parts = dict(fields(message))
    mime = text(parts[5]) if 5 in parts else "audio/wav"
    return ImportedMedium(tag, "audio", step, time, content=raw(parts.get(4, b"")), mime=mime)


def _mime(content: bytes) -> str:
    for start, kind in ((b"\x89PNG", "png"), (b"\xff\xd8", "jpeg"), (b"GIF8", "gif"), (b"RIFF", "webp")):
        if content.startswith(start):
            return f"image/{kind}"
    return "application/octet-stream"
