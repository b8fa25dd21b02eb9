"""The arrays of joblib, whose bytes stand in the middle of a pickle, after the object that describes them."""

from __future__ import annotations

import math
from typing import Any, Final

from muster.scan.reader import Reader
from muster.scan.stand_ins import Made

_MOST: Final = 1 << 50  # bytes of an array
_CODE_SIZES: Final = {"?": 1, "b1": 1}


def array_after(target: Made, reader: Reader) -> bool:
    """Skips the bytes of an array if `target` describes one. Whether a pickle follows instead, of an array of objects.

    Raises ValueError if its size can't be told.
    """
    if target.by is None or (target.by.module, target.by.name) != ("joblib.numpy_pickle", "NumpyArrayWrapper"):
        return False
    shape, dtype = target.state.get("shape"), target.state.get("dtype")
    size = _item_size(dtype)
    if size == 0:
        return True
    if size is None or not isinstance(shape, tuple) or not all(type(one) is int and one >= 0 for one in shape):
        raise ValueError("an array of joblib that can't be read")
    total = math.prod(shape) * size
    if total > _MOST:
        raise ValueError("an array of joblib that is too large")
    if isinstance(target.state.get("numpy_array_alignment_bytes"), int):
        reader.skip(reader.exactly(1)[0])
    reader.skip(total)
    return False


def _item_size(dtype: Any) -> int | None:
    """Bytes of an item; 0 for objects; None if it can't be told."""
    if not isinstance(dtype, Made) or dtype.by is None or dtype.by.name != "dtype" or not isinstance(dtype.args, tuple):
        return None
    code = dtype.args[0] if dtype.args else None
    if not isinstance(code, str):
        return None
    if code.startswith("O"):
        return 0
    return int(code[1:]) * (4 if code[0] == "U" else 1) if code[1:].isdecimal() else _CODE_SIZES.get(code)
