"""`muster preflight ls`, `waive` and `revoke`: certificates, and exceptions with their reasons."""

from __future__ import annotations

from typing import Annotated

import typer

from muster.api.words import RUNGS, Rung
from muster.cli.call import Json, Usage
from muster.cli.connect import client as connected
from muster.cli.connect import sees_our_files
from muster.cli.output import emit, out
from muster.cli.preflight_run import Levels, levels
from muster.cli.preflight_view import show_certificates
from muster.cli.prepare import from_file, parse_overrides
from muster.cli.submit import Overrides

Why = Annotated[str, typer.Option("--why", help="The reason, which stays in the log.")]


def ls(
    project: Annotated[str | None, typer.Option("--project", "-p", help="Only of this project.")] = None,
    json: Json = False,
) -> None:
    """List certificates, the newest first."""
    with connected() as to:
        found = to.certificates(project)
    if json:
        emit({"certificates": found})
    else:
        show_certificates(found)


def waive(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The job file.")],
    why: Why,
    level: Levels = None,
    override: Overrides = None,
    json: Json = False,
) -> None:
    """Let a job, as it is now, run without rungs that a rule asks for. For admins of its project."""
    rungs: tuple[Rung, ...] = levels(level)
    if not rungs and "all" not in (level or ()):
        raise Usage("waive: no rung was named.", f"Give --level with one of {', '.join(RUNGS)}, or all.")
    with connected() as to:
        spec = from_file(file, parse_overrides(override or ()), sees_our_files(to)).spec
        found = to.waive_preflight(spec, rungs or RUNGS, why, inherit=False)
    if json:
        emit({"certificates": found})
    else:
        show_certificates(found)


def revoke(
    certificate: Annotated[str, typer.Argument(help="As `muster preflight ls` lists it.")], why: Why, json: Json = False
) -> None:
    """Take a certificate back: jobs need the rung again. For admins of its project."""
    with connected() as to:
        done = to.revoke_certificate(certificate, why)
    if json:
        emit({**done})
    else:
        out().print(f"{done['id']} does not count any more")
