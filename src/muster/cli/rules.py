"""`muster queue rules` and `muster queue apply`: describes the policy in plain language, and applies another one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.padding import Padding
from rich.text import Text

from muster.api.rules import RuleSection
from muster.cli import complete
from muster.cli.call import Json, Usage
from muster.cli.connect import client
from muster.cli.output import emit, note, out
from muster.cli.terminal import stdout
from muster.core.errors import Invalid, NotFound


def rules(
    queue: Annotated[
        str | None, typer.Argument(metavar="[QUEUE]", help="Only what holds for it.", autocompletion=complete.queues)
    ] = None,
    yaml: Annotated[bool, typer.Option("--yaml", help="Print the policy file.")] = False,
    json: Json = False,
) -> None:
    """Say in plain language what the queues, pools and projects are held to."""
    if yaml and queue:
        raise Usage("--yaml prints the whole policy.", "Leave the queue out.")
    with client() as to:
        found = to.rules()
    if queue is not None:
        found["described"] = _of_queue(found["described"], queue)
    if json:
        emit(found)
    elif yaml:
        stdout().write(found["text"])
    else:
        _show(found["described"])


def apply(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A policy file; - reads it from standard input.")],
    check: Annotated[bool, typer.Option("--check", help="Only say what it would change.")] = False,
    create: Annotated[
        bool, typer.Option("--create", help="Create the queues that it names and that are missing.")
    ] = False,
    project: Annotated[
        str, typer.Option(help="With --create: whose queues they are.", autocompletion=complete.projects)
    ] = "default",
    json: Json = False,
) -> None:
    """Put a policy file in force, all of it or nothing, and say what that changes."""
    text = read_policy_text(file)
    with client() as to:
        found = to.set_rules(text, dry_run=check, source=file, create=project if create else None)
    if json:
        emit({key: found[key] for key in ("applied", "changes", "created", "rules", "described")})
        return
    if found["created"]:
        verb = "would be created" if check else "created"
        out().print(Text(f"queues of project {project} {verb}: {', '.join(found['created'])}"))
    for change in found["changes"]:
        out().print(Text(change["title"], style="bold"))
        for sign, style, lines in (("-", "red", change["removed"]), ("+", "green", change["added"])):
            for line in lines:
                out().print(Text(f"  {sign} {line}", style=style))
    if not found["changes"]:
        note("The rules in force say the same.")
    elif check:
        note(f"{file} is right. Nothing was changed: leave --check out to put it in force.")
    else:
        note("These rules are in force.")


def read_policy_text(file: str) -> str:
    if file == "-":
        return sys.stdin.read()
    try:
        return Path(file).expanduser().read_text()
    except FileNotFoundError:
        raise NotFound(
            f"There is no policy file {file}.", "Check the path; docs/policy-file.md has an example."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"{file} can't be read: {error}.", "Name a policy file, as in `policy.yaml`.") from None


def _of_queue(described: list[RuleSection], name: str) -> list[RuleSection]:
    found = [part for part in described if part["about"] == "queue" and part["name"] == name]
    if not found or not name:
        raise NotFound(f"There is no queue {name!r} that you can see.", "See `muster queue`.")
    return found


def _show(described: list[RuleSection]) -> None:
    console = out()
    for number, part in enumerate(described):
        console.print(Text(("\n" if number else "") + part["title"], style="bold"))
        for line in part["lines"]:
            console.print(Padding(Text(line), (0, 0, 0, 2)), soft_wrap=False)
