"""JSON from outside, with a bound on how deeply it is nested: the parser ends where the stack does."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from muster.core.errors import Invalid

DEPTH: Final = 64  # levels; nothing that people or their tools write has more
_STRING: Final = re.compile(r'"[^"]*(?:"|\Z)')  # once no quote is escaped any more; an open one goes to the end
_STEPS: Final = {"[": 1, "{": 1, "]": -1, "}": -1}


def parse(text: bytes | str, depth: int = DEPTH) -> Any:
    """Raises Invalid for what is no JSON in UTF-8, and for what is nested more deeply than `depth`."""
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
    plain = text.replace("\\\\", "").replace('\\"', "")  # pairs of backslashes first, then the quotes that are escaped
    for sign in re.sub(r"[^\[\]{}]+", "", _STRING.sub("", plain)):
        level += _STEPS[sign]
        if level > depth:
            return True
    return False
