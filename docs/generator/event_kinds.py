"""The page of the kinds of events, read from the docstring of `core/event.py`, which lists them all."""

from __future__ import annotations

import re
from typing import Final

from generator.markdown import generated, table
from muster.core import event

ABOUT: Final = """\
Every event has `seq`, `time`, `kind`, `actor`, `project`, `job`, `attempt` and `data`. `muster events --kind KIND`
chooses; [events and hooks](events.md) says how to follow them, and how to have them sent elsewhere.

"""
_KIND: Final = re.compile(r"^    ([a-z]+\.[a-z_]+(?: \| [a-z]+\.[a-z_]+)*)(?: {2,}(.*))?$")


def event_kinds_page() -> str:
    state, audit = (event.__doc__ or "").split("The kinds in `AUDIT`")
    return (
        generated("Kinds of events", "src/muster/core/event.py")
        + ABOUT
        + f"## That change the state\n\n{_table(state)}\n"
        + "## That only log what somebody did\n\nThey hold names and ids: no value, text or secret.\n\n"
        + _table(audit)
    )


def _table(text: str) -> str:
    rows: list[list[str]] = []
    for line in text.splitlines():
        if found := _KIND.match(line):
            rows.append([", ".join(f"`{kind}`" for kind in found[1].split(" | ")), found[2] or ""])
        elif rows and line.startswith(" " * 8):
            rows[-1][1] += f" {line.strip()}"
    return table(("kind", "data"), rows)
