"""Draws curves in the terminal: braille dots over axes, one colour per series, vertical lines for marks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise

from rich.text import Text

from muster.pages.axes import round_ticks, tick_text


@dataclass(frozen=True, slots=True)
class Series:
    """One line of the plot. A value that is None or not finite leaves a gap."""

    label: str
    steps: Sequence[float]
    values: Sequence[float | None]
    color: str = "cyan"


def draw(
    series: Sequence[Series],
    marks: Sequence[tuple[float, str]] = (),
    width: int = 80,
    height: int = 16,
    x_label: str = "step",
    y_label: str = "",
    x_range: tuple[float, float] | None = None,
) -> Text:
    """A plot `width` characters wide, with `height` rows of dots, its axes and a legend below; never wraps.

    `x_range`: the range that the axis shows at least, for a curve that is still growing.
    """
    marks = [(step, label) for step, label in marks if math.isfinite(step)]
    runs = [(one, list(_runs(one))) for one in series]
    points = [point for _, parts in runs for part in parts for point in part]
    if not points:
        return Text(f"{y_label or 'curve'}: no values to draw", style="dim")
    xs = [x for x, _ in points] + [step for step, _ in marks]
    xs += x_range or ()
    y_range = _span([y for _, y in points])
    y_ticks = round_ticks(*y_range, max(2, height // 2))
    labels = [tick_text(tick, y_ticks) for tick in y_ticks]
    margin = max(len(text) for text in labels) + 2  # a space before the label, the axis after it
    grid = _Grid(max(8, width - margin - len(x_label) - 1), max(2, height), _span(xs), y_range)
    for one, parts in runs:
        for part in parts:
            grid.line(part, one.color)
    unplaced = [(step, label) for step, label in marks if not grid.mark(step, label)]
    lines = [Text(f"{y_label:>{margin}}", style="bold")] if y_label else []
    lines += _rows(grid, dict(zip(map(grid.row, y_ticks), labels, strict=True)), margin)
    lines += _x_axis(grid, margin, x_label)
    lines.append(_legend(series, unplaced, margin, width))
    return Text("\n", no_wrap=True, overflow="crop").join(lines)


@dataclass(slots=True)
class _Grid:
    """Cells of two by four dots; `x_range` and `y_range` map to its outermost dots."""

    columns: int
    rows: int
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    dots: dict[tuple[int, int], int] = field(default_factory=dict)  # (row, column) of a cell → braille bits
    colors: dict[tuple[int, int], str] = field(default_factory=dict)
    words: dict[tuple[int, int], str] = field(default_factory=dict)  # labels of marks, below the dots

    def dot(self, x: float, y: float) -> tuple[int, int]:
        """The dot of a point: across from the left, down from the top."""
        (x0, x1), (y0, y1) = self.x_range, self.y_range
        across = round((x - x0) / (x1 - x0) * (self.columns * 2 - 1))
        down = round((y1 - y) / (y1 - y0) * (self.rows * 4 - 1))
        return across, down

    def row(self, y: float) -> int:
        return self.dot(self.x_range[0], y)[1] // 4

    def column(self, x: float) -> int:
        return self.dot(x, self.y_range[0])[0] // 2

    def line(self, points: Sequence[tuple[float, float]], color: str) -> None:
        dots = [self.dot(x, y) for x, y in points]
        for start, end in pairwise([dots[0], *dots]):
            for across, down in _between(start, end):
                cell = (down // 4, across // 2)
                self.dots[cell] = self.dots.get(cell, 0) | _BITS[down % 4][across % 2]
                self.colors[cell] = color

    def character(self, row: int, column: int) -> str:
        bits = self.dots.get((row, column))
        return chr(0x2800 + bits) if bits else self.words.get((row, column), " ")

    def mark(self, x: float, label: str) -> bool:
        """Draws a vertical line, with its label next to it in the first row with room; False if there is none."""
        at = self.column(x)
        for row in range(self.rows):
            self.words[(row, at)] = "┊"
        for start in (at + 2, at - 1 - len(label)):
            if start < 0 or start + len(label) > self.columns:
                continue
            cells = range(start - 1, start + len(label) + 1)
            for row in range(self.rows):
                if not any((row, c) in self.dots or (c != at and (row, c) in self.words) for c in cells):
                    self.words.update({(row, start + i): letter for i, letter in enumerate(label)})
                    return True
        return False


def _runs(series: Series) -> Iterator[list[tuple[float, float]]]:
    """The runs of finite points between gaps."""
    run: list[tuple[float, float]] = []
    for x, y in zip(series.steps, series.values, strict=True):
        if y is not None and math.isfinite(y) and math.isfinite(x):
            run.append((float(x), max(-_MOST, min(float(y), _MOST))))
        elif run:
            yield run
            run = []
    if run:
        yield run


def _span(values: Sequence[float]) -> tuple[float, float]:
    """Minimum and maximum, moved apart when they are equal."""
    low, high = min(values), max(values)
    if high - low > max(1e-12 * max(abs(low), abs(high)), 1 / _MOST):
        return low, high
    room = abs(low) * 0.1 or 1.0
    return low - room, high + room


def _between(start: tuple[int, int], end: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Every dot on the line between two dots, both included."""
    (x0, y0), (x1, y1) = start, end
    count = max(abs(x1 - x0), abs(y1 - y0), 1)
    for i in range(count + 1):
        yield round(x0 + (x1 - x0) * i / count), round(y0 + (y1 - y0) * i / count)


def _rows(grid: _Grid, labels: dict[int, str], margin: int) -> Iterator[Text]:
    for row in range(grid.rows):
        label = labels.get(row, "")
        line = Text.assemble((f"{label:>{margin - 1}}{'┤' if label else '│'}", "dim"))
        for color, cells in groupby(range(grid.columns), key=lambda column: grid.colors.get((row, column), "yellow")):
            line.append("".join(grid.character(row, column) for column in cells), color)
        yield line


def _x_axis(grid: _Grid, margin: int, name: str) -> Iterator[Text]:
    """The axis with its name at the end, then its numbers under their ticks."""
    ticks = round_ticks(*grid.x_range, max(2, grid.columns // 10))
    axis, numbers = ["─"] * grid.columns, [" "] * (grid.columns + margin)
    for tick in ticks:
        axis[grid.column(tick)] = "┬"
        text = tick_text(tick, ticks)
        start = min(max(0, margin + grid.column(tick) - len(text) // 2), len(numbers) - len(text))
        if all(letter == " " for letter in numbers[max(0, start - 1) : start + len(text)]):
            numbers[start : start + len(text)] = text
    yield Text.assemble((" " * (margin - 1) + "└" + "".join(axis), "dim"), (f" {name}", "bold"))
    yield Text.assemble(("".join(numbers), "dim"))


def _legend(series: Sequence[Series], marks: Sequence[tuple[float, str]], margin: int, width: int) -> Text:
    line = Text(" " * margin)
    for one in series:
        line.append("━━ ", one.color).append(f"{one.label}   ")
    for step, label in marks:
        line.append("┊ ", "yellow").append(f"{label} at {step:g}   ")
    line.rstrip()
    line.truncate(max(width, margin), overflow="ellipsis")
    return line


_MOST = 1e300  # beyond it the distance between two values would overflow
# Braille numbers its dots down the left column, then down the right, and the lowest row last.
_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
