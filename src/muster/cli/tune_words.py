"""A study on a terminal: how it stands, for `muster tune status` and the live view, and its trials as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from muster.api.studies import BestSoFar, LimitView, ObjectiveView, RungView, StudyStatus, TrialRow, TrialState
from muster.cli import format
from muster.cli.output import table
from muster.cli.tune_format import (
    goal_text,
    left_text,
    money_text,
    params_text,
    result_text,
    spent_text,
    state_text,
    time_text,
    trials_text,
    value_text,
)
from muster.cli.tune_scene import finite

STATE_STYLES: Final[dict[TrialState, str]] = {
    "queued": "yellow", "running": "blue", "leaving": "magenta", "paused": "cyan", "complete": "green",
    "stopped": "bright_black", "failed": "red", "infeasible": "red", "diverged": "red", "lost": "yellow",
    "replaced": "bright_black",
}  # fmt: skip
_BAR: Final = 20  # characters
_SPARK: Final = 30
_MOST: Final = 6  # parameters of which the importance is shown, and levels
_STYLES: Final = {"running": "blue", "stopping": "magenta", "ended": "green"}


def status_screen(found: StudyStatus, most: int = _MOST) -> RenderableType:
    """How a study stands. `most`: parameters and levels that are shown, if there are more."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, content in _facts(found):
        grid.add_row(name, content)
    if found["importance"]:
        grid.add_row("importance", importance_bars(found, most))
    parts: list[RenderableType] = [_title(found), grid]
    if found["rungs"]:
        parts += [Text(""), rungs_table(found["rungs"], found["study"]["currency"], most)]
    notes = [Text(one, style="yellow") for one in found["notes"]]
    return Group(*parts, *([Text("")] if notes else []), *notes)


def status_line(found: StudyStatus) -> str:
    """The study in one line, for output that is no terminal."""
    head, best = found["study"], found["best"]
    parts = [head["state"], f"{trials_text(found)} trials: {states_text(found)}", spent_text(found), time_text(head)]
    if best is not None:
        parts.insert(1, f"best {head['objectives'][0]['metric']} {result_text(best)} (trial {best['number']})")
    return "; ".join(parts)


def states_text(found: StudyStatus) -> str:
    return ", ".join(f"{one['trials']:,} {one['state']}" for one in found["states"]) or "none yet"


def sparkline(one: BestSoFar, width: int = _SPARK) -> str:
    """The best so far over the trials that have ended, from the lowest to the highest value; blank before the first."""
    points = [(point["ended"], value) for point in one["points"] if (value := finite(point["value"])) is not None]
    if not points:
        return ""
    low, high = (end(value for _, value in points) for end in (min, max))
    width = max(1, min(width, one["ended"]))
    values: list[float | None] = []
    for column in range(width):
        by = (column + 1) * one["ended"] / width
        known = [value for ended, value in points if ended <= by]
        share = (known[-1] - low) / (high - low) if known and high > low else 0.5
        values.append(share if known else None)
    return format.bars(values, 1.0)


def importance_bars(found: StudyStatus, most: int = _MOST) -> RenderableType:
    """A bar for each parameter, the longest for the most important."""
    shares = found["importance"]
    largest = max((one["share"] for one in shares), default=0.0) or 1.0
    grid = Table.grid(padding=(0, 2))
    for one in shares[:most]:
        grid.add_row(Text(one["name"]), _bar(one["share"] / largest), f"{one['share']:.0%}")
    if len(shares) > most:
        grid.add_row(Text(f"and {len(shares) - most} more", style="dim"))
    return grid


def rungs_table(rungs: Sequence[RungView], currency: str, most: int = _MOST) -> RenderableType:
    """The levels, of many the highest ones."""
    numbers = ("reached", "kept", "paused", "stopped", "other", "best", "money", "time")
    made = table("level", *numbers, right=numbers)
    several = len({one["bracket"] for one in rungs}) > 1
    for one in rungs[-most:]:
        level = "above" if one["level"] is None else f"{one['level']:g}"
        kept = one["went_on"] + one["running"] + one["complete"]
        counts = (one["reached"], kept, one["paused"], one["stopped"], one["other"])
        made.add_row(
            f"{one['bracket']}: {level}" if several else level,
            *(f"{count:,}" if one["level"] is not None else "-" for count in counts),
            value_text(one["best"]),
            money_text(one["cost"], currency),
            format.span(one["seconds"]),
        )
    left_out = len(rungs) - most
    return made if left_out <= 0 else Group(Text(f"{left_out} lower levels are not shown", style="dim"), made)


def trials_table(rows: Sequence[TrialRow], goals: Sequence[ObjectiveView], currency: str) -> Table:
    """Trials in the order in which they come. Their parameters are in one column, which breaks into lines: a number
    that is cut would be another one."""
    made = table("trial", "state", "", "cost", "time", right=("trial", "", "cost", "time"))
    made.columns[2].header = Text(", ".join(one["metric"] for one in goals))  # a name is no markup
    made.add_column("parameters", overflow="fold", ratio=1)
    for one in rows:
        made.add_row(
            f"{one['number']}",
            Text(state_text(one), style=STATE_STYLES[one["state"]]),
            result_text(one),
            money_text(one["cost"], currency),
            format.span(one["seconds"]),
            Text(params_text(one["params"])),
        )
    return made


# --- parts of the screen ----------------------------------------------------------------------------------------------
def _title(found: StudyStatus) -> Text:
    head = found["study"]
    goals = " and ".join(map(goal_text, head["objectives"]))
    words = f"{goals}   {', '.join(head['search'])}   {head['stop']}"
    title = Text.assemble((head["name"], "bold"), "   ", (head["state"], _STYLES[head["state"]]), f"   {words}")
    title.no_wrap, title.overflow = True, "ellipsis"
    return title


def _facts(found: StudyStatus) -> Iterator[tuple[str, RenderableType]]:
    head, limits = found["study"], found["study"]["limits"]
    yield "best", _best(found)
    for one in found["progress"]:
        if one["points"]:
            yield "so far", _course(one)
    yield "trials", _states(found)
    yield "money", _used(spent_text(found), limits["cost"])
    left = left_text(head)
    yield "time", _used(time_text(head) + (f", {left}" if left else ""), limits["seconds"])
    if head["stopped"] is not None:
        yield "stopped", Text(head["stopped"]["message"])
    if head["wait"] is not None:
        yield "waits", Text(f"{head['wait']['message']} {head['wait']['hint']}".strip(), style="yellow")


def _best(found: StudyStatus) -> Text:
    """Of several objectives, the best of each."""
    best, goals = found["best"], found["study"]["objectives"]
    if best is None:
        return Text("none yet", style="dim")
    if len(goals) > 1 and all(one["points"] for one in found["progress"]):
        ends = ((one["metric"], one["points"][-1]) for one in found["progress"])
        return Text("   ".join(f"{name} {value_text(end['value'])} (trial {end['trial']})" for name, end in ends))
    state = "" if best["final"] else f", {best['state']}"
    return Text.assemble(
        (f"{goals[0]['metric']} {result_text(best)}", "bold"), f"   trial {best['number']}{state}\n",
        params_text(best["params"]),
    )  # fmt: skip


def _course(one: BestSoFar) -> Text:
    first, last = one["points"][0], one["points"][-1]
    since = one["ended"] - last["ended"]
    words = f"{one['metric']} {value_text(first['value'])} → {value_text(last['value'])}"
    words += f", {since:,} trials ago" if since else ""
    return Text.assemble((sparkline(one), "green"), f"  {words}")


def _states(found: StudyStatus) -> Text:
    text = Text(f"{trials_text(found)}:  " if found["states"] else trials_text(found))
    for place, one in enumerate(found["states"]):
        text.append(", " if place else "").append(f"{one['trials']:,} {one['state']}", STATE_STYLES[one["state"]])
    return text


def _used(words: str, limit: LimitView) -> Text:
    """With a bar, if there is a limit."""
    if not limit["limit"]:
        return Text(words)
    return Text.assemble(_bar(limit["used"] / limit["limit"]), f"  {words}")


def _bar(share: float) -> Text:
    filled = round(_BAR * min(1.0, max(0.0, share)))
    return Text.assemble(("━" * filled, "blue"), ("╌" * (_BAR - filled), "dim"))
