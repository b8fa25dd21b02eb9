"""`muster logs`: the output of a job's ranks, so far or as it is written."""

from __future__ import annotations

import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from typing import Annotated

import typer
from rich.text import Text

from muster.cli.call import Json, Usage
from muster.cli.connect import client
from muster.cli.jobs import JobRef
from muster.cli.output import emit, line_doc, note, out
from muster.cli.ranks import RankPrinter
from muster.cli.tune_job import study_of
from muster.client import Client, Job, LogLine
from muster.core.units import InvalidValue, parse_duration


def logs(
    ref: JobRef,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    rank: Annotated[int | None, typer.Option(min=0, help="Only of this rank.")] = None,
    attempt: Annotated[int | None, typer.Option(min=1, help="Only of this attempt.")] = None,
    tail: Annotated[int | None, typer.Option("--tail", "-n", min=0, help="Only the last so many lines.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only what was written since: 10m, or 2026-01-31T12:00.")
    ] = None,
    grep: Annotated[
        str | None, typer.Option("--grep", "-g", metavar="PATTERN", help="Only lines that this expression matches.")
    ] = None,
    ignore_case: Annotated[bool, typer.Option("--ignore-case", "-i", help="Upper and lower case are equal.")] = False,
    timestamps: Annotated[bool, typer.Option("--timestamps", "-t", help="Say when each line was written.")] = False,
    json: Json = False,
) -> None:
    """Print what a job wrote, every attempt in order; with --json one object a line: attempt, rank, text, time.

    Past the limit of a rank (`log_limit`) the first and the last part are there, and a line between them. Times are
    those of the clock of the node. With --grep, --tail means the last lines that match; with --follow too, it means the
    last lines, and those of them that match."""
    wanted = _pattern(grep, ignore_case)
    begin = None if since is None else _moment(since)
    last = tail if wanted is not None and not follow else None  # the server does not know the pattern
    with client() as to:

        def lines(job: Job) -> Iterable[LogLine]:
            found: Iterable[LogLine] = to.logs(job.id, follow, rank, attempt, None if last is not None else tail, begin)
            if wanted is not None:
                found = (line for line in found if wanted.search(line.text))
            return found if last is None else deque(found, maxlen=last)

        job = to.job(ref)
        if job.array:
            if follow:
                raise Usage(f"{job.id} is an array.", f"Follow one of its tasks: `muster logs -f '{job.id}[0]'`.")
            _print_tasks(to, job, lines, rank, timestamps, json)
            return
        if study_of(to, job) is not None:
            words = f"muster logs {'-f ' if follow else ''}'{job.id}[0]'"
            raise Usage(f"{job.id} is a study, whose trials write.", f"Look at one of them: `{words}`.")
        printer = RankPrinter(sys.stdout, named=job.ranks > 1 and rank is None, timed=timestamps)
        empty = True
        for line in lines(job):
            empty = False
            if json:
                emit(line_doc(line))
            else:
                printer.write(line)
        if empty and not json:
            of = f" as rank {rank}" if rank is not None else ""
            only = " that was asked for" if wanted is not None or begin is not None else ""
            note(f"{job.id} is {job.phase} and has written nothing{only}{of}.")


def _pattern(text: str | None, ignore_case: bool) -> re.Pattern[str] | None:
    if text is None:
        return None
    try:
        return re.compile(text, re.IGNORECASE if ignore_case else 0)
    except re.error as error:
        raise Usage(
            f"--grep: {text!r} is not a regular expression: {error}.", "Put a \\ before signs meant literally."
        ) from None


def _moment(text: str) -> float:
    """A time, or how long ago."""
    with suppress(InvalidValue):
        return time.time() - parse_duration(text)
    try:
        return datetime.fromisoformat(text).timestamp()  # local time, unless it says otherwise
    except (ValueError, OverflowError, OSError):
        raise Usage(f"--since: got {text!r}.", "Expected how long ago, such as 10m, or 2026-01-31T12:00.") from None


def _print_tasks(
    to: Client, array: Job, lines: Callable[[Job], Iterable[LogLine]], rank: int | None, timed: bool, json: bool
) -> None:
    """The output of all tasks of an array, one after the other."""
    for task in reversed(to.jobs(parent=array.id, limit=None)):
        if task.index is None:
            continue
        if not json:
            out().print(Text(f"==> {task.name} ({task.id}) <=="))
        printer = RankPrinter(sys.stdout, named=task.ranks > 1 and rank is None, timed=timed)
        for line in lines(task):
            if json:
                emit({"job": task.id, **line_doc(line)})
            else:
                printer.write(line)
