"""The report of a study as one HTML file, with inline SVG and without scripts."""

from __future__ import annotations

from html import escape
from typing import Any, Final, TypeVar

from muster import __version__
from muster.api.studies import PlacedRow, RungView, StudyReport, VerdictView
from muster.cli import format
from muster.cli.terminal import plain
from muster.cli.tune_charts import learning, progress
from muster.cli.tune_format import (
    STATE_WORDS,
    goal_text,
    left_text,
    moment_text,
    money_text,
    origin_text,
    param_text,
    result_text,
    space_text,
    spent_text,
    state_text,
    time_text,
    trials_text,
    value_text,
)
from muster.cli.tune_fronts import against_cost, pareto, winners
from muster.cli.tune_scene import GRADE_KEYS, SHAPE_KEYS, Scene, cells
from muster.cli.tune_space_charts import importance, parallel, plane, slices
from muster.cli.tune_style import STYLE
from muster.pages.charts import legend
from muster.pages.document import document, notes_section, scroll_table

ROWS: Final = 500  # of the table of trials
_T = TypeVar("_T")


def page(found: StudyReport) -> str:
    """The whole file."""
    scene = Scene(cleaned(found))
    parts = (
        _head, _cards, _said, _progress, _winners, _fronts, _parameters, _rungs, _learning, _trials, _sources, _about,
    )  # fmt: skip
    body = "".join(part(scene) for part in parts)
    head = scene.found["study"]
    return document(f"Study {head['name']}", body, f"As of {moment_text(head['now'])}. Muster {__version__}.", STYLE)


def cleaned(value: _T) -> _T:
    """The same data, of whose texts no control character, no change of the writing direction, and no half of a
    surrogate pair is left: names and notes are text of users."""
    made: Any = value
    if isinstance(value, str):
        made = plain(value).encode("utf-8", "replace").decode()
    elif isinstance(value, dict):
        made = {cleaned(key): cleaned(one) for key, one in value.items()}
    elif isinstance(value, list):
        made = [cleaned(one) for one in value]
    return made  # type: ignore[no-any-return]


# --- in short ---------------------------------------------------------------------------------------------------------
def _head(scene: Scene) -> str:
    head = scene.found["study"]
    goals = " and ".join(map(goal_text, head["objectives"]))
    ended = f"ended {moment_text(head['ended'])}" if head["ended"] is not None else head["state"]
    about = (
        f"{goals[0].upper()}{goals[1:]}. Search: {', '.join(head['search'])}. Stopping rule: {head['stop']}. Project "
        f"{head['project']}, user {head['user']}; began {moment_text(head['began'])}, {ended}."
    )
    return f"<header><h1>Study {escape(head['name'])}</h1><p>{escape(about)}</p></header>"


def _cards(scene: Scene) -> str:
    found, head = scene.found, scene.found["study"]
    states = ", ".join(f"{one['trials']:,} {one['state']}" for one in found["states"])
    several = len(head["objectives"]) > 1
    cards = [
        (f"Best {scene.goal['metric']}" if several else "Best", *_best(scene)),
        ("Trials", trials_text(found), states),
        ("Money", spent_text(found), "of all trials, with those that run"),
        ("Time", time_text(head), left_text(head)),
    ]
    if several:
        cards.insert(1, ("Front", f"{len(found['front']):,} trials", "that none is better than in all objectives"))
    if found["verdict"] is not None:
        cards.insert(1, ("Winners", *_verdict(found["verdict"])))
    made = "".join(
        f'<div class="card"><h3>{escape(name)}</h3><b>{escape(value)}</b><br>{escape(more)}</div>'
        for name, value, more in cards
    )
    return f'<section class="cards" aria-label="In short">{made}</section>'


def _verdict(verdict: VerdictView) -> tuple[str, str]:
    words = {True: "the first is better", False: "no difference is shown", None: "not tested"}
    return words[verdict["better"]], f"p = {verdict['p']:.2g}" if verdict["p"] is not None else ""


def _best(scene: Scene) -> tuple[str, str]:
    best, goals = scene.found["best"], scene.found["study"]["objectives"]
    if best is None:
        return "none yet", "no trial has a value and keeps the constraints"
    values = ", ".join(
        f"{goal['metric']} {value_text(value)}" for goal, value in zip(goals, best["values"] or (), strict=False)
    )
    params = ", ".join(f"{name} {param_text(value)}" for name, value in best["params"].items())
    partial = "" if best["final"] else f", at step {best['step']:,} of a trial that is {best['state']}"
    return values, f"trial {best['number']}{partial}: {params}"


def _said(scene: Scene) -> str:
    """What somebody should read before the charts."""
    wait, stopped = scene.found["study"]["wait"], scene.found["study"]["stopped"]
    said = [f"It asks for no more trials: {stopped['message']}"] if stopped is not None else []
    said += [f"It waits: {wait['message']} {wait['hint']}"] if wait is not None else []
    return "".join(f'<p class="say">{escape(one.strip())}</p>' for one in [*said, *scene.found["notes"]])


# --- sections ---------------------------------------------------------------------------------------------------------
def _section(title: str, *parts: str) -> str:
    inner = "".join(parts)
    return f"<section><h2>{escape(title)}</h2>{inner}</section>" if inner else ""


def _charts(*figures: str, kind: str = "") -> str:
    inner = "".join(figures)
    return f'<div class="charts{kind}">{inner}</div>' if inner else ""


def _progress(scene: Scene) -> str:
    charts = _charts(*progress(scene), kind=" small")
    return _section("Best so far", _marks(scene) if charts else "", charts)


def _marks(scene: Scene) -> str:
    """What dots mean in all charts, and which trials have one."""
    one = scene.found["sample"]
    few = (
        f"{one['shown']:,} of {one['trials']:,} trials are drawn, among them the best {one['best']:,} and all extremes."
    )
    said = f"<p>{few}</p>" if one["rule"] else ""
    return f'<div class="marks">{said}{legend([*SHAPE_KEYS, *GRADE_KEYS])}</div>'


def _winners(scene: Scene) -> str:
    verdict = scene.found["verdict"]
    text = verdict["text"] if verdict is not None else ""
    said = f"<p>{escape(text[0].upper() + text[1:])}</p>" if text else ""
    return _section("How the winners held up", said, _charts(winners(scene)))


def _fronts(scene: Scene) -> str:
    title = "Objectives and cost" if scene.found["front"] else "Cost against quality"
    return _section(title, _charts(*pareto(scene), against_cost(scene)))


def _parameters(scene: Scene) -> str:
    if not scene.rows:
        return ""
    charts = _charts(*slices(scene), kind=" small"), _charts(plane(scene), kind=" wide")
    return _section("Parameters", importance(scene), parallel(scene), _marks(scene), *charts)


def _learning(scene: Scene) -> str:
    return _section("Learning curves", _charts(learning(scene), kind=" wide"))


def _rungs(scene: Scene) -> str:
    found = scene.found["rungs"]
    if not found:
        return ""
    several = len({one["bracket"] for one in found}) > 1
    most = max(one["reached"] for one in found) or 1
    whole = sum(one["cost"] for one in found)
    about = (
        "A row for each level at which the study looks at its trials. The bar has those that reached it: kept (blue), "
        "paused (yellow), stopped (grey), and failed, diverged or lost (red). Money and time are what it took to get "
        "there from the level before: a trial's cost is spread evenly over the time that it ran."
    )
    heads = ("level", "", "reached it", "kept", "paused", "stopped", "other", "best", "median", "money", "time")
    rows = (_rung(one, several, most, whole, scene.found["study"]["currency"]) for one in found)
    return _section("Levels", f"<p>{escape(about)}</p>", scroll_table("Levels", heads, rows))


def _rung(one: RungView, several: bool, most: int, whole: int, currency: str) -> str:
    kept = one["went_on"] + one["running"] + one["complete"]
    parts = (("kept", kept), ("held", one["paused"]), ("cut", one["stopped"]), ("gone", one["other"]))
    drawn = "".join(f'<i class="{kind}" style="width:{100 * count / most:.2f}%"></i>' for kind, count in parts)
    counts = [f"{count:,}" for count in (one["reached"], *(count for _, count in parts))]
    share = f" ({one['cost'] / whole:.0%})" if whole else ""
    texts = [value_text(one["best"]), value_text(one["median"]), money_text(one["cost"], currency) + share]
    texts = [*(counts if one["level"] is not None else ["-"] * len(counts)), *texts, format.span(one["seconds"])]
    level = f"bracket {one['bracket']}: " if several else ""
    level += "above the last" if one["level"] is None else f"{one['level']:g}"
    inner = "".join(f"<td>{escape(text)}</td>" for text in texts)
    bar = f'<td><div class="bar" aria-hidden="true">{drawn}</div></td>'
    return f'<tr><th scope="row">{escape(level)}</th>{bar}{inner}</tr>'


# --- tables -----------------------------------------------------------------------------------------------------------
def _trials(scene: Scene) -> str:
    found = scene.found
    shown = found["rows"][:ROWS]
    if not shown:
        return ""
    names = [one["name"] for one in found["parameters"]]
    goals = [one["metric"] for one in found["study"]["objectives"]]
    heads = ("trial", "rank", " and ".join(goals), *names, "state", "cost", "time", "steps", "from", "note")
    rows = (_trial(row, names, found["study"]["currency"]) for row in shown)
    many = found["sample"]["trials"]
    about = f"All {many:,}, the best first." if len(shown) == many else f"{len(shown):,} of {many:,}, the best first."
    table = scroll_table("Trials", heads, rows)
    return _section("Trials", f"<p>{about}</p>", f'<div class="long">{table}</div>')


def _trial(row: PlacedRow, names: list[str], currency: str) -> str:
    params = (param_text(row["params"][name]) if name in row["params"] else "" for name in names)
    texts = (
        f"{row['rank'] or '-'}", result_text(row), *params, state_text(row), money_text(row["cost"], currency),
        format.span(row["seconds"]), f"{row['step']:,}", origin_text(row),
    )  # fmt: skip
    inner = "".join(f"<td>{escape(text)}</td>" for text in texts)
    return f'<tr><th scope="row">{row["number"]}</th>{inner}<td class="text">{escape(row["note"])}</td></tr>'


def _sources(scene: Scene) -> str:
    found, currency = scene.found, scene.found["study"]["currency"]
    if not found["trials"]:
        return ""
    states = (
        (
            f"{one['trials']:,}",
            money_text(one["cost"], currency),
            format.span(one["seconds"]),
            STATE_WORDS[one["state"]],
        )
        for one in found["states"]
    )
    ended = (cells((one["state"], *texts), words=True) for one, texts in zip(found["states"], states, strict=True))
    sources = (
        cells((one["by"] or "-", one["origin"], f"{one['trials']:,}", f"{one['complete']:,}", value_text(one["best"])))
        for one in found["sources"]
    )
    metric = scene.goal["metric"]
    return _section(
        "Where trials came from, and how they ended",
        scroll_table("Trials by state", ("state", "trials", "cost", "time", "they"), ended),
        "<p></p>",
        scroll_table("Trials by source", ("suggested by", "as", "trials", "complete", f"best {metric}"), sources),
    )


def _about(scene: Scene) -> str:
    head = scene.found["study"]
    facts = [("study", head["id"]), ("seed", f"{head['seed']}")]
    facts += [
        ("objective", f"{goal_text(one)}: the {one['take']} value of a trial counts") for one in head["objectives"]
    ]
    facts += [("constraint", one) for one in head["constraints"]]
    facts += [(one["name"], space_text(one)) for one in scene.found["parameters"]]
    facts += [("search", one) for one in head["search"]] + [("stopping rule", head["stop"])]
    facts += [("at once", f"{head['limits']['parallel']['limit']:g}")] if head["limits"]["parallel"]["limit"] else []
    facts += [("from elsewhere", f"{head['prior']:,} trials that it began with")] if head["prior"] else []
    items = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts)
    rule = scene.found["sample"]["rule"]
    return _section("What was searched", f"<dl>{items}</dl>") + notes_section([rule] if rule else [])
