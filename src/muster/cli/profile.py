"""`muster profile`: where the ranks of a running job spend their time, function by function."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from muster.api.stacks import StacksView
from muster.cli.call import Json, Usage
from muster.cli.connect import client
from muster.cli.jobs import JobRef
from muster.cli.output import emit, out
from muster.client.stack_calls import PROFILED
from muster.core.units import InvalidValue, parse_duration
from muster.monitor.profiles import Function, folded, functions, merged
from muster.monitor.stacks import ranges

_LONGEST: Final = 60.0  # seconds


def profile(
    ref: JobRef,
    for_: Annotated[
        str, typer.Option("--for", metavar="TIME", help="How long to look at them, at most 60s.")
    ] = f"{PROFILED:g}s",
    rank: Annotated[int | None, typer.Option(min=0, help="Only this rank.")] = None,
    top: Annotated[int, typer.Option(min=1, help="How many functions to show.")] = 15,
    file: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Write folded stacks, for speedscope or flamegraph.pl."),
    ] = None,
    last: Annotated[bool, typer.Option("--last", help="The last that was taken; also after the job's end.")] = False,
    json: Json = False,
) -> None:
    """Show where the ranks of a running job spend their time.

    The main threads of all processes of each rank are looked at up to fifty times a second, whether they compute or
    wait. It works for any Python program, and pauses none: by py-spy if it is on the node and may look; else a handler
    in each process writes its stacks, some times a second. It is kept with the run, as stacks are."""
    with client() as to:
        view = to.profile(ref, seconds=_seconds(for_), last=last)
    if rank is not None and rank >= view["world"]:
        raise Usage(f"--rank: {view['job']} has {view['world']} ranks; there is no rank {rank}.", "Count from 0.")
    shown = [one for one in view["ranks"] if rank is None or one["rank"] == rank]
    if json:
        emit({**view, "ranks": shown})
        return
    stacks = merged(shown)
    if file is not None:
        file.write_text(folded(stacks))
    screen, total = out(), stacks.total()
    screen.print(Text(_head(view, total), style="dim"))
    for one in shown:
        if (why := _problem(one.get("profile"), one["problem"])) and rank in (None, one["rank"]):
            screen.print(Text(f"rank {one['rank']} without a profile: {why}"))
    if total:
        screen.print(_table(functions(stacks)[:top], total))
    if file is not None:
        screen.print(Text(f"{len(stacks)} stacks are in {file}."))


def _seconds(text: str) -> float:
    try:
        seconds = parse_duration(text)
    except InvalidValue:
        seconds = 0.0
    if not 0 < seconds <= _LONGEST:
        raise Usage(f"--for: expected up to 60 seconds, not {text!r}.", "Write, for example, --for 30s.")
    return seconds


def _problem(found: object, problem: str) -> str:
    if not isinstance(found, dict):
        return problem or "its launcher is of an older release"
    return str(found["problem"]) if not found["stacks"] else ""


def _head(view: StacksView, total: int) -> str:
    profiles = [one["profile"] for one in view["ranks"] if "profile" in one]
    seconds = max((one["seconds"] for one in profiles), default=0.0)
    missing = f", no answer of {ranges(view['missing'])}" if view["missing"] else ""
    how = ", ".join(sorted({one["source"] for one in profiles if one["stacks"]}))
    return f"{view['job']}, {len(profiles)} of {view['world']} ranks{missing}, {seconds:.1f} s, {total} samples" + (
        f" by {how}" if how else ""
    )


def _short(file: str) -> str:
    """As an import names it, of an installed package; else the file's own name."""
    _, package, within = file.rpartition("-packages/")
    return within if package else file.rpartition("/")[2]


def _table(found: list[Function], total: int) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("own", justify="right")
    table.add_column("with what it calls", justify="right")
    table.add_column("function", overflow="fold")
    table.add_column("where", overflow="fold")
    for one in found:
        lines = ", ".join(str(line) for line, _ in one.lines[:3])
        place = f"{_short(one.file)}:{lines}" if one.file else ""
        table.add_row(f"{one.own / total:.1%}", f"{one.whole / total:.1%}", Text(one.name), Text(place))
    return table
