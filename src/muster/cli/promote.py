"""`muster promote RUN --to STAGE`: what is missing, then the job of the next stage; reviews."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.text import Text

from muster.cli import complete
from muster.cli.call import Json, Usage
from muster.cli.connect import client
from muster.cli.format import since
from muster.cli.lazy import load
from muster.cli.output import emit, note, out, show_table, table
from muster.cli.submit import Overrides


def promote(
    words: Annotated[
        list[str], typer.Argument(metavar="[ask|approve] RUN|ls", help="A run.", autocompletion=complete.jobs)
    ],
    to: Annotated[str, typer.Option("--to", metavar="STAGE", help="A stage of the policy, such as large.")] = "",
    devices: Annotated[
        int | None, typer.Option("--devices", min=1, metavar="N", help="Of the next job; else those of the stage.")
    ] = None,
    override: Overrides = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what is missing, and what would run.")] = False,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Although something is missing: for admins, with --why.")
    ] = False,
    why: Annotated[str, typer.Option("--why", help="Of a request, an approval or an override.")] = "",
    key: Annotated[str | None, typer.Option(help="Promoting again with the same key gives the same job.")] = None,
    json: Json = False,
) -> None:
    """Promote a run to a stage: shows what it lacks with the command for each, or submits the next job.

    Exits with 1 if something is missing. `muster promote ask RUN --to STAGE --why TEXT` asks for a review, `muster
    promote ls` has those that wait for one, and `muster promote approve RUN --to STAGE --why TEXT` is for the reviewer.
    """
    action, run = _parsed(words)
    if action != "ls" and not to:
        raise Usage("there is no --to.", f"Write `muster promote {' '.join(words)} --to STAGE`.")
    with client() as at:
        if action == "ls":
            _list(at.reviews(), json)
            return
        if action in ("ask", "approve"):
            say = at.ask_for_review if action == "ask" else at.approve_promotion
            found: Mapping[str, Any] = say(run, to, why)
        else:
            changes = load("muster.cli.prepare:parse_overrides")(override or ())
            given: dict[str, Any] = {"devices": devices, "changes": changes, "override": anyway, "why": why}
            found = at.promote_run(run, to, dry_run=True, **given)
            if not dry_run and (found["ready"] or anyway):
                found = at.promote_run(run, to, key=key, **given)
    if json:
        emit(found)
    else:
        _show(found, action, dry_run)
    if action == "promote" and not found["ready"] and "job" not in found:
        raise typer.Exit(1)


def _parsed(words: list[str]) -> tuple[str, str]:
    if words == ["ls"]:
        return "ls", ""
    if len(words) == 1 and words[0] not in ("ask", "approve"):
        return "promote", words[0]
    if len(words) == 2 and words[0] in ("ask", "approve"):
        return words[0], words[1]
    raise Usage(f"got {' '.join(words)!r}.", "Write `muster promote RUN --to STAGE`, or `muster promote approve RUN`.")


def _list(found: Mapping[str, Any], json: bool) -> None:
    if json:
        emit(found)
        return
    if not found["reviews"]:
        note(("no review is asked for", "dim"))
        return
    made = table("run", "to", "asked by", "since", "why", "who may approve")
    for one in found["reviews"]:
        who = "you" if one["yours"] else f"a {one['reviewer']} of {one['project']}"
        made.add_row(one["run"], one["stage"], one["actor"], since(one["time"]), one["why"].split("\n")[0], who)
    show_table(made)


def _show(found: Mapping[str, Any], action: str, dry_run: bool) -> None:
    made = table("", "needs", "expected", "found")
    for one in found["needs"]:
        mark = Text("✓", style="green") if one["holds"] else Text("✗", style="red")
        made.add_row(mark, one["name"], one["expected"], one["found"])
    show_table(made)
    for one in found["needs"]:
        if one["command"]:
            out().print(Text.assemble((f"{one['name']:<12}", "dim"), one["command"]))
    if found["scaling"]:
        out().print(Text.assemble((f"{'scaling':<12}", "dim"), found["scaling"]["text"]))
    out().print(Text.assemble((f"{'next job':<12}", "dim"), f"{found['devices']} devices. {found['batch']}"))
    if "job" in found:
        over = f", overridden: {', '.join(found['overridden'])}" if found["overridden"] else ""
        out().print(Text(f"{found['run']} is promoted to {found['stage']}: {found['job']['id']}{over}"))
    elif action == "ask":
        out().print(Text(f"A review is asked for: {found['run']} for {found['stage']}"))
    elif action == "approve":
        out().print(Text(f"Approved: {found['run']} for {found['stage']}"))
    elif dry_run and found["ready"]:
        note(("nothing is missing", "dim"))
