"""`muster tune promote`: submits the winner of a study at the next scale, with the evidence for it."""

from __future__ import annotations

from typing import Annotated

import typer

from muster.cli.call import Json
from muster.cli.connect import client
from muster.cli.lazy import load
from muster.cli.output import emit
from muster.cli.submit import Overrides, show_submitted
from muster.cli.tune_list import StudyRef


def promote(
    ref: StudyRef,
    trial: Annotated[int | None, typer.Option(min=0, metavar="N", help="This one; else the winner.")] = None,
    override: Overrides = None,
    anyway: Annotated[bool, typer.Option("--anyway", help="Also one that was not run again with other seeds.")] = False,
    key: Annotated[str | None, typer.Option(help="Promoting again with the same key gives the same job.")] = None,
    json: Json = False,
) -> None:
    """Submit the winner at the next scale: `muster tune promote lr -o num_nodes=4 -o envs.STEPS=100000`.

    The job has the tags study, trial and held_up, and its purpose says how the trial held up with other seeds.
    """
    with client() as to:
        changes = load("muster.cli.prepare:parse_overrides")(override or ())
        job = to.promote(ref, trial, anyway=anyway, overrides=changes, key=key)
        if json:
            emit(job.raw)
        else:
            show_submitted(to, job, f"trial {job.tags['trial']} of {job.tags['study']}")
