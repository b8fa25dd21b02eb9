"""Charts as HTML with inline SVG, without scripts: line charts and stacked area charts.

The drawing is stretched to the available width, while the text beside it keeps its size, so that a chart can be read on
a phone. Colours are the page's `--tone-N`. Curves also differ in their dashes, for colour-blind readers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

TONES: Final = 8  # colours that the page defines
_SIZE: Final = 1000  # width and height of the drawing in its own units
_DASHES: Final = ("", "9 4", "2 3", "12 4 2 4")
_WAITS: Final = (
    (1, "1 s"), (10, "10 s"), (60, "1 min"), (600, "10 min"), (3600, "1 h"), (36_000, "10 h"), (86_400, "1 d"),
    (864_000, "10 d"), (8_640_000, "100 d"), (86_400_000, "1,000 d"),
)  # fmt: skip
_STEPS: Final = (
    (1, "s"), (10, "s"), (60, "min"), (600, "min"), (3600, "h"), (6 * 3600, "h"), (86_400, "d"), (2 * 86_400, "d"),
    (5 * 86_400, "d"), (10 * 86_400, "d"), (20 * 86_400, "d"), (50 * 86_400, "d"), (100 * 86_400, "d"),
)  # fmt: skip
_PARTS: Final = (0.25, 0.3, 0.4, 0.5, 0.6, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5)  # of a power of ten: readable steps
_UNIT: Final = {"s": 1, "min": 60, "h": 3600, "d": 86_400}


@dataclass(frozen=True, slots=True)
class Axis:
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    title: str
    log: bool = False

    def place(self, value: float) -> float:
        """The position of a value on the axis, from 0 to 1."""
        if self.log:
            whole = math.log(self.high / self.low)
            return math.log(max(value, self.low) / self.low) / whole if whole else 0.0
        return (value - self.low) / (self.high - self.low) if self.high > self.low else 0.0


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


def line_chart(title: str, about: str, curves: Sequence[Curve], x: Axis, y: Axis) -> str:
    paths = (
        f'<path class="line" d="{_path(one.points, x, y)}" stroke="var(--tone-{one.tone % TONES})"'
        f"{_dashes(one.tone)}><title>{escape(one.name)}</title></path>"
        for one in curves
        if one.points
    )
    return _figure(title, about, paths, x, y, [(one.name, one.tone, True) for one in curves])


def stack_chart(title: str, about: str, places: Sequence[float], layers: Sequence[Layer], x: Axis, y: Axis) -> str:
    """A stacked area chart; the first layer is at the bottom."""
    floor = [0.0] * len(places)
    areas = []
    for layer in layers:
        top = [below + value for below, value in zip(floor, layer.values, strict=True)]
        outline = [*zip(places, top, strict=True), *reversed(list(zip(places, floor, strict=True)))]
        areas.append(
            f'<path class="area" d="{_path(outline, x, y)}Z" fill="var(--tone-{layer.tone % TONES})">'
            f"<title>{escape(layer.name)}</title></path>"
        )
        floor = top
    return _figure(title, about, areas, x, y, [(one.name, one.tone, False) for one in layers])


def waits_axis(longest: float) -> Axis:
    """Seconds on a logarithmic scale, from one second."""
    high = max(60.0, longest)
    return Axis(1.0, high, tuple((float(at), words) for at, words in _WAITS if at <= high), "time", log=True)


def time_axis(start: float, end: float) -> Axis:
    """Time since the start of the trace."""
    start = 0.0 if start < end / 20 else start
    length = max(end - start, 1.0)
    step, unit = next(((step, unit) for step, unit in _STEPS if length / step <= 9), _STEPS[-1])
    first = math.ceil(start / step)
    ticks = tuple((n * step, f"{n * step / _UNIT[unit]:g} {unit}") for n in range(first, int(end // step) + 1))
    return Axis(start, start + length, ticks[:60], "time since the start of the trace")


def share_axis(title: str) -> Axis:
    return Axis(0.0, 1.0, tuple((part / 4, f"{part * 25}%") for part in range(5)), title)


def count_axis(most: float, title: str) -> Axis:
    """An axis from 0 to a round number above `most`."""
    power = 10.0 ** math.floor(math.log10(max(most, 1.0)))
    step = next(power * part for part in _PARTS if most <= power * part * 4)
    step = max(step, 1.0)
    return Axis(0.0, 4 * step, tuple((part * step, f"{part * step:,.0f}") for part in range(5)), title)


def _path(points: Iterable[tuple[float, float]], x: Axis, y: Axis) -> str:
    steps = (f"{_SIZE * x.place(at):.1f} {_SIZE * (1 - y.place(value)):.1f}" for at, value in points)
    return "M" + "L".join(steps)


def _dashes(tone: int) -> str:
    dashes = _DASHES[tone % len(_DASHES)]
    return f' stroke-dasharray="{dashes}"' if dashes else ""


def _figure(
    title: str, about: str, drawn: Iterable[str], x: Axis, y: Axis, legend: Sequence[tuple[str, int, bool]]
) -> str:
    name = "".join(letter if letter.isalnum() else "-" for letter in title.lower())
    across = "".join(_grid_line(0, 1 - y.place(at), 1, 1 - y.place(at)) for at, _ in y.ticks)
    down = "".join(_grid_line(x.place(at), 0, x.place(at), 1) for at, _ in x.ticks)
    return (
        f'<figure class="chart"><figcaption id="{name}">{escape(title)}<small>{escape(about)}</small></figcaption>'
        f'<div class="frame"><div class="y" aria-hidden="true">{_labels(y, "bottom")}</div>'
        f'<svg viewBox="0 0 {_SIZE} {_SIZE}" preserveAspectRatio="none" role="img" aria-labelledby="{name}">'
        f'<desc>{escape(about)}</desc><g class="grid">{across}{down}</g>{"".join(drawn)}</svg>'
        f'<div class="x" aria-hidden="true">{_labels(x, "left")}</div></div>'
        f'<p class="axis">{escape(x.title)} →</p>{_legend(legend)}</figure>'
    )


def _grid_line(x: float, y: float, to_x: float, to_y: float) -> str:
    """A line between two points whose coordinates are from 0 to 1."""
    ends = (value * _SIZE for value in (x, y, to_x, to_y))
    return '<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>'.format(*ends)


def _labels(axis: Axis, side: str) -> str:
    """The tick labels. If there are many, every second one may be hidden on a small screen."""
    many = len(axis.ticks) > 5
    spans = []
    for number, (at, words) in enumerate(axis.ticks):
        hidden = ' class="minor"' if many and number % 2 else ""
        spans.append(f'<span style="{side}:{100 * axis.place(at):.2f}%"{hidden}>{escape(words)}</span>')
    return "".join(spans)


def _legend(entries: Sequence[tuple[str, int, bool]]) -> str:
    items = []
    for name, tone, line in entries:
        shape = f'<path class="line" d="M0 5L24 5" stroke="var(--tone-{tone % TONES})"{_dashes(tone)}/>'
        if not line:
            shape = f'<rect width="24" height="10" rx="2" fill="var(--tone-{tone % TONES})"/>'
        key = f'<svg viewBox="0 0 24 10" width="24" height="10" aria-hidden="true">{shape}</svg>'
        items.append(f"<li>{key}{escape(name)}</li>")
    return f'<ul class="legend">{"".join(items)}</ul>'
