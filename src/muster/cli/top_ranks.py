"""`muster top JOB`: the ranks of a running job on one live screen; those that are unlike the others stand out."""

from __future__ import annotations

from rich.console import Group
from rich.text import Text

from muster.api.ranks import RanksView, RankView
from muster.cli import format
from muster.cli.live_screen import watch_screen
from muster.cli.output import emit, out, table
from muster.client import Client

_RANKS = 40  # shown one by one; of more, those that stand out and the first ones
_PHASES = 5


def top_ranks(to: Client, job: str, every: float, once: bool, json: bool) -> None:
    if json:
        emit(to.ranks(job))
    elif once or not out().is_terminal:
        out().print(_screen(to.ranks(job), _RANKS))
    else:
        watch_screen(lambda: (_screen(to.ranks(job), max(5, out().height - 8)), False), every)


def _screen(found: RanksView, most: int) -> Group:
    ranks = sorted(found["ranks"], key=lambda one: (not one["unlike"], one["rank"]))
    shown = ranks[:most]
    right = ("rank", "step", "CPUs", "device", "memory", "power", "quiet")
    made = table("rank", "node", "phase", "step", "CPUs", "device", "memory", "power", "quiet", "unlike", right=right)
    for one in shown:
        made.add_row(*_cells(one))
    more = [Text(f"and {len(ranks) - len(shown)} more ranks", style="dim")] if len(ranks) > len(shown) else []
    return Group(Text(_head(found), style="bold"), Text(""), made, *more)


def _head(found: RanksView) -> str:
    words = [found["job"], f"attempt {found['attempt']}", f"{len(found['ranks'])} ranks"]
    now, own = found["step_seconds"], found["step_seconds_own"]
    if now is not None and own is not None:
        words.append(f"a step {now:.3g} s (its own {own:.3g} s)")
    phases = sorted(found["phases"].items(), key=lambda pair: -pair[1])[:_PHASES]
    words += [f"{name or 'unstated'} {share:.0%}" for name, share in phases if share >= 0.01]
    return "   ".join(words)


def _cells(one: RankView) -> list[Text]:
    style = "bold yellow" if one["unlike"] else ""
    texts = (
        str(one["rank"]),
        one["node"],
        one["phase"] or "-",
        _figure(one["step"], "{:,}"),
        _figure(one["cpu"], "{:.1f}"),
        _figure(one["device_use"], "{:.0%}"),
        _figure(one["device_memory"], "{:.0%}"),
        _figure(one["power"], "{:.0f} W"),
        "-" if one["quiet"] is None or one["quiet"] < 1 else format.span(one["quiet"]),
        "; ".join(one["unlike"]),
    )
    return [Text(text, style=style) for text in texts]


def _figure(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
