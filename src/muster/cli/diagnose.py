"""`muster diagnose`: why a run is slow, idle, stuck or not learning, in a page of plain language."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from muster.api.diagnosis import CauseView, DiagnosisView
from muster.cli import complete
from muster.cli.call import Json, Usage
from muster.cli.connect import client
from muster.cli.output import emit, err, note, out
from muster.client import Client
from muster.client.stack_calls import LOOKS, SPACING
from muster.core.errors import Conflict, NotAllowed
from muster.core.units import InvalidValue, parse_duration

_LONGEST: Final = 3600.0  # seconds
_STYLES: Final = {"found": "bold red", "healthy": "bold green", "unknown": "bold yellow"}


def diagnose(
    ref: Annotated[str, typer.Argument(metavar="RUN", help="Id, number or name.", autocompletion=complete.jobs)],
    for_: Annotated[
        str, typer.Option("--for", metavar="TIME", help=f"How long to look at stacks: {LOOKS} times at most.")
    ] = "60s",
    no_sample: Annotated[bool, typer.Option("--no-sample", help="Only by what is recorded already.")] = False,
    json: Json = False,
) -> None:
    """Say why a run is slow, idle, stuck or not learning, with the numbers that show it and what to change.

    Of a job that runs it looks at the stacks of all ranks several times first, so that it also works for programs that
    report nothing. Of a run that is over it uses what is recorded. It says that it does not know where it does not."""
    seconds = _seconds(for_)
    with client() as to:
        run = to.run(ref)
        if run.phase == "running" and not no_sample:
            _sample(to, run.id, seconds, quiet=json)
        found = to.diagnosis(run.id)
    if json:
        emit(found)
        return
    screen = out()
    for line in page(found):
        screen.print(line)


def page(found: DiagnosisView) -> Iterator[Text]:
    """The verdict, then each finding with its evidence, then what all of it rests on."""
    attempt = f", attempt {found['attempt']}" if found["attempt"] else ""
    yield Text(f"{found['id']}: {found['phase']}{attempt}", style="dim")
    yield Text(found["verdict"], style=_STYLES[found["outcome"]])
    for number, one in enumerate(found["findings"], 1):
        yield Text("")
        yield from _finding(number, one)
    yield Text("")
    yield from _listed("What was looked at", found["looked_at"] or ["nothing is recorded yet"])
    if found["missing"]:
        yield from _listed("What would tell more", found["missing"])


def _finding(number: int, one: CauseView) -> Iterator[Text]:
    cost = "" if one["cause"] == "divergence" else f"{one['share']:.0%} of the time, "
    yield Text(f"{number}. {one['cause'].replace('_', ' ').capitalize()} ({cost}{one['confidence']:.0%} sure)", "bold")
    if number > 1:  # the first is the verdict
        yield Text(f"   {one['text']}")
    for line in one["evidence"]:
        yield Text(f"   - {line}")
    yield Text("   What to change:")
    for line in one["change"]:
        yield Text(f"   - {line}", style="green")
    if one["commands"]:
        yield Text(f"   Type: {'; '.join(f'`{command}`' for command in one['commands'])}")


def _listed(title: str, lines: list[str]) -> Iterator[Text]:
    yield Text(f"{title}:", style="dim")
    for line in lines:
        yield Text(f"- {line}", style="dim")


def _sample(to: Client, run: str, seconds: float, quiet: bool) -> None:
    screen = err()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=screen, transient=True, disable=quiet or not screen.is_terminal) as bars:
        task = bars.add_task("Looking at its stacks", total=max(1, min(LOOKS, int(seconds / SPACING))))
        try:
            for number in to.sample(run, seconds=seconds):
                bars.update(task, completed=number)
        except (Conflict, NotAllowed) as error:
            if not quiet:
                note(("Without stacks: ", "yellow"), str(error))


def _seconds(text: str) -> float:
    try:
        found = parse_duration(text)
    except InvalidValue:
        found = 0.0
    if not SPACING <= found <= _LONGEST:
        raise Usage(f"--for is {text!r}.", "Expected a duration from 3s to 1h, such as 60s.")
    return found
