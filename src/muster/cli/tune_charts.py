"""Charts of a study over its course: the best so far over trials, time and money, and learning curves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from muster.api.studies import BestSoFar, ObjectiveView, PlacedRow, TrialCurve
from muster.cli import format
from muster.cli.tune_format import goal_text, money_text, value_text
from muster.cli.tune_scene import Scene, beyond_text, details, finite, goal_axis
from muster.core.money import MICRO
from muster.pages.axes import Axis, amount_axis, time_axis, value_axis
from muster.pages.charts import Key, figure
from muster.pages.marks import Dot, dots, line, steps

_KEPT: Final = 0.97  # of the values of all curves: the others, mostly of first steps, are at the margin
_DECADES: Final = 100  # of values, from which on the scale is logarithmic
_BEST: Final = Key("best so far", '<path class="line top" d="M0 5L24 5"/>')
_CURVE_KEYS: Final = (
    Key("the best trial", '<path class="line best" d="M0 5L24 5"/>'),
    Key("the one in the middle", '<path class="line typical" d="M0 5L24 5"/>'),
    Key("others", '<path class="line other" d="M0 5L24 5"/>'),
    Key("went on from a checkpoint", '<g class="dots mark"><path d="M12 5h.1"/></g>'),
)


# --- the best so far --------------------------------------------------------------------------------------------------
def progress(scene: Scene) -> Iterator[str]:
    """Of each objective: over trials, time and money."""
    for place, goal in enumerate(scene.found["study"]["objectives"]):
        one = scene.found["progress"][place]
        if one["points"] and goal["shown_low"] is not None:
            yield _over_trials(scene, place, goal, one)
            yield _over_time(scene, place, goal, one)
            if one["cost"]:
                yield _over_money(scene, place, goal, one)


def _over_trials(scene: Scene, place: int, goal: ObjectiveView, one: BestSoFar) -> str:
    x, y = amount_axis(one["ended"], "trials that have ended"), goal_axis(goal)
    marks = scene.scatter(lambda row: row["turn"], scene.value_of(place), x, y)
    about = f"To {goal_text(goal)}: each dot is a trial, in the order of their ends; the line is the best so far."
    return figure(
        f"{goal['metric']} over trials", about + beyond_text(goal), [*marks, _best(one, "ended", x, y)], x, y,
        [_BEST], name=f"trials-{place}", below=_improvements(scene, one),
    )  # fmt: skip


def _over_time(scene: Scene, place: int, goal: ObjectiveView, one: BestSoFar) -> str:
    began = scene.found["study"]["began"]
    x, y = time_axis(0.0, one["seconds"], "time since the study began"), goal_axis(goal)

    def since(row: PlacedRow) -> float | None:
        return None if row["ended"] is None else row["ended"] - began

    marks = [*scene.scatter(since, scene.value_of(place), x, y), _best(one, "seconds", x, y)]
    about = "The same trials at the time of their end: a long flat end of the line is time that bought nothing."
    return figure(f"{goal['metric']} over time", about, marks, x, y, [_BEST], name=f"time-{place}")


def _over_money(scene: Scene, place: int, goal: ObjectiveView, one: BestSoFar) -> str:
    x = amount_axis(one["cost"] / MICRO, scene.found["study"]["currency"] or "cost")
    y = goal_axis(goal)
    points = [(one, value) for one in one["points"] if (value := finite(one["value"])) is not None]
    found = (Dot(one["cost"] / MICRO, value, scene.title_of(one["trial"])) for one, value in points)
    marks = [_best(one, "cost", x, y, MICRO), dots(found, x, y, "top")]
    about = "The best value that so much money had bought; each dot is an improvement. A trial costs when it ends."
    return figure(f"{goal['metric']} over money", about, marks, x, y, [_BEST], name=f"money-{place}")


def _best(one: BestSoFar, along: Literal["ended", "seconds", "cost"], x: Axis, y: Axis, unit: float = 1.0) -> str:
    points = [(point[along] / unit, value) for point in one["points"] if (value := finite(point["value"])) is not None]
    return line(steps(points, one[along] / unit), x, y, "top")


def _improvements(scene: Scene, one: BestSoFar) -> str:
    currency = scene.found["study"]["currency"]
    heads = ("trial", one["metric"], "trials ended", "after", "cost of all so far")
    rows = (
        (
            f"{point['trial']}", value_text(point["value"]), f"{point['ended']:,}", format.span(point["seconds"]),
            money_text(point["cost"], currency),
        )
        for point in reversed(one["points"])
    )  # fmt: skip
    return details(f"Improvements of {one['metric']}", heads, rows)


# --- learning curves --------------------------------------------------------------------------------------------------
def learning(scene: Scene) -> str:
    curves = [one for one in scene.found["curves"] if _points(one)]
    if not curves:
        return ""
    x = amount_axis(max(at for one in curves for at, _ in _points(one)), "step")
    y = _values_axis(curves, scene.goal)
    drawn = (
        line(_points(one), x, y, _KINDS[one["role"]], scene.title_of(one["number"]))
        for one in sorted(curves, key=lambda one: _ORDER[one["role"]])
    )
    marks = dots((one for curve in curves for one in _marks(curve)), x, y, "mark")
    metric = scene.goal["metric"]
    about = (
        f"How {metric} went in {len(curves)} trials, chosen evenly from the best to the worst: a curve that ends early "
        "was stopped, or still runs."
    )
    if not all(one["measured"] for one in curves):
        about += " Where no curve was measured, it joins the levels that the trial passed."
    below = details("Learning curves", _HEADS, (_ends(scene, one) for one in curves))
    return figure(f"{metric} over steps", about, [*drawn, marks], x, y, _CURVE_KEYS, name="curves", below=below)


_ORDER: Final = {"other": 0, "median": 1, "best": 2}
_KINDS: Final = {"other": "other", "median": "typical", "best": "best"}
_HEADS: Final = ("trial", "rank", "first step", "first value", "last step", "last value")


def _values_axis(curves: Sequence[TrialCurve], goal: ObjectiveView) -> Axis:
    """Without the worst few values, most of which are those of first steps."""
    sign = 1 if goal["direction"] == "minimize" else -1
    losses = sorted(sign * value for one in curves for _, value in _points(one))
    low, high = sorted((sign * losses[0], sign * losses[math.ceil(_KEPT * len(losses)) - 1]))
    return value_axis(low, high, goal["metric"], log=low > 0 and high / low >= _DECADES)


def _ends(scene: Scene, one: TrialCurve) -> tuple[str, ...]:
    row, points = scene.row_of.get(one["number"]), _points(one)
    rank = f"{row['rank']}" if row is not None else "-"
    texts = (text for at, value in (points[0], points[-1]) for text in (f"{at:,.0f}", value_text(value)))
    return (f"{one['number']}", rank, *texts)


def _points(one: TrialCurve) -> list[tuple[float, float]]:
    found = ((point["step"], finite(point["value"])) for point in one["points"])
    return [(at, value) for at, value in found if value is not None]


def _marks(one: TrialCurve) -> Iterator[Dot]:
    points = _points(one)
    for mark in one["marks"]:
        before = [value for at, value in points if at <= mark["step"]]
        text = f"trial {one['number']} was {mark['what']} at step {mark['step']:,.0f}"
        yield Dot(mark["step"], before[-1] if before else points[0][1], text)
