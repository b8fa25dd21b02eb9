"""The answer of `muster sim --find`: what is enough, what just misses, and all that was tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any

from rich.text import Text

from muster.cli.output import note, out, show_table, table
from muster.core.money import MICRO
from muster.sim.search import Search, Tried
from muster.sim.spaces import Space
from muster.sim.table import count, span
from muster.sim.targets import Target
from muster.sim.traces import Trace


def show(search: Search, title: str, space: Space | None, targets: Sequence[Target], notes: Sequence[str]) -> None:
    for words in notes:
        note((words, "yellow"))
    screen = out()
    screen.print(Text(f"{title}: {' and '.join(map(str, targets))}", style="bold"))
    for line in sentences(search, space, targets):
        screen.print(Text(line))
    screen.print()
    show_tried(search, space, targets)


def sentences(search: Search, space: Space | None, targets: Sequence[Target]) -> list[str]:
    """The answer: the cheapest first, then what just misses."""
    if not search.best:
        most = f" with up to {count(space.high)} {space.unit}" if space else ""
        return [f"Nothing that was tried{most} meets it."]
    told = []
    for number, one in enumerate(search.best):
        begin = "Cheapest" if number == 0 else "Also"
        line = f"{begin}: {_named(one, space)}, {_values(one, targets)}"
        if one.size is not None and space is not None:
            line += f"; now {count(space.start)}" if one.size != space.start else "; as now"
        told.append(f"{line}.")
        below = search.just_missing(one)
        if below is not None:
            told.append(f"  {_named(below, space)} just misses it, {_values(below, targets)}.")
    if not search.monotone:
        told.append("Not everywhere is more better here: a larger size that was tried misses what a smaller one meets.")
    if space is not None and not space.ordered:
        told.append("Sizes in steps were tried, because more is not better for all of the targets.")
    return told


def show_tried(search: Search, space: Space | None, targets: Sequence[Target]) -> None:
    sized = space is not None
    right = (*([space.unit] if space is not None else []), *(target.what for target in targets), "replayed", "in")
    made = table("tried", *right, "", right=right)
    for one in sorted(search.tried, key=lambda one: (one.policy, one.size or 0)):
        size = [count(one.size)] if sized else []
        met = Text("meets", "green") if one.met else Text("misses", "red")
        made.add_row(one.policy, *size, *_cells(one, targets), f"{one.share:.0%}", span(one.wall), met)
    show_table(made)


def document(
    search: Search,
    what: str,
    space: Space | None,
    targets: Sequence[Target],
    settings: Sequence[tuple[str, str]],
    notes: Sequence[str],
    trace: Trace,
) -> dict[str, Any]:
    """The answer for programs; times are in seconds, null where a job never got there or the replay was cut."""
    return {
        "trace": {"source": trace.ledger.source, "format": trace.format, "rows": trace.ledger.rows},
        "settings": dict(settings),
        "notes": list(notes),
        "find": what,
        "targets": [{"text": str(target), **asdict(target)} for target in targets],
        "range": None
        if space is None
        else {"unit": space.unit, "from": space.low, "to": space.high, "now": space.start},
        "monotone": search.monotone,
        "best": [_tried(one) for one in search.best],
        "tried": [_tried(one) for one in search.tried],
    }


def _tried(one: Tried) -> dict[str, Any]:
    return {
        "policy": one.policy,
        "size": one.size,
        "met": one.met,
        "values": [value if isfinite(value) else None for value in one.values] if one.values else None,
        "worlds": len(one.answers),
        "replayed": one.share,
        "wall": one.wall,
        "money": None if one.money is None else one.money / MICRO,
    }


def _named(one: Tried, space: Space | None) -> str:
    return one.policy if space is None else f"{one.policy} with {count(one.size)} {space.unit}"


def _values(one: Tried, targets: Sequence[Target]) -> str:
    if not one.values:
        return "for certain before its replay ended"
    told = ", ".join(f"{target.what} {_time(value)}" for target, value in zip(targets, one.values, strict=True))
    return told if one.money is None else f"{told}, {one.money / MICRO:,.2f} in all"


def _cells(one: Tried, targets: Sequence[Target]) -> list[str]:
    return [_time(value) for value in one.values] if one.values else ["-"] * len(targets)


def _time(value: float) -> str:
    return span(value) if isfinite(value) else "never"
