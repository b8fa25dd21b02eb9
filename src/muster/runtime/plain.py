"""Converts any value for a JSON document that a database accepts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from typing import Any, Final

_DEEPEST: Final = 16  # levels; deeper values become text, which also handles a value that contains itself


def plain(value: Any, depth: int = 0) -> Any:
    """Numbers, texts, lists and mappings are kept; NumPy and torch scalars become numbers; anything else becomes text.

    NaN and infinities become text, because JSON can't represent them.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return text(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if depth >= _DEEPEST:
        return text(repr(value))
    if isinstance(value, Mapping):
        return {text(str(key)): plain(each, depth + 1) for key, each in value.items()}
    if isinstance(value, list | tuple | Set):
        return [plain(each, depth + 1) for each in value]
    return _scalar(value, depth)


def text(value: str) -> str:
    """The text without NUL and lone surrogates, which PostgreSQL and UTF-8 refuse."""
    return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _scalar(value: Any, depth: int) -> Any:
    try:
        return plain(value.item(), depth + 1)  # NumPy and torch scalars
    except Exception:  # no such method, or more than one element
        return text(str(value))
