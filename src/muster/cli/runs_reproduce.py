"""`muster runs reproduce`: submits a run again from its snapshot, and lists what can't be the same."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from muster.cli.call import Json, home_folder
from muster.cli.connect import client
from muster.cli.output import emit, out
from muster.cli.prepare import parse_overrides
from muster.cli.watch import watch
from muster.client import Client, Job
from muster.client.reproduce import Reproduction, differences, prepare, restore
from muster.core.document import read_document
from muster.core.parse import Overrides, parse_job
from muster.core.report import Report
from muster.core.spec import JobSpec, dump_job
from muster.inherited import inherited
from muster.runtime.environment import capture


def reproduce(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Its id, number or name.")],
    override: Annotated[
        list[str] | None,
        typer.Option("--override", "-o", metavar="KEY=VALUE", help="Change a field of its job file: -o envs.SEED=2."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what can't be the same; write and submit nothing.")
    ] = False,
    follow: Annotated[bool, typer.Option("--watch", "-w", help="Watch the new job until it ends.")] = False,
    json: Json = False,
) -> None:
    """Submit a run again: the same job file on the same files, in a folder of their own."""
    changed = parse_overrides(override or ())
    with client() as to:
        made = prepare(to, run, home_folder())
        beside = [] if dry_run else restore(to, made)
        spec = _spec(made, changed)
        found = differences(made, _here(to, spec, made.known["spec"].get("workdir")), beside)
        # The same files are the same snapshot, with the commit that it was made at.
        same = made.folder is not None and not beside and spec.workdir == str(made.folder)
        code = made.known["code"] if same else True
        job = None if dry_run else to.submit(spec, snapshot=code, inherit=False)
        _tell(made, job, found, dump_job(spec), json)
        if follow and job is not None:
            raise typer.Exit(watch(to, job, json))


def _tell(made: Reproduction, job: Job | None, found: list[dict[str, Any]], yaml: str, json: bool) -> None:
    answer: dict[str, Any] = {"run": made.run, "folder": str(made.folder) if made.folder else None}
    answer |= {"job": job.raw if job else None, "differences": found, "yaml": yaml}
    if json:
        emit(answer)
    else:
        _show(answer, made, job is None)


def _spec(made: Reproduction, changed: dict[str, Any]) -> JobSpec:
    """The run's own spec, in the restored folder, with the changes from the command line."""
    written = dict(read_document(made.known["yaml"], Report()))
    if made.folder is not None:
        written["workdir"] = str(made.folder)
    changed["tags"] = {**changed.get("tags", {}), "reproduces": made.run}
    return parse_job(written, source=f"The job file of {made.run}", overrides=Overrides(changed, base=Path.cwd()))


def _here(to: Client, spec: JobSpec, then: str | None) -> dict[str, Any] | None:
    """The environment of the job, if it runs on this machine. `then`: the folder in which the run was."""
    if not to.target.local:
        return None
    environment = {**inherited(os.environ), **spec.envs}  # as a rank's
    # A dry run writes no files, and a Python can't be asked in a folder that is not there.
    folder = next(folder for folder in (spec.workdir, then, Path.cwd()) if folder and Path(folder).is_dir())
    return capture(spec.run, environment, str(folder), {}, home_folder() / "cache")


def _show(answer: dict[str, Any], made: Reproduction, dry_run: bool) -> None:
    screen = out()
    if made.folder is not None:
        files = made.known["files"] or {}
        verb = "would be written to" if dry_run else "are in"
        screen.print(Text.assemble(f"{len(files)} files {verb} ", (str(made.folder), "bold")))
    if answer["differences"]:
        screen.print("What can't be the same, or may not be:")
    else:
        screen.print("Nothing is known that would be different.")
    for one in answer["differences"]:
        screen.print(Text.assemble("  ", (f"{one['what']:<12}", "yellow"), one["why"]))
    if answer["job"]:
        job = answer["job"]["id"]
        screen.print(Text.assemble("submitted ", (job, "bold"), (f"  see `muster compare {made.run} {job}`", "dim")))
