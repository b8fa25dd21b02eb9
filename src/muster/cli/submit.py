"""`muster submit`: submits job files."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from muster.cli.call import Json, Usage
from muster.cli.connect import client, sees_our_files
from muster.cli.dry_run import show_accepted, show_refused
from muster.cli.forecast import start_and_cost
from muster.cli.output import emit, note, out, show_error
from muster.cli.prepare import Prepared, check_circle, from_file, needed_here, parse_overrides
from muster.cli.watch import watch
from muster.client import Client, Job, MusterError
from muster.core.errors import Refused

Overrides = Annotated[
    list[str] | None,
    typer.Option("--override", "-o", metavar="KEY=VALUE", help="Set a field of the job file: -o envs.LR=1e-3."),
]


def submit(
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="Job files; - reads one from standard input.")],
    override: Overrides = None,
    array: Annotated[
        str | None, typer.Option(metavar="INDEXES", help="Run it once for each index: 1-20, 0-9%4 or 3,5,9.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, say where and when it would start and at what cost.")
    ] = False,
    follow: Annotated[bool, typer.Option("--watch", "-w", help="Watch the job until it ends; for one file.")] = False,
    key: Annotated[
        str | None, typer.Option(help="Submitting again with the same key gives the same job; for one file.")
    ] = None,
    no_snapshot: Annotated[
        bool, typer.Option("--no-snapshot", help="Keep no copy of the code; the run can't be reproduced then.")
    ] = False,
    json: Json = False,
) -> None:
    """Submit job files. Nothing is sent unless every file is in order; those that need each other are accepted
    together."""
    if len(files) > 1 and (follow or key):
        raise Usage(f"{'--watch' if follow else '--key'} is for one job file, {len(files)} were given.", "Give one.")
    with client() as to:
        changes = {**parse_overrides(override or ()), **({"array": array} if array is not None else {})}
        jobs = _prepare(files, changes, sees_our_files(to))
        check_circle(jobs)
        if dry_run:
            _check(to, jobs, json)
            return
        if any(needed_here(one, jobs) for one in jobs):
            results = _submitted_together(to, jobs, json, not no_snapshot)
        else:
            results = [_submitted(to, one, key, json and not follow, not no_snapshot) for one in jobs]
        if follow and isinstance(results[0], Job):
            raise typer.Exit(watch(to, results[0], json))
    if json:
        emit({"jobs": [one.raw if isinstance(one, Job) else {"error": one.to_dict()} for one in results]})
    if not all(isinstance(one, Job) for one in results):
        raise typer.Exit(1)


def _prepare(files: list[str], overrides: dict[str, Any], local: bool) -> list[Prepared]:
    """All files, or an error; with several files, all errors are shown, and the last one is raised."""
    prepared, failure = list[Prepared](), None
    for name in files:
        try:
            prepared.append(from_file(name, overrides, local))
        except MusterError as error:
            if failure is not None:
                show_error(failure.to_dict(), as_json=False)
            failure = error
    if failure is not None:
        raise failure
    return prepared


def _check(to: Client, jobs: list[Prepared], json: bool) -> None:
    refused = False
    for one in jobs:
        try:
            here = needed_here(one, jobs)
            needs = {name: outcome for name, outcome in one.spec.needs.items() if name not in here}
            answer = to.check(one.spec.model_copy(update={"needs": needs}), inherit=False)
        except Refused as error:
            refused, document = True, error.to_dict()
            if json:
                emit({"ok": False, "accepted": False, "error": document, "source": one.source})
            else:
                show_refused(one.source, document["reasons"])
        else:
            if json:
                emit({**answer, "accepted": True, "source": one.source})
            else:
                show_accepted(one.source, one.spec.name, answer, here)
    if refused:
        raise typer.Exit(1)


def _submitted_together(to: Client, jobs: list[Prepared], quiet: bool, snapshot: bool) -> list[Job | MusterError]:
    results: list[Job | MusterError] = []
    answers = to.submit_many([one.spec for one in jobs], snapshot=snapshot, inherit=False, together=True)
    for one, answer in zip(jobs, answers, strict=True):
        if isinstance(answer, MusterError):
            results.append(answer)
            if not quiet:
                note(f"{one.source}:")
                show_error(answer.to_dict(), as_json=False)
        else:
            results.append(job := to.job(answer["id"]))
            if not quiet:
                show_submitted(to, job)
    return results


def _submitted(to: Client, one: Prepared, key: str | None, quiet: bool, snapshot: bool) -> Job | MusterError:
    try:
        job = to.submit(one.spec, key, snapshot=snapshot, inherit=False)
    except MusterError as error:
        if not quiet:
            show_error(error.to_dict(), as_json=False)
        return error
    if not quiet:
        show_submitted(to, job)
    return job


def show_submitted(to: Client, job: Job, more: str = "") -> None:
    """One line: the job, what it waits for or when it will start, and what it will cost."""
    after = f", after {', '.join(job.needs)}" if job.needs else ""
    tasks = f", {job.array['tasks']} tasks" if job.array else ""
    known = "" if after or tasks else start_and_cost(to, job)
    words = "; ".join(part for part in (known, more) if part)
    for warning in job.raw.get("warnings", ()):
        note((warning, "yellow"))
    out().print(Text.assemble("submitted ", (job.id, "bold"), tasks, after, (f"  {words}" if words else "", "dim")))
