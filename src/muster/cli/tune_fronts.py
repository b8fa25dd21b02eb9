"""Charts of a study that compare trials: quality against cost, objectives against each other, and winners by seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Final

from muster.api.studies import ConfirmedView, PlacedRow
from muster.cli import format
from muster.cli.tune_format import goal_text, money_text, params_text, value_text
from muster.cli.tune_scene import GRADE_KEYS, Scene, beyond_text, details, finite, goal_axis
from muster.core.money import MICRO
from muster.pages.axes import Axis, amount_axis, time_axis, value_axis
from muster.pages.charts import Key, figure
from muster.pages.marks import Dot, dots, line, steps

PAIRS: Final = 3  # of objectives that are drawn against each other
_LINE: Final = '<path class="line top" d="M0 5L24 5"/>'
_WINNER_KEYS: Final = (
    Key("one seed", '<g class="dots g1"><path d="M12 5h.1"/></g>'),
    Key("mean", '<path class="line mean" d="M0 5L24 5"/>'),
    Key("standard deviation", '<path class="line spread" d="M12 0L12 10"/>'),
    Key("the value that made it a winner", '<g class="dots square seen"><path d="M12 5h.1"/></g>'),
)


# --- quality against cost ---------------------------------------------------------------------------------------------
def against_cost(scene: Scene) -> str:
    """Or against time, where nothing has a price."""
    money, currency = scene.found["measure"] == "cost", scene.found["study"]["currency"]
    spent = _money if money else _seconds
    most = max(map(spent, scene.rows), default=0.0)
    if not most or scene.goal["shown_low"] is None:
        return ""
    x = amount_axis(most, currency or "cost") if money else time_axis(0.0, most, "time that it ran")
    what, metric, value = "money" if money else "time", scene.goal["metric"], scene.value_of()
    front = [scene.row_of[one] for one in scene.found["cheapest"]]
    corners = [(spent(row), found) for row in front if (found := value(row)) is not None]
    marks = [*scene.scatter(spent, value, x, scene.y), line(steps(corners, x.high), x, scene.y, "top")]
    front_is = f"the line has the best {metric} for so much {what}" if corners else "none has run to its end"
    about = f"Each dot is a trial; {front_is}.{beyond_text(scene.goal)}"
    rows = (
        (
            f"{row['number']}", value_text(row["values"][0] if row["values"] else None),
            money_text(row["cost"], currency) if money else format.span(row["seconds"]), params_text(row["params"]),
        )
        for row in front
    )  # fmt: skip
    below = details(f"The best for their {what}", ("trial", metric, what, "parameters"), rows, words=True)
    keys = [*([Key(f"best for its {what}", _LINE)] if corners else []), *GRADE_KEYS]
    return figure(f"{metric} against {what}", about, marks, x, scene.y, keys, name="cost", below=below)


def _money(row: PlacedRow) -> float:
    return row["cost"] / MICRO


def _seconds(row: PlacedRow) -> float:
    return row["seconds"]


# --- several objectives -----------------------------------------------------------------------------------------------
def pareto(scene: Scene) -> Iterator[str]:
    """Each pair of objectives, of many the first ones."""
    goals = scene.found["study"]["objectives"]
    if not scene.found["front"]:
        return
    for number, pair in enumerate([*combinations(range(len(goals)), 2)][:PAIRS]):
        yield _pair(scene, *pair, below=_front_table(scene) if not number else "")


def _pair(scene: Scene, first: int, second: int, below: str) -> str:
    goals = scene.found["study"]["objectives"]
    one, other = goals[first], goals[second]
    x, y = goal_axis(one), goal_axis(other)
    of_x, of_y = scene.value_of(first), scene.value_of(second)
    front = [scene.row_of[number] for number in scene.found["front"]]
    placed = [(row, at, value) for row in front if (at := of_x(row)) is not None and (value := of_y(row)) is not None]
    marks = scene.scatter(of_x, of_y, x, y)
    if len(goals) == 2 and placed:
        corners = [(at, value) for _, at, value in placed]
        marks.append(line(steps(corners, corners[-1][0]), x, y, "top"))
    marks.append(dots((Dot(at, value, scene.title(row)) for row, at, value in placed), x, y, "top"))
    about = (
        f"To {goal_text(one)} and {goal_text(other)}: no trial is better than a marked one in one objective and not "
        "worse in another. Which of them is right is a choice, not a result."
    )
    keys = [Key("on the front", '<g class="dots top"><path d="M12 5h.1"/></g>'), *GRADE_KEYS]
    title = f"{other['metric']} against {one['metric']}"
    return figure(title, about, marks, x, y, keys, name=f"front-{first}-{second}", below=below)


def _front_table(scene: Scene) -> str:
    heads = ("trial", *(one["metric"] for one in scene.found["study"]["objectives"]), "parameters")
    front = (scene.row_of[number] for number in scene.found["front"])
    rows = ((f"{row['number']}", *map(value_text, row["values"] or ()), params_text(row["params"])) for row in front)
    return details("Trials on the front", heads, rows, words=True)


# --- winners ----------------------------------------------------------------------------------------------------------
def winners(scene: Scene) -> str:
    """The best configurations with other seeds."""
    found = [one for one in scene.found["confirmed"] if _values(one)]
    if not found:
        return ""
    shown = [value for one in found for value in (*_values(one), finite(one["seen"])) if value is not None]
    x = Axis(0.0, len(found), tuple((at + 0.5, f"trial {one['of']}") for at, one in enumerate(found)), "configuration")
    y = value_axis(min(shown), max(shown), scene.goal["metric"], room=0.1)
    marks = [mark for at, one in enumerate(found) for mark in _winner(one, at + 0.5, x, y)]
    about = (
        "Each dot is a run of the configuration with another seed. The best of many trials was lucky in part: what to "
        "expect of it is the mean of other seeds."
    )
    title, below = f"{scene.goal['metric']} with other seeds", details("Winners", _HEADS, map(_told, found), words=True)
    return figure(title, about, marks, x, y, _WINNER_KEYS, name="winners", below=below)


_HEADS: Final = ("trial", "as it was found", "mean", "standard deviation", "seeds", "values", "parameters")


def _told(one: ConfirmedView) -> tuple[str, ...]:
    values, figures = ", ".join(map(value_text, one["values"])), (one["seen"], one["mean"], one["deviation"])
    return (f"{one['of']}", *map(value_text, figures), f"{one['seeds']}", values, params_text(one["params"]))


def _winner(one: ConfirmedView, at: float, x: Axis, y: Axis) -> Iterator[str]:
    mean, deviation, seen = finite(one["mean"]), finite(one["deviation"]), finite(one["seen"])
    trial, values = f"trial {one['of']}", _values(one)
    if mean is not None:
        text = f"{trial}: mean {value_text(mean)}, standard deviation {value_text(one['deviation'])}"
        if deviation is not None:
            yield line([(at, mean - deviation), (at, mean + deviation)], x, y, "spread", text)
        yield line([(at - 0.12, mean), (at + 0.12, mean)], x, y, "mean", text)
    beside = (0.1 * ((place + 0.5) / len(values) - 0.5) for place in range(len(values)))  # so that equal ones are seen
    each = zip(beside, values, strict=True)
    yield dots((Dot(at + aside, value, f"{trial}, a seed: {value_text(value)}") for aside, value in each), x, y, "g1")
    if seen is not None:
        yield dots([Dot(at - 0.2, seen, f"{trial}, as it was found: {value_text(seen)}")], x, y, "square seen")


def _values(one: ConfirmedView) -> Sequence[float]:
    return [value for each in one["values"] if (value := finite(each)) is not None]
