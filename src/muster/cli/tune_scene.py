"""What the charts of a study share: the scales of its objectives and parameters, and trials as marks by their rank."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from itertools import pairwise
from typing import Final

from muster.api.numbers import JsonFloat, number
from muster.api.studies import ObjectiveView, ParameterView, PlacedRow, StudyReport
from muster.cli.tune_format import params_text, result_text, state_text
from muster.pages.axes import Axis, value_axis
from muster.pages.charts import Key
from muster.pages.document import scroll_table
from muster.pages.marks import Dot, dots, ring

LABELS: Final = 8  # of values on the axis of a parameter
_GRADES: Final = ((0.05, "g0"), (0.2, "g1"), (0.5, "g2"), (math.inf, "g3"))  # share of the ranking up to which it is
_MOST: Final = 1e300  # beyond it the distance of two values would overflow
_DOT: Final = '<g class="dots {}"><path d="M12 5h.1"/></g>'
GRADE_KEYS: Final = tuple(
    Key(words, _DOT.format(kind))
    for words, kind in (("best 5 %", "g0"), ("to 20 %", "g1"), ("to half", "g2"), ("worse", "g3"))
)
SHAPE_KEYS: Final = (
    Key("ran to its end", _DOT.format("g1")),
    Key("last value of one that did not", _DOT.format("square g1")),
    Key("breaks a constraint", _DOT.format("square bad")),
    Key("the best", '<g class="ring"><path class="out" d="M12 5h.1"/><path class="in" d="M12 5h.1"/></g>'),
)
Read = Callable[[PlacedRow], float | None]


@dataclass(frozen=True)
class Scene:
    found: StudyReport

    @property
    def goal(self) -> ObjectiveView:
        return self.found["study"]["objectives"][0]

    @cached_property
    def rows(self) -> list[PlacedRow]:
        """Those with a rank, the worst first, so that the best is drawn on top."""
        return [one for one in reversed(self.found["rows"]) if one["rank"] is not None]

    @cached_property
    def row_of(self) -> dict[int, PlacedRow]:
        """Of each trial that is shown, by its number."""
        return {one["number"]: one for one in self.found["rows"]}

    @cached_property
    def y(self) -> Axis:
        return goal_axis(self.goal)

    def value_of(self, place: int = 0) -> Read:
        """Reads the value of an objective, if it can be drawn."""
        return lambda row: finite(row["values"][place]) if row["values"] else None

    def grade(self, row: PlacedRow) -> str:
        """The class of its rank."""
        return grade(((row["rank"] or 1) - 1) / max(self.found["sample"]["ranked"], 1))

    def title(self, row: PlacedRow) -> str:
        text = f"trial {row['number']}, rank {row['rank']}: {result_text(row)}, {state_text(row)}"
        return f"{text}, {params_text(row['params'])}"

    def title_of(self, number: int) -> str:
        row = self.row_of.get(number)
        return f"trial {number}" if row is None else self.title(row)

    def scatter(
        self, x_of: Read, y_of: Read, x: Axis, y: Axis, title: Callable[[PlacedRow], str] | None = None
    ) -> list[str]:
        """Trials as dots, the best on top and with a ring."""
        title = title or self.title
        placed = [
            (row, at, value) for row in self.rows if (at := x_of(row)) is not None and (value := y_of(row)) is not None
        ]
        drawn: list[str] = []
        kinds = [self._kind(row) for row, _, _ in placed]
        starts = [at for at, (before, after) in enumerate(pairwise(["", *kinds])) if before != after]
        for start, end in pairwise([*starts, len(placed)]):
            some = (Dot(at, value, title(row)) for row, at, value in placed[start:end])
            drawn.append(dots(some, x, y, kinds[start]))
        if placed and placed[-1][0]["rank"] == 1 and not placed[-1][0]["violated"]:
            drawn.append(ring(Dot(placed[-1][1], placed[-1][2], ""), x, y))
        return drawn

    def _kind(self, row: PlacedRow) -> str:
        if row["violated"]:
            return "square bad"
        return self.grade(row) if row["state"] == "complete" else f"square {self.grade(row)}"


def grade(standing: float) -> str:
    return next(kind for most, kind in _GRADES if standing < most)


def finite(value: JsonFloat | None) -> float | None:
    """The number, if it can be drawn."""
    found = number(value)
    return max(-_MOST, min(found, _MOST)) if math.isfinite(found) else None


def goal_axis(goal: ObjectiveView) -> Axis:
    low, high = goal["shown_low"], goal["shown_high"]
    ends = finite(low), finite(high)
    return value_axis(ends[0] or 0.0, ends[1] or 0.0, goal["metric"], goal["log"], room=0.06)


def place_axis(one: ParameterView) -> Axis:
    """From 0 to 1, as the places of trials are, with ticks at values."""
    return Axis(0.0, 1.0, tuple(ticks(one)), one["name"])


def ticks(one: ParameterView) -> list[tuple[float, str]]:
    if one["listed"]:
        bins = one["bins"]
        every = -(-len(bins) // LABELS)
        return [((part["start"] + part["end"]) / 2, part["label"]) for part in bins[::every]]
    axis = value_axis(one["low"], one["high"], "", one["log"], room=0.0)
    return [(axis.place(at), words) for at, words in axis.ticks]


def beyond_text(goal: ObjectiveView) -> str:
    """A sentence on what the scale does not show."""
    if not goal["beyond"]:
        return ""
    some = "1 worse trial is" if goal["beyond"] == 1 else f"{goal['beyond']:,} worse trials are"
    return f" The scale is that of complete trials: {some} at its edge."


def details(label: str, heads: Sequence[str], rows: Iterable[Sequence[str]], words: bool = False) -> str:
    """The figures of a chart as a table that opens. `words`: the last column has words, and no numbers."""
    made = scroll_table(label, heads, (cells(one, words) for one in rows))
    return f"<details><summary>As a table</summary>{made}</details>"


def cells(row: Sequence[str], words: bool = False) -> str:
    first, *others = row
    kinds = [""] * (len(others) - 1) + [' class="text"' if words else ""]
    inner = "".join(f"<td{kind}>{escape(one)}</td>" for kind, one in zip(kinds, others, strict=True))
    return f'<tr><th scope="row">{escape(first)}</th>{inner}</tr>'
