"""Pictures, histograms, tables and texts at a step: small ones go into the spool, the rest become files.

The input of a call is copied before it returns; a thread that yields to the trainer's own encodes and counts it. No
array library is imported; only methods of the given arrays are used.
"""

from __future__ import annotations

import json
import mimetypes
import os
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, isfinite
from pathlib import Path
from typing import Any, Final, SupportsIndex

from muster.runtime import png
from muster.runtime.checks import check_keys, short, whole
from muster.runtime.files import Files, shared_files
from muster.runtime.plain import plain
from muster.runtime.plain import text as clean
from muster.runtime.png import Raster

INLINE: Final = 32 << 10  # bytes of JSON; a larger medium becomes a file
TEXT_MAX: Final = 16 << 20  # characters
CELLS_AT_ONCE: Final = 2000  # cells of a table that are converted to JSON while the caller waits
VALUES_AT_ONCE: Final = 200  # values that are counted before other threads may run
BINS_MAX: Final = 4096
_COUNTING_PAUSE: Final = 0.0005  # seconds


@dataclass
class Media:
    """The media of one reporter."""

    files: Files

    def image(self, name: str, step: SupportsIndex, picture: Any, caption: str | None = None) -> None:
        """Records a picture: an array (height x width, with 1, 3 or 4 channels last or first;
        0..255, or 0..1 as floats), a PIL image, or the path of a file."""
        doc = _doc("image", name, step, caption)
        if isinstance(picture, str | os.PathLike):
            path = Path(picture)
            self.files.give(path, {**doc, "mime": mimetypes.guess_type(path.name)[0] or "application/octet-stream"})
            return
        if self.files.reporter.place() is None:
            return
        raster = _raster(name, picture)
        doc |= {"mime": "image/png", "about": {**doc["about"], "width": raster.width, "height": raster.height}}
        self.files.later(lambda: self.files.give_bytes(png.encode(raster), doc))

    def histogram(self, name: str, step: SupportsIndex, values: Any, bins: int = 64) -> None:
        """Records how values are distributed: a tensor, an array or any sequence of numbers.
        Non-finite values are counted separately."""
        doc = _doc("histogram", name, step, None)
        if not 1 <= bins <= BINS_MAX:
            raise ValueError(f"histogram({name!r}): bins got {bins}; expected 1 to {BINS_MAX}.")
        if self.files.reporter.place() is None:
            return
        count = _counter(name, values, bins)
        if isinstance(count, _Plain) and len(count.values) <= VALUES_AT_ONCE:
            self._record(doc, count())
        else:
            self.files.later(lambda: self._record(doc, count()))

    def table(self, name: str, step: SupportsIndex, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Records rows of cells under these columns."""
        doc, heads = _doc("table", name, step, None), [str(column) for column in columns]
        cells = [list(row) for row in rows]
        if wrong := next((row for row in cells if len(row) != len(heads)), None):
            raise ValueError(
                f"table({name!r}): a row of {len(wrong)} cells, {short(wrong)}; expected {len(heads)}, one a column."
            )
        data = {"columns": heads, "rows": cells}
        if len(cells) * len(heads) <= CELLS_AT_ONCE:
            self._record(doc, data)
        else:
            self.files.later(lambda: self._record(doc, data))

    def text(self, name: str, step: SupportsIndex, text: str) -> None:
        """Records a text, as Markdown."""
        if len(text) > TEXT_MAX:
            raise ValueError(f"text({name!r}): {len(text)} characters; expected {TEXT_MAX} at most. Use `artifact`.")
        self._record(_doc("text", name, step, None), {"text": text})

    def _record(self, doc: dict[str, Any], data: dict[str, Any]) -> None:
        body = json.dumps(plain(data))
        if len(body) <= INLINE:
            kind = doc.pop("type")
            self.files.reporter.document(kind, id=f"{time.time_ns():020d}-{os.urandom(4).hex()}", **doc, data=data)
        else:
            self.files.give_bytes(body.encode(), {**doc, "mime": "application/json"})


def _doc(kind: str, name: str, step: SupportsIndex, caption: str | None) -> dict[str, Any]:
    check_keys(f"{kind}()", {name: None})
    about = {"caption": clean(caption)} if caption is not None else {}
    return {"type": "media", "kind": kind, "name": name, "step": whole(step), "about": about}


def _raster(name: str, picture: Any) -> Raster:
    """A copy of the samples."""
    if hasattr(picture, "getbands"):  # PIL
        image = picture if picture.mode in ("L", "LA", "RGB", "RGBA") else picture.convert("RGB")
        width, height = image.size
        return Raster(width, height, len(image.getbands()), image.tobytes())
    if hasattr(picture, "detach"):  # torch
        picture = picture.detach().cpu()
        picture = (picture.float() if picture.is_floating_point() else picture).numpy()
    if not hasattr(picture, "__array_interface__"):
        return _from_buffer(name, picture)
    shape = picture.shape
    if len(shape) == 3 and shape[0] in (1, 3, 4) and shape[2] not in (1, 3, 4):
        picture = picture.transpose(1, 2, 0)
    kind = picture.dtype.kind
    if kind == "f":
        picture = (picture.clip(0, 1) * 255 + 0.5).astype("u1")
    elif kind == "b":
        picture = picture.astype("u1") * 255
    elif kind in "iu":
        picture = picture.clip(0, 255).astype("u1")
    return _shaped(name, picture.shape, picture.tobytes())


def _from_buffer(name: str, picture: Any) -> Raster:
    try:
        view = memoryview(picture)
    except TypeError:
        raise TypeError(
            f"image({name!r}) got {type(picture).__name__}; expected an array, a PIL image or the path of a file."
        ) from None
    if view.format != "B":
        raise TypeError(f"image({name!r}): a buffer of format {view.format!r}; expected unsigned bytes ('B').")
    return _shaped(name, view.shape or (), view.tobytes())


def _shaped(name: str, shape: Sequence[int], samples: bytes) -> Raster:
    if len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] not in (1, 3, 4)) or 0 in shape:
        raise ValueError(
            f"image({name!r}): an array of shape {tuple(shape)}; expected (height, width) or (height, width, channels) "
            "with 1, 3 or 4 channels."
        )
    return Raster(shape[1], shape[0], shape[2] if len(shape) == 3 else 1, samples)


def _counter(name: str, values: Any, bins: int) -> Callable[[], dict[str, Any]]:
    """Copies the values now; the returned function counts them."""
    if hasattr(values, "detach"):
        tensor = values.detach().clone().flatten()
        return lambda: _count_tensor(tensor, bins)
    if hasattr(values, "__array_interface__"):
        copied = values.astype("f8").ravel()  # always a copy
        return lambda: _count_array(copied, bins)
    try:
        return _Plain(array("d", values), bins)
    except TypeError:
        raise TypeError(
            f"histogram({name!r}) got {short(values)} ({type(values).__name__}); expected numbers."
        ) from None


def _count_tensor(tensor: Any, bins: int) -> dict[str, Any]:
    numbers = tensor.float()
    finite = numbers[numbers.isfinite()]
    left_out = numbers.numel() - finite.numel()
    if not finite.numel():
        return _counted([], inf, -inf, 0.0, left_out)
    low, high = finite.min().item(), finite.max().item()
    spread = (low, high) if low < high else (low - 0.5, high + 0.5)
    counts = finite.cpu().histc(bins, *spread).long().tolist()
    return _counted(counts, low, high, finite.double().sum().item(), left_out)


def _count_array(numbers: Any, bins: int) -> dict[str, Any]:
    finite = numbers[abs(numbers) < inf]
    left_out = numbers.size - finite.size
    if not finite.size:
        return _counted([], inf, -inf, 0.0, left_out)
    low, high = float(finite.min()), float(finite.max())
    scaled = ((finite - low) * (bins / (high - low))).clip(0, bins - 1) if low < high else finite * 0 + bins // 2
    places = scaled.astype("i8")
    places.sort()
    edges = places.searchsorted(list(range(bins + 1))).tolist()
    counts = [after - before for before, after in pairwise(edges)]
    return _counted(counts, low, high, float(finite.sum()), left_out)


@dataclass
class _Plain:
    """Counts a plain sequence in Python, a little at a time."""

    values: array[float]
    bins: int

    def __call__(self) -> dict[str, Any]:
        low, high, total, left_out = inf, -inf, 0.0, 0
        for part in self._parts():
            finite = [value for value in part if isfinite(value)]
            low, high, total = min([low, *finite]), max([high, *finite]), total + sum(finite)
            left_out += len(part) - len(finite)
        counts, last = [0] * self.bins, self.bins - 1
        scale = self.bins / (high - low) if low < high else 0.0
        for part in self._parts():
            for value in part:
                if isfinite(value):
                    counts[min(last, int((value - low) * scale)) if scale else self.bins // 2] += 1
        return _counted(counts, low, high, total, left_out)

    def _parts(self) -> Iterator[array[float]]:
        for start in range(0, len(self.values), VALUES_AT_ONCE):
            if start:
                time.sleep(_COUNTING_PAUSE)
            yield self.values[start : start + VALUES_AT_ONCE]


def _counted(counts: list[int], low: float, high: float, total: float, left_out: int) -> dict[str, Any]:
    """The document: `edges` has one entry more than `counts`, and all bins are equally wide."""
    bins, count = len(counts), sum(counts)
    if not count:
        return {"counts": [], "edges": [], "count": 0, "not_finite": left_out}
    first, last = (low, high) if low < high else (low - 0.5, high + 0.5)
    edges = [first + (last - first) * place / bins for place in range(bins + 1)]
    found = {"counts": counts, "edges": edges, "low": low, "high": high, "sum": total}
    return {**found, "count": count, "not_finite": left_out}


shared_media: Final = Media(shared_files)
image = shared_media.image
histogram = shared_media.histogram
table = shared_media.table
text = shared_media.text
