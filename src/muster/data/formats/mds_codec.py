"""The column encodings of MosaicML's MDS format, with NumPy only: images stay bytes, and pickles are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from muster.data.errors import DataError

# Type codes in arrays whose type the encoding doesn't fix; the names are those of `ndarray:<name>`.
_TYPES: Final = {
    8: "uint8",
    9: "int8",
    16: "uint16",
    17: "int16",
    18: "float16",
    32: "uint32",
    33: "int32",
    34: "float32",
    64: "uint64",
    65: "int64",
    66: "float64",
}
_CODES: Final = {name: code for code, name in _TYPES.items()}
_BANDS: Final = {"L": 1, "RGB": 3, "RGBA": 4}  # image modes with one byte per band


@dataclass(frozen=True, slots=True)
class Codec:
    """The encoding of one column. `size`: bytes per value, if all values have the same size."""

    size: int | None
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


def codec(column: str, encoding: str) -> Codec:
    """The codec of an encoding. Raises DataError if it is unknown or would run code from the data."""
    name, _, detail = encoding.partition(":")
    if encoding == "pkl":
        raise DataError(
            f"column {column!r} is pickled: reading it could run any code. Write it as json, ndarray or bytes."
        )
    if name == "ndarray":
        return _array(column, detail)
    if encoding in _CODES:
        return _scalar(encoding)
    found = _CODECS.get(encoding)
    if found is None:
        known = sorted([*_CODECS, *_CODES, "ndarray[:type[:shape]]"])
        raise DataError(
            f"column {column!r} has the encoding {encoding!r}, which isn't read here. Known: {', '.join(known)}."
        )
    return found


def _scalar(name: str) -> Codec:
    kind = np.dtype(name).newbyteorder("<")
    return Codec(kind.itemsize, lambda value: np.array(value, kind).tobytes(), lambda raw: np.frombuffer(raw, kind)[0])


def _array(column: str, detail: str) -> Codec:
    """The encoding may fix type and shape; what it doesn't fix is stored before the values."""
    name, _, sides = detail.partition(":")
    if name and name not in _CODES:
        raise DataError(f"column {column!r}: an array of type {name!r}; expected one of {', '.join(_CODES)}.")
    try:
        shape = tuple(int(side) for side in sides.split(",")) if sides else None
    except ValueError as error:
        raise DataError(f"column {column!r}: an array of shape {sides!r}; expected numbers with commas.") from error
    fixed = int(np.prod(shape)) * np.dtype(name).itemsize if name and shape else None
    return Codec(
        fixed, lambda value: _array_bytes(np.asarray(value), name, shape), lambda raw: _array_value(raw, name, shape)
    )


def _array_bytes(value: NDArray[Any], name: str, shape: tuple[int, ...] | None) -> bytes:
    if value.dtype.name not in _CODES or (name and value.dtype.name != name):
        raise ValueError(f"an array of type {value.dtype.name}; expected {name or ', '.join(_CODES)}")
    if shape is not None and value.shape != shape:
        raise ValueError(f"an array of shape {value.shape}; expected {shape}")
    if value.size == 0 or value.ndim == 0:
        raise ValueError(f"an array of shape {value.shape}, which the format cannot hold")
    head = b"" if name else bytes([_CODES[value.dtype.name]])
    if shape is None:
        width = next(code for code in range(4) if max(value.shape) < 1 << (8 << code))  # sides in 1, 2, 4 or 8 bytes
        head += bytes([value.ndim << 2 | width]) + np.array(value.shape, f"<u{1 << width}").tobytes()
    return head + np.ascontiguousarray(value, value.dtype.newbyteorder("<")).tobytes()


def _array_value(raw: bytes, name: str, shape: tuple[int, ...] | None) -> NDArray[Any]:
    at = 0
    if not name:
        name, at = _TYPES[raw[at]], at + 1
    if shape is None:
        axes, width = raw[at] >> 2, 1 << (raw[at] & 3)
        at += 1
        shape = tuple(int(side) for side in np.frombuffer(raw, f"<u{width}", axes, at))
        at += axes * width
    return np.frombuffer(raw, np.dtype(name).newbyteorder("<"), offset=at).reshape(shape)


def _image(raw: bytes) -> NDArray[np.uint8]:
    """Decodes a raw image: width, height, length of its mode, mode, bytes → u8[height, width(, bands)]."""
    width, height, length = (int(each) for each in np.frombuffer(raw, "<u4", 3))
    mode = raw[12 : 12 + length].decode()
    if mode not in _BANDS:
        raise ValueError(f"an image of mode {mode!r}; {', '.join(_BANDS)} can be read")
    shape = (height, width) if mode == "L" else (height, width, _BANDS[mode])
    return np.frombuffer(raw, np.uint8, offset=12 + length).reshape(shape)


def _image_bytes(value: NDArray[np.uint8]) -> bytes:
    mode = next((mode for mode, bands in _BANDS.items() if value.shape[2:] == ((bands,) if bands > 1 else ())), None)
    if mode is None or value.dtype != np.uint8:
        raise ValueError(
            f"an image of shape {value.shape} and type {value.dtype}; expected u8[height, width(, 3 or 4)]"
        )
    head = np.array([value.shape[1], value.shape[0], len(mode)], "<u4").tobytes()
    return head + mode.encode() + np.ascontiguousarray(value).tobytes()


def _typed(kind: type, encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    def checked(value: Any) -> bytes:
        if not isinstance(value, kind):
            raise ValueError(f"a {type(value).__name__}; expected {kind.__name__}")
        return encode(value)

    return checked


_RAW: Final = Codec(None, _typed(bytes, bytes), bytes)
_CODECS: Final[dict[str, Codec]] = {
    "bytes": _RAW,
    "jpeg": _RAW,
    "png": _RAW,
    "pil": Codec(None, _image_bytes, _image),
    "str": Codec(None, _typed(str, str.encode), bytes.decode),
    "int": Codec(8, lambda value: np.array(value, "<i8").tobytes(), lambda raw: int(np.frombuffer(raw, "<i8")[0])),
    "json": Codec(None, lambda value: json.dumps(value).encode(), json.loads),
    "str_int": Codec(None, _typed(int, lambda value: str(value).encode()), int),
    "str_float": Codec(None, _typed(float, lambda value: str(value).encode()), float),
    "str_decimal": Codec(None, _typed(Decimal, lambda value: str(value).encode()), lambda raw: Decimal(raw.decode())),
}
