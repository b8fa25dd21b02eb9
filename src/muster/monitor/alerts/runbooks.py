"""The runbooks: what an alert means, how to look, what to do. `fill` puts the values of an alert into one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

_BLANK: Final = re.compile(r"\{([a-z_]+)\}")


@cache
def runbooks() -> Mapping[str, str]:
    """The text of each, by name."""
    folder = files("muster") / "runbooks"
    return {
        one.name.removesuffix(".md"): one.read_text()
        for one in sorted(folder.iterdir(), key=lambda one: one.name)
        if one.name.endswith(".md") and one.name != "index.md"
    }


def fill(text: str, facts: Mapping[str, Any]) -> str:
    """The text with the values of an alert. A blank without a value stays as it is: somebody types it."""
    return _BLANK.sub(lambda blank: str(facts[blank[1]]) if facts.get(blank[1]) not in (None, "") else blank[0], text)
