"""Values of any shape, for fields that are passed on unchanged; scalars are read by YAML's core schema."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

from muster.core.report import Plain, is_clean, is_null
from muster.core.units import InvalidValue

_DEPTH: Final = 20  # levels; values that people write are not deeper, and a value that contains itself never ends


def read_free(raw: object, depth: int = 0) -> Any:
    """Converts what was written into plain data for JSON. Raises Unfit for what JSON can't hold."""
    if depth > _DEPTH:
        raise InvalidValue(f"Nest no deeper than {_DEPTH} levels.")
    if isinstance(raw, Mapping):
        return {_key(key): read_free(value, depth + 1) for key, value in raw.items()}
    if isinstance(raw, list | tuple):
        return [read_free(item, depth + 1) for item in raw]
    if isinstance(raw, str):
        if not is_clean(raw):
            raise InvalidValue("Remove the NUL or broken character from it.")
        return scalar(raw) if isinstance(raw, Plain) else str.__str__(raw)
    if raw is None or isinstance(raw, bool | int):
        return raw
    if isinstance(raw, float) and math.isfinite(raw):
        return raw
    raise InvalidValue


def scalar(text: str) -> Any:
    """The value that text without quotes stands for."""
    if is_null(Plain(text)):
        return None
    if text in _TRUTH:
        return _TRUTH[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _BASED.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text) and math.isfinite(number := float(text)):
        return number
    return str.__str__(text)


def _key(key: object) -> str:
    if not isinstance(key, str) or not is_clean(key):
        raise InvalidValue("Keys are text.")
    return str.__str__(key)


_TRUTH: Final = {word: word.lower() == "true" for word in ("true", "True", "TRUE", "false", "False", "FALSE")}
_INTEGER: Final = re.compile(r"[-+]?[0-9]{1,300}")
_BASED: Final = re.compile(r"0(?:o[0-7]{1,300}|x[0-9a-fA-F]{1,300})")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]{1,300}|[0-9]{1,300}(?:\.[0-9]{0,300})?)(?:[eE][-+]?[0-9]{1,6})?")
