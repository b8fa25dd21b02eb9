"""Charts as HTML with inline SVG, without scripts: lines, areas, and any marks in a figure with two axes.

The drawing is stretched to the available width, while the text beside it keeps its size, so that a chart can be read on
a phone. Colours are the page's `--tone-N`. Curves also differ in their dashes, for colour-blind readers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from muster.pages.axes import Axis

TONES: Final = 8  # colours that the page defines
SIZE: Final = 1000  # width and height of the drawing in its own units
_DASHES: Final = ("", "9 4", "2 3", "12 4 2 4")


@dataclass(frozen=True, slots=True)
class Curve:
    name: str
    points: Sequence[tuple[float, float]]
    tone: int


@dataclass(frozen=True, slots=True)
class Layer:
    """One area of a stacked chart, with a value for each position on the x axis."""

    name: str
    values: Sequence[float]
    tone: int


@dataclass(frozen=True, slots=True)
class Key:
    """An entry of a legend; `shape` is SVG, 24 wide and 10 high."""

    name: str
    shape: str


def line_chart(title: str, about: str, curves: Sequence[Curve], x: Axis, y: Axis) -> str:
    paths = (
        f'<path class="line" d="{path_of(one.points, x, y)}" stroke="var(--tone-{one.tone % TONES})"'
        f"{_dashes(one.tone)}><title>{escape(one.name)}</title></path>"
        for one in curves
        if one.points
    )
    shape = '<path class="line" d="M0 5L24 5" stroke="var(--tone-{})"{}/>'
    return figure(
        title, about, paths, x, y, [Key(one.name, shape.format(one.tone % TONES, _dashes(one.tone))) for one in curves]
    )


def stack_chart(title: str, about: str, places: Sequence[float], layers: Sequence[Layer], x: Axis, y: Axis) -> str:
    """A stacked area chart; the first layer is at the bottom."""
    floor = [0.0] * len(places)
    areas = []
    for layer in layers:
        top = [below + value for below, value in zip(floor, layer.values, strict=True)]
        outline = [*zip(places, top, strict=True), *reversed(list(zip(places, floor, strict=True)))]
        areas.append(
            f'<path class="area" d="{path_of(outline, x, y)}Z" fill="var(--tone-{layer.tone % TONES})">'
            f"<title>{escape(layer.name)}</title></path>"
        )
        floor = top
    shape = '<rect width="24" height="10" rx="2" fill="var(--tone-{})"/>'
    return figure(title, about, areas, x, y, [Key(one.name, shape.format(one.tone % TONES)) for one in layers])


def figure(
    title: str,
    about: str,
    drawn: Iterable[str],
    x: Axis,
    y: Axis,
    keys: Sequence[Key] = (),
    *,
    name: str = "",
    below: str = "",
) -> str:
    """Marks within two axes. `name` is the id of the caption, made of the title unless given; `below` is HTML."""
    name = name or "".join(letter if letter.isalnum() else "-" for letter in title.lower())
    across = "".join(_grid_line(0, 1 - y.place(at), 1, 1 - y.place(at)) for at, _ in y.ticks)
    down = "".join(_grid_line(x.place(at), 0, x.place(at), 1) for at, _ in x.ticks)
    return (
        f'<figure class="chart"><figcaption id="{name}">{escape(title)}<small>{escape(about)}</small></figcaption>'
        f'<div class="frame"><div class="y" aria-hidden="true">{_labels(y, "bottom")}</div>'
        f'<svg viewBox="0 0 {SIZE} {SIZE}" preserveAspectRatio="none" role="img" aria-labelledby="{name}">'
        f'<desc>{escape(about)}</desc><g class="grid">{across}{down}</g>{"".join(drawn)}</svg>'
        f'<div class="x" aria-hidden="true">{_labels(x, "left")}</div></div>'
        f'<p class="axis">{escape(x.title)} →</p>{legend(keys)}{below}</figure>'
    )


def legend(keys: Sequence[Key]) -> str:
    return f'<ul class="legend">{"".join(map(_entry, keys))}</ul>' if keys else ""


def path_of(points: Iterable[tuple[float, float]], x: Axis, y: Axis) -> str:
    """The line through the points, for the attribute `d`."""
    steps = (f"{SIZE * x.place(at):.1f} {SIZE * (1 - y.place(value)):.1f}" for at, value in points)
    return "M" + "L".join(steps)


def _dashes(tone: int) -> str:
    dashes = _DASHES[tone % len(_DASHES)]
    return f' stroke-dasharray="{dashes}"' if dashes else ""


def _grid_line(x: float, y: float, to_x: float, to_y: float) -> str:
    """A line between two points whose coordinates are from 0 to 1."""
    ends = (value * SIZE for value in (x, y, to_x, to_y))
    return '<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>'.format(*ends)


def _labels(axis: Axis, side: str) -> str:
    """The tick labels. If there are many, every second one may be hidden on a small screen."""
    many = len(axis.ticks) > 5
    spans = []
    for number, (at, words) in enumerate(axis.ticks):
        hidden = ' class="minor"' if many and number % 2 else ""
        spans.append(f'<span style="{side}:{100 * axis.place(at):.2f}%"{hidden}>{escape(words)}</span>')
    return "".join(spans)


def _entry(one: Key) -> str:
    drawn = f'<svg viewBox="0 0 24 10" width="24" height="10" aria-hidden="true">{one.shape}</svg>'
    return f"<li>{drawn}{escape(one.name)}</li>"
