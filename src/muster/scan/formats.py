"""Formats that are safe if they are what they say: the headers of safetensors and NumPy, and the layers of Keras."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

from muster.scan.limits import Broken
from muster.scan.reader import Reader

NPY: Final = b"\x93NUMPY"
HDF5: Final = b"\x89HDF\r\n\x1a\n"
_HEADER_MOST: Final = 100_000_000  # bytes, as the safetensors library has it
_NPY_MOST: Final = 1 << 20
_SIZES: Final = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64,
    "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip
_LAMBDA: Final = re.compile(rb'"class_name"\s*:\s*"(?:Lambda|TFOpLambda|SlicingOpLambda)"|"__lambda__"')
_OVERLAP: Final = 256


def is_safetensors(head: bytes, size: int | None) -> bool:
    length = int.from_bytes(head[:8], "little")
    return len(head) > 9 and head[8:9] == b"{" and 2 <= length <= _HEADER_MOST and (size is None or length + 8 <= size)


def check_safetensors(reader: Reader, size: int | None) -> None:
    """Raises Broken unless the header describes all of the file, and no byte twice."""
    length = int.from_bytes(reader.exactly(8), "little")
    try:
        header = json.loads(reader.exactly(length), object_pairs_hook=_once)
        spans = sorted(_span(name, about) for name, about in header.items() if name != "__metadata__")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, EOFError) as error:
        raise Broken(f"its safetensors header is not right: {str(error)[:100] or 'it ends in the middle'}") from None
    ends = [(0, 0), *spans]
    if any(before[1] != after[0] for before, after in pairwise(ends)):
        raise Broken("its safetensors header has tensors that overlap, or bytes between them")
    if size is not None and 8 + length + ends[-1][1] != size:
        raise Broken("its safetensors header does not describe the whole file")


def npy_holds_objects(reader: Reader) -> bool:
    """Reads the header of a NumPy file. Whether a pickle follows. Raises Broken."""
    reader.exactly(6)
    major = reader.exactly(2)[0]
    length = int.from_bytes(reader.exactly(2 if major == 1 else 4), "little")
    if length > _NPY_MOST:
        raise Broken(f"its NumPy header has {length:,} bytes")
    try:
        found = ast.literal_eval(reader.exactly(length).decode("latin-1").strip())
        kinds = list(_kinds(found["descr"]))
    except (ValueError, SyntaxError, KeyError, TypeError, EOFError, RecursionError, MemoryError):
        raise Broken("its NumPy header can't be read") from None
    return any("O" in kind for kind in kinds)


def has_lambda(reader: Reader) -> bool:
    """Whether a model of Keras has layers that hold code; reads all of it."""
    before = b""
    while data := reader.read(1 << 20):
        if _LAMBDA.search(before + data):
            return True
        before = data[-_OVERLAP:]
    return False


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands in it twice")
    return found


def _span(name: str, about: dict[str, Any]) -> tuple[int, int]:
    start, stop = about["data_offsets"]
    shape = about["shape"]
    whole = [start, stop, *shape]
    if any(type(one) is not int or one < 0 for one in whole):
        raise ValueError(f"the numbers of {name[:40]!r}")
    if (stop - start) * 8 != math.prod(shape) * _SIZES[about["dtype"]]:
        raise ValueError(f"{name[:40]!r} has another size than its shape says")
    return start, stop


def _kinds(descr: Any) -> Iterator[str]:
    if isinstance(descr, str):
        yield descr
    elif isinstance(descr, list | tuple):
        for one in descr:
            if isinstance(one, tuple | list) and len(one) >= 2:
                yield from _kinds(one[1])
            elif not isinstance(one, int):
                raise ValueError
    else:
        raise TypeError
