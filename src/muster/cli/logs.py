"""`muster logs`: the output of a job's ranks, so far or as it is written."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.text import Text

from muster.cli.call import Json, Usage
from muster.cli.connect import client
from muster.cli.jobs import JobRef
from muster.cli.output import emit, line_doc, note, out
from muster.cli.ranks import RankPrinter
from muster.client import Client, Job


def logs(
    ref: JobRef,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    rank: Annotated[int | None, typer.Option(min=0, help="Only of this rank.")] = None,
    attempt: Annotated[int | None, typer.Option(min=1, help="Only of this attempt.")] = None,
    tail: Annotated[int | None, typer.Option("--tail", "-n", min=0, help="Only the last so many lines.")] = None,
    json: Json = False,
) -> None:
    """Print what a job wrote, every attempt in order; with --json one object a line: attempt, rank, text.

    Past the limit of a rank (`log_limit`) the first and the last part are there, and a line between them."""
    with client() as to:
        job = to.job(ref)
        if job.array:
            _print_tasks(to, job, follow, rank, attempt, tail, json)
            return
        printer = RankPrinter(sys.stdout, named=job.ranks > 1 and rank is None)
        empty = True
        for line in to.logs(job.id, follow=follow, rank=rank, attempt=attempt, tail=tail):
            empty = False
            if json:
                emit(line_doc(line))
            else:
                printer.write(line)
        if empty and not json:
            note(f"{job.id} is {job.phase} and has written nothing", f" as rank {rank}." if rank is not None else ".")


def _print_tasks(
    to: Client, array: Job, follow: bool, rank: int | None, attempt: int | None, tail: int | None, json: bool
) -> None:
    """The output of all tasks of an array, one after the other."""
    if follow:
        raise Usage(f"{array.id} is an array.", f"Follow one of its tasks: `muster logs -f '{array.id}[0]'`.")
    for task in reversed(to.jobs(parent=array.id, limit=None)):
        if task.index is None:
            continue
        if not json:
            out().print(Text(f"==> {task.name} ({task.id}) <=="))
        printer = RankPrinter(sys.stdout, named=task.ranks > 1 and rank is None)
        for line in to.logs(task.id, rank=rank, attempt=attempt, tail=tail):
            if json:
                emit({"job": task.id, **line_doc(line)})
            else:
                printer.write(line)
