"""Marks of a chart: dots, rings, lines and cells, each with a text that appears when a pointer rests on it.

A dot is a line without length and with round ends, so that it stays round however its drawing is stretched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from muster.pages.axes import Axis
from muster.pages.charts import SIZE, path_of


class Dot(NamedTuple):
    """Outside the axes it is drawn at their end."""

    x: float
    y: float
    title: str


def dots(found: Iterable[Dot], x: Axis, y: Axis, kind: str) -> str:
    """`kind`: classes of the style sheet; `square` has square ends."""
    drawn = "".join(
        f'<path d="M{_at(one.x, x):.1f} {SIZE - _at(one.y, y):.1f}h.1"><title>{escape(one.title)}</title></path>'
        for one in found
    )
    return f'<g class="dots {kind}">{drawn}</g>' if drawn else ""


def ring(dot: Dot, x: Axis, y: Axis) -> str:
    """A circle around a place. It takes no pointer: what is below it does."""
    at = f'd="M{_at(dot.x, x):.1f} {SIZE - _at(dot.y, y):.1f}h.1"'
    return f'<g class="ring" aria-hidden="true"><path class="out" {at}/><path class="in" {at}/></g>'


def line(points: Sequence[tuple[float, float]], x: Axis, y: Axis, kind: str, title: str = "") -> str:
    """A line through points, which are held within the axes. Without a title it takes no pointer."""
    if not points:
        return ""
    held = ((x.within(at), y.within(value)) for at, value in points)
    if not title:
        return f'<path class="line {kind}" pointer-events="none" d="{path_of(held, x, y)}"/>'
    return f'<path class="line {kind}" d="{path_of(held, x, y)}"><title>{escape(title)}</title></path>'


def steps(points: Sequence[tuple[float, float]], until: float) -> list[tuple[float, float]]:
    """A curve that keeps each value until the next one, and the last one until `until`."""
    found: list[tuple[float, float]] = []
    for at, value in points:
        found += [(at, found[-1][1]), (at, value)] if found else [(at, value)]
    return [*found, (max(until, points[-1][0]), points[-1][1])] if points else []


def cell(left: float, right: float, bottom: float, top: float, kind: str, title: str) -> str:
    """A rectangle between places from 0 to 1."""
    x, y, width, height = (SIZE * one for one in (left, 1 - top, right - left, top - bottom))
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}">'
        f"<title>{escape(title)}</title></rect>"
    )


def _at(value: float, axis: Axis) -> float:
    return SIZE * axis.place(axis.within(value))
