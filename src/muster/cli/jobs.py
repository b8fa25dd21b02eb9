"""`muster ls`, `stop`, `resume` and `priority`: lists, stops and resumes jobs, and changes their priority."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from muster.api.studies import StudyLine
from muster.api.words import PHASES, UNFINISHED
from muster.cli import complete, format
from muster.cli.call import Json, Usage
from muster.cli.connect import client, for_each
from muster.cli.live_screen import EVERY, watch_json, watch_screen
from muster.cli.output import emit, note, phase_text, show_table, table
from muster.cli.tune_job import best_cell, progress_cell, study_lines, study_of
from muster.client import Client, Job
from muster.core.units import PRIORITIES, InvalidValue, format_priority, parse_duration, parse_priority

FINISHED = PHASES[len(UNFINISHED) :]
_RECENT = 10  # finished jobs that `ls` shows below the unfinished ones

JobRef = Annotated[str, typer.Argument(metavar="JOB", help="Id, number or name.", autocompletion=complete.jobs)]
JobRefs = Annotated[
    list[str], typer.Argument(metavar="JOB", help="Ids, numbers or names.", autocompletion=complete.jobs)
]


def ls(
    phase: Annotated[list[str] | None, typer.Option(help="Only of this phase; may be repeated.")] = None,
    project: Annotated[str | None, typer.Option(help="Only of this project.", autocompletion=complete.projects)] = None,
    queue: Annotated[str | None, typer.Option(help="Only of this queue.", autocompletion=complete.queues)] = None,
    user: Annotated[str | None, typer.Option(help="Only of this user.")] = None,
    name: Annotated[str | None, typer.Option(help="Only of this name.")] = None,
    parent: Annotated[
        str | None,
        typer.Option(metavar="JOB", help="Only those that are part of this job.", autocompletion=complete.jobs),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="All there are, also those ended long ago.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")] = 100,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it again and again, until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(min=0.5, metavar="SECONDS", help="With --watch: the interval.")] = EVERY,
    json: Json = False,
) -> None:
    """List jobs: those that are not over, and the last few that are. An array is one line; --parent lists its tasks."""
    for one in phase or ():
        if one not in PHASES:
            raise Usage(f"--phase: got {one!r}.", f"Expected one of {', '.join(PHASES)}.")
    chosen: dict[str, str | None] = {"project": project, "queue": queue, "user": user, "name": name, "parent": parent}
    tasks = bool(everything or parent or name or phase)

    def find(to: Client) -> list[Job]:
        if everything or phase:
            return to.jobs(phase=tuple(phase or ()), limit=None if everything else limit, tasks=tasks, **chosen)
        both = [
            *to.jobs(phase=UNFINISHED, limit=limit, tasks=tasks, **chosen),
            *to.jobs(phase=FINISHED, limit=min(limit, _RECENT), tasks=tasks, **chosen),
        ]
        once = {job.id: job for job in both}  # one that ended in between is in both
        return sorted(once.values(), key=lambda job: job.number, reverse=True)[:limit]

    with client() as to:
        if watch and json:
            watch_json(lambda: {"jobs": [job.raw for job in find(to)]}, every)
        elif watch:
            watch_screen(lambda: (Group(_head(), _table(to, find(to))), False), every)
        else:
            jobs = find(to)
            if json:
                emit({"jobs": [job.raw for job in jobs]})
            elif jobs:
                show_table(_table(to, jobs))
            else:
                only = phase or any(chosen.values())
                note("No jobs", " match." if only else ". Submit one with `muster run`.")


def stop(
    refs: JobRefs,
    grace: Annotated[
        str | None, typer.Option(help="Time to save and leave, such as 30s; the job's own if unset.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Kill at once, without saving.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Return when they have ended.")] = False,
    json: Json = False,
) -> None:
    """Stop jobs: they are asked to save and leave, and `muster resume` continues them."""
    patience = None if grace is None else seconds("--grace", grace)

    def one(to: Client, ref: str) -> tuple[Mapping[str, Any], str]:
        job = to.stop(ref, patience, force)
        job = to.wait(job.id) if wait else job
        tasks = f": {format.tasks(job.array)}" if job.array else ""
        return job.raw, f"{job.id} {'ended' if job.final else 'is stopping'}{tasks}"

    for_each("jobs", refs, one, json)


def resume(
    refs: JobRefs,
    timeout: Annotated[str, typer.Option(metavar="TIME", help="How long to wait for one that is stopping.")] = "10m",
    checkpoint: Annotated[
        int | None, typer.Option(metavar="STEP", min=0, help="Go on from the checkpoint of this step instead.")
    ] = None,
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="Begin again: the checkpoints so far are not used.")
    ] = False,
    json: Json = False,
) -> None:
    """Continue stopped or failed jobs: the same run goes on from its last checkpoint."""
    patience = seconds("--timeout", timeout)

    def say(job: Job) -> None:
        note((f"{job.id} is stopping; waiting until it has stopped, at most {timeout}", "dim"))

    def one(to: Client, ref: str) -> tuple[Mapping[str, Any], str]:
        job = to.job(ref)
        if study_of(to, job) is not None:
            to.resume_study(job.id, patience)
            return to.job(job.id).raw, f"{job.id} goes on; see `muster tune status {job.id}`"
        job = to.resume(job.id, patience, say, checkpoint=checkpoint, from_scratch=from_scratch)
        if job.array:
            return job.raw, f"{job.id} is {job.phase} again: {format.tasks(job.array)}"
        start = f"from step {job.checkpoint['step']}" if job.checkpoint else "from the beginning"
        if job.start_from and not job.checkpoint and not from_scratch:
            start = f"from {format.start(job.start_from)}"
        elif not job.checkpoint and not from_scratch:
            start += ": it has no checkpoint"
        return job.raw, f"{job.id} is {job.phase} again, {start}"

    for_each("jobs", refs, one, json)


def priority(
    ref: JobRef,
    to_: Annotated[str, typer.Argument(metavar="PRIORITY", help="low, normal, high, urgent, or 0 to 100.")],
    json: Json = False,
) -> None:
    """Change the priority of a job that waits or runs: lower it, or raise it within the range of its queue."""
    try:
        wanted = parse_priority(to_)
    except InvalidValue:
        wanted = -1
    if not 0 <= wanted <= 100:
        raise Usage(f"PRIORITY: got {to_!r}.", f"Expected {', '.join(PRIORITIES)}, or a whole number from 0 to 100.")

    def one(to: Client, ref: str) -> tuple[Mapping[str, Any], str]:
        job = to.set_priority(ref, wanted)
        return job.raw, f"{job.id} has the priority {format_priority(job.priority)}"

    for_each("jobs", [ref], one, json)


def seconds(option: str, text: str) -> float:
    """The seconds of a duration option."""
    try:
        return parse_duration(text)
    except InvalidValue as unfit:
        raise Usage(f"{option}: got {text!r}.", unfit.hint or "Expected a duration such as 30s, 5m or 1h30m.") from None


def _head() -> Text:
    return Text(f"{format.clock(time.time())}  Ctrl-C leaves", style="dim")


def _table(to: Client, jobs: list[Job]) -> Table:
    return jobs_table(jobs, study_lines(to, jobs))


def jobs_table(jobs: list[Job], studies: Mapping[str, StudyLine] = MappingProxyType({})) -> Table:
    """`studies`: those among the jobs, by their ids."""
    now = time.time()
    made = table("id", "phase", "reason", "att", "progress", "nodes", "user", "age", right=("att", "progress", "age"))
    for job in jobs:
        code = job.reason.code if job.reason and job.reason.code != "completed" else ""
        study = studies.get(job.id)
        code = best_cell(study) if study is not None and not (job.final and code) else code
        reason = Text(format.tasks(job.array) if job.array else code, style="dim")
        where = (",".join(job.nodes) if job.placed else str(job.num_nodes)) if job.num_nodes and not job.array else "-"
        cells = [
            str(job.attempt),
            progress_cell(study) if study is not None else format.progress_cell(job.progress, job.phase == "running"),
            where,
            job.user,
            format.since(job.submitted_at, now),
        ]
        index = f" [{job.index}]" if job.index is not None else f" [{job.array['indexes']}]" if job.array else ""
        made.add_row(Text.assemble((job.id, "bold"), (index, "dim")), phase_text(job.phase), reason, *cells)
    return made
