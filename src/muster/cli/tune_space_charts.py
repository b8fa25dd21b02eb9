"""Charts of a study over its space: importance, parallel coordinates, each parameter alone, and two of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Final

from muster.api.studies import BinView, CellView, ImportanceView, ParameterView, PlacedRow
from muster.cli.tune_format import param_text, result_text, space_text, value_text
from muster.cli.tune_scene import GRADE_KEYS, Scene, beyond_text, details, finite, goal_axis, grade, place_axis, ticks
from muster.pages.axes import Axis
from muster.pages.charts import Key, figure
from muster.pages.document import scroll_table
from muster.pages.marks import Dot, cell, line, ring
from muster.pages.parallel import Track, Upright, parallel_chart

DRAWN: Final = 12  # parameters, the most important
LINES: Final = 300  # of parallel coordinates: half of them the best
_CELLS: Final = 40  # in the table beside the plane, the best
_ENOUGH: Final = 3  # complete trials in a part of the axis, so that their median is drawn
_MEDIAN: Final = Key("median of 3 and more complete trials", '<path class="line typical" d="M0 5L24 5"/>')


# --- importance -------------------------------------------------------------------------------------------------------
def importance(scene: Scene) -> str:
    shares = scene.found["importance"]
    if not shares:
        return "<p>Importance is told when enough trials are complete.</p>"
    most = max(one["share"] for one in shares) or 1.0
    told = {one["name"]: one for one in scene.found["parameters"]}
    table = scroll_table("Importance", ("parameter", "", "share", "space"), (_bar(one, most, told) for one in shares))
    about = (
        f"How much of the difference in {scene.goal['metric']} each parameter explains, over the whole space. A short "
        "bar does not prove that a parameter has no effect near the best trials."
    )
    return f"<p>{escape(about)}</p>{table}"


def _bar(one: ImportanceView, most: float, told: Mapping[str, ParameterView]) -> str:
    width = 100 * max(0.0, one["share"]) / most
    space = space_text(told[one["name"]]) if one["name"] in told else ""
    bar = f'<div class="bar" aria-hidden="true"><i class="kept" style="width:{width:.1f}%"></i></div>'
    return (
        f'<tr><th scope="row">{escape(one["name"])}</th><td>{bar}</td><td>{one["share"]:.1%}</td>'
        f'<td class="text">{escape(space)}</td></tr>'
    )


# --- parallel coordinates ---------------------------------------------------------------------------------------------
def parallel(scene: Scene) -> str:
    """The most important parameters, then the objectives."""
    told, rows = scene.found["parameters"][:DRAWN], _lines(scene)
    if not rows or not told:
        return ""
    goals = [goal_axis(goal) for goal in scene.found["study"]["objectives"]]
    axes = [Upright(one["name"], space_text(one), ticks(one)) for one in told]
    axes += [Upright(one.title, one.title, [(one.place(at), words) for at, words in one.ticks]) for one in goals]
    few = "" if len(rows) == len(scene.rows) else ", the best and some of the others"
    about = (
        f"Each line is a trial, {len(rows):,} of them{few}: where those of the best meet, the good values are. A line "
        f"is broken where a trial has no such parameter.{beyond_text(scene.goal)}"
    )
    if len(told) < len(scene.found["parameters"]):
        about += f" These are the {DRAWN} most important parameters."
    keys = [Key("the best", '<path class="line top" d="M0 5L24 5"/>'), *GRADE_KEYS]
    tracks = (_track(scene, row, goals) for row in rows)
    return parallel_chart("Parameters of good and of bad trials", about, axes, tracks, keys, "parallel")


def _track(scene: Scene, row: PlacedRow, goals: Sequence[Axis]) -> Track:
    values = [(axis, scene.value_of(place)(row)) for place, axis in enumerate(goals)]
    ends = (None if value is None else axis.place(axis.within(value)) for axis, value in values)
    best = row["rank"] == 1 and not row["violated"]
    return Track([*row["places"][:DRAWN], *ends], "top" if best else scene.grade(row), scene.title(row))


def _lines(scene: Scene) -> Sequence[PlacedRow]:
    """The worst first: of many the best, and every n-th of the others."""
    if len(scene.rows) <= LINES:
        return scene.rows
    best, others = scene.rows[-LINES // 2 :], scene.rows[: -LINES // 2]
    left = LINES - len(best)
    return [*(others[len(others) * part // left] for part in range(left)), *best]


# --- each parameter ---------------------------------------------------------------------------------------------------
def slices(scene: Scene) -> Iterator[str]:
    if scene.goal["shown_low"] is not None:
        for place, one in enumerate(scene.found["parameters"][:DRAWN]):
            yield _slice(scene, place, one)


def _slice(scene: Scene, place: int, one: ParameterView) -> str:
    name, metric, x = one["name"], scene.goal["metric"], place_axis(one)

    def title(row: PlacedRow) -> str:
        return (
            f"trial {row['number']}, rank {row['rank']}: {result_text(row)}, {name}={param_text(row['params'][name])}"
        )

    middle = [(_middle(part), finite(part["median"])) for part in one["bins"] if part["complete"] >= _ENOUGH]
    known = [(at, value) for at, value in middle if value is not None]
    drawn = scene.scatter(lambda row: row["places"][place], scene.value_of(), x, scene.y, title)
    drawn.append(line(known, x, scene.y, "typical", "median of complete trials"))
    scale = "a logarithmic scale" if one["log"] else "evenly spaced values" if one["listed"] else "a linear scale"
    good = "valley" if scene.goal["direction"] == "minimize" else "peak"
    about = f"Each dot is a trial, by its {name}, on {scale}: a {good} is where to search."
    if one["edge"]:
        about += f" Most of the best are at its {one['edge']} end: a wider range may have better ones."
    heads = (name, "trials", "complete", f"best {metric}", "median")
    below = details(f"{metric} by {name}", heads, map(_part, one["bins"]))
    keys = [_MEDIAN] if known else []
    return figure(f"{metric} by {name}", about, drawn, x, scene.y, keys, name=f"slice-{place}", below=below)


def _middle(part: BinView) -> float:
    return (part["start"] + part["end"]) / 2


def _part(part: BinView) -> tuple[str, ...]:
    counts, values = (part["trials"], part["complete"]), (part["best"], part["median"])
    return (part["label"], *(f"{one:,}" for one in counts), *map(value_text, values))


# --- two parameters ---------------------------------------------------------------------------------------------------
def plane(scene: Scene) -> str:
    """The first two parameters."""
    grid = scene.found["grid"]
    if grid is None or not grid["cells"]:
        return ""
    x, y = scene.found["parameters"][:2]
    axes = place_axis(x), place_axis(y)
    drawn = [_cell(one, x, y) for one in grid["cells"]]
    best = scene.rows[-1]
    if best["rank"] == 1 and not best["violated"] and best["places"][0] is not None and best["places"][1] is not None:
        drawn.append(ring(Dot(best["places"][0], best["places"][1], ""), *axes))
    about = (
        f"{x['name']} across, {y['name']} up: the shade of a cell is the median rank of the trials in it. A cell that "
        "is empty was not tried; nothing is interpolated. The ring is the best trial."
    )
    told = sorted(grid["cells"], key=lambda one: one["standing"])[:_CELLS]
    heads = (x["name"], y["name"], "trials", "median rank, of all", f"best {scene.goal['metric']}")
    below = details(f"The best cells, at most {_CELLS}", heads, (_cell_texts(one, x, y) for one in told))
    keys = [Key(one.name, f'<rect class="g{at}" width="24" height="10" rx="2"/>') for at, one in enumerate(GRADE_KEYS)]
    return figure(f"{x['name']} and {y['name']}", about, drawn, *axes, keys, name="plane", below=below)


def _cell(one: CellView, x: ParameterView, y: ParameterView) -> str:
    across, up = x["bins"][one["x"]], y["bins"][one["y"]]
    names = f"{x['name']} {across['label']}, {y['name']} {up['label']}"
    trials = "1 trial" if one["trials"] == 1 else f"{one['trials']:,} trials"
    best = f"the best {value_text(one['best'])}" if one["best"] is not None else "none of them complete"
    text = f"{names}: {trials}, {best}; the median is at {one['standing']:.0%} of the ranking"
    return cell(across["start"], across["end"], up["start"], up["end"], grade(one["standing"]), text)


def _cell_texts(one: CellView, x: ParameterView, y: ParameterView) -> tuple[str, ...]:
    labels = x["bins"][one["x"]]["label"], y["bins"][one["y"]]["label"]
    return (*labels, f"{one['trials']:,}", f"{one['standing']:.0%}", value_text(one["best"]))
