"""`muster save`: has running jobs save a checkpoint now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from muster.cli import format
from muster.cli.call import Json
from muster.cli.connect import for_each
from muster.cli.jobs import JobRefs, seconds
from muster.client import Client


def save(
    refs: JobRefs,
    timeout: Annotated[str, typer.Option(metavar="TIME", help="How long to wait for the checkpoint.")] = "5m",
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Return when they are asked.")] = False,
    json: Json = False,
) -> None:
    """Have running jobs save now and go on: at their next step, without a stop.

    It works with muster.train, and with a program that calls muster.runtime.should_save() in its loop. One that has
    never called it is not asked, and the error says so."""
    patience = 0.0 if no_wait else seconds("--timeout", timeout)

    def one(to: Client, ref: str) -> tuple[Mapping[str, Any], str]:
        job = to.save(ref, patience)
        mark = None if no_wait else job.checkpoint
        saved = f"saved step {mark['step']:,} ({format.size(mark['bytes'])})" if mark else "is asked to save"
        return job.raw, f"{job.id} {saved}"

    for_each("jobs", refs, one, json)
