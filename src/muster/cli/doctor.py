"""`muster doctor`: checks this machine, the home folder and the server, and says how to fix problems."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from muster.cli import check_machine, check_server, complete, engine_doctor
from muster.cli.call import Json, home_folder
from muster.cli.check import Check
from muster.cli.output import emit, out

_STYLES = {"ok": "green", "warn": "yellow", "fail": "red"}


def doctor(
    engine: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Check this engine instead.", autocompletion=complete.engines),
    ] = None,
    json: Json = False,
) -> None:
    """Check this machine, the home folder and the server, or one engine. The exit code is 1 if anything fails."""
    home = home_folder()
    checks: list[Check] = []
    screen = out()
    everything = (found for check in (*check_machine.CHECKS, *check_server.CHECKS) for found in check(home))
    for found in everything if engine is None else engine_doctor.look(home, engine):
        checks.append(found)
        if not json:
            screen.print(_line(found))
    failed = any(found.status == "fail" for found in checks)
    if json:
        emit({"ok": not failed, "checks": [asdict(found) for found in checks]})
    if failed:
        raise typer.Exit(1)


def _line(found: Check) -> Text:
    line = Text.assemble((f"{found.status:<4}", _STYLES[found.status]), f"  {found.name}: {found.detail}")
    if found.hint:
        line.append(f"\n      {found.hint}", style="green")
    return line
