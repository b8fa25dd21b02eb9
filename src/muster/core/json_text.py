"""Parses JSON from outside, with a limit on the nesting depth: the parser's own limit is the size of the stack."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from muster.core.errors import Invalid

DEPTH: Final = 64  # levels; people and their tools do not write more
_STRING: Final = re.compile(r'"[^"]*(?:"|\Z)')  # for text without escaped quotes; an open quote extends to the end
_STEPS: Final = {"[": 1, "{": 1, "]": -1, "}": -1}


def parse(text: bytes | str, depth: int = DEPTH) -> Any:
    """Raises Invalid for text that is not JSON in UTF-8, and for JSON that is nested more deeply than `depth`."""
    try:
        plain = text.decode("utf-8-sig") if isinstance(text, bytes) else text
        if _deep(plain, depth):
            raise Invalid(f"The JSON is nested more deeply than {depth} levels.", "Send it flatter.")
        return json.loads(plain)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"This is not valid JSON: {str(error)[:200]}.", "Send JSON in UTF-8.") from None


def _deep(text: str, depth: int) -> bool:
    if text.count("[") + text.count("{") <= depth:
        return False
    level = 0
    plain = text.replace("\\\\", "").replace('\\"', "")  # first pairs of backslashes, then escaped quotes
    for sign in re.sub(r"[^\[\]{}]+", "", _STRING.sub("", plain)):
        level += _STEPS[sign]
        if level > depth:
            return True
    return False
