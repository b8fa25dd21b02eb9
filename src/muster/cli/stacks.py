"""`muster stacks`: what every rank of a running job is doing, merged by equal stacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Annotated

import typer
from rich.text import Text

from muster.api.stacks import ProcessStack, RankStacks, StackFrame, StacksView, ThreadStack
from muster.cli.call import Json, Usage
from muster.cli.connect import client
from muster.cli.jobs import JobRef
from muster.cli.output import emit, out
from muster.client.stack_calls import TIMEOUT

_SOURCES = {"py-spy": "by py-spy", "signal": "by its own handler", "kernel": "by the kernel"}


def stacks(
    ref: JobRef,
    rank: Annotated[int | None, typer.Option(min=0, help="Only this rank, with its whole stack.")] = None,
    full: Annotated[bool, typer.Option("--full", help="The whole stack of each group.")] = False,
    all_threads: Annotated[
        bool, typer.Option("--all-threads", help="Every thread of every process, rank by rank.")
    ] = False,
    last: Annotated[bool, typer.Option("--last", help="The last that were taken; also after the job's end.")] = False,
    timeout: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long to wait for ranks that do not answer.")
    ] = TIMEOUT,
    json: Json = False,
) -> None:
    """Show what every rank of a running job is doing now: its Python stacks, merged.

    It works for any program, also for one that hangs, and pauses none: py-spy looks into the processes if it is on the
    node and may; else a handler in each Python process writes its stacks; other programs show in which state they are.
    The stacks have names of functions and files, and no values. They are kept with the run."""
    with client() as to:
        view = to.stacks(ref, timeout=timeout, last=last)
    if rank is not None and rank >= view["world"]:
        raise Usage(f"--rank: {view['job']} has {view['world']} ranks; there is no rank {rank}.", "Count from 0.")
    shown = [one for one in view["ranks"] if rank is None or one["rank"] == rank]
    if json:
        emit({**view, "ranks": shown})
        return
    screen = out()
    screen.print(Text(_head(view), style="dim"))
    if rank is not None or all_threads:
        for one in shown:
            screen.print(Text("\n".join(_rank_lines(one, all_threads))))
        lost = [number for number in view["missing"] if rank in (None, number)]
        for number in lost:
            screen.print(Text(f"rank {number} without an answer"))
        return
    for group in view["groups"]:
        screen.print(Text(group["text"]))
        if full:
            for line in _frame_lines(group["frames"]):
                screen.print(Text(line))


def _head(view: StacksView) -> str:
    moment = datetime.fromtimestamp(view["time"]).astimezone().isoformat(sep=" ", timespec="seconds")
    answered = view["world"] - len(view["missing"])
    return f"{view['job']}, attempt {view['attempt']}, {answered} of {view['world']} ranks, {moment}"


def _rank_lines(one: RankStacks, all_threads: bool) -> Iterator[str]:
    yield f"rank {one['rank']}" + (f": {one['problem']}" if one["problem"] else "")
    for process in one["processes"]:
        yield f"  process {process['pid']} {process['name']}, seen {_how(process)}"
        for thread in process["threads"]:
            if thread["main"] or all_threads:
                yield f"    {_thread(thread)}"
                yield from _frame_lines(thread["frames"], indent=6)


def _how(process: ProcessStack) -> str:
    how = _SOURCES.get(process["source"], process["source"])
    return f"{how} ({process['problem']})" if process["problem"] else how


def _thread(thread: ThreadStack) -> str:
    wait = f" in {thread['wait']}" if thread["wait"] else ""
    state = f": {thread['state']}{wait}" if thread["state"] else ""
    return f"thread {thread['name'] or '-'}{state}"


def _frame_lines(frames: Sequence[StackFrame], indent: int = 4) -> Iterator[str]:
    """The innermost first, as in the kernel's and debuggers' lists."""
    for frame in frames:
        yield f"{' ' * indent}{frame['function']} at {frame['file']}:{frame['line']}"
