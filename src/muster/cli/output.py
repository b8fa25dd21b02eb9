"""Output: JSON for programs, Rich text for people, and errors with a message and a hint."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from muster.api.errors import ErrorView
from muster.api.why import ReasonView
from muster.cli.terminal import plain

if TYPE_CHECKING:
    from muster.client import LogLine

PHASE_STYLES = {
    "queued": "yellow",
    "starting": "cyan",
    "running": "blue",
    "stopping": "magenta",
    "succeeded": "green",
    "failed": "red",
    "stopped": "bright_black",
}
_WIDEST: Final = 10_000  # maximum width of a table that is not shown on a terminal


class SafeConsole(Console):
    """A console that removes control sequences from text on a terminal; Rich adds its own later, from styles."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        rendered = super().render(renderable, options)
        if not self.is_terminal:
            return rendered
        return (one if one.control else Segment(plain(one.text), one.style) for one in rendered)


def out() -> Console:
    return SafeConsole(highlight=False, soft_wrap=True)


def err() -> Console:
    return SafeConsole(stderr=True, highlight=False, soft_wrap=True)


def emit(document: Any) -> None:
    """One JSON document on one line of stdout."""
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()  # a program may be reading it


def line_doc(line: LogLine) -> dict[str, Any]:
    """A line of output for programs; `dropped` is set if the line stands for that many missing bytes."""
    missing = {"dropped": line.dropped} if line.dropped else {}
    return {"attempt": line.attempt, "rank": line.rank, "text": line.text, "time": line.time, **missing}


def note(*parts: str | tuple[str, str]) -> None:
    """Prints a line for people on stderr, so that stdout holds only the result."""
    err().print(Text.assemble(*parts))


def table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """A table without a frame; `right` names the columns of numbers."""
    made = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", no_wrap=True)
    return made


def show_table(made: Table) -> None:
    """Prints a table, cut to the width of a terminal; complete if the output is a file or a program."""
    screen = out()
    if not screen.is_terminal:
        screen.width = max(
            screen.width, Measurement.get(screen, screen.options.update(max_width=_WIDEST), made).maximum
        )
    screen.print(made, soft_wrap=False, crop=False)


def phase_text(phase: str) -> Text:
    return Text(phase, style=PHASE_STYLES.get(phase, ""))


def hint_of(job_id: str, hint: str) -> str:
    """The hint with the job's id in its commands, so that they can be copied."""
    return re.sub(r"`muster (logs|resume|status|why)`", rf"`muster \1 {job_id}`", hint)


def cause_lines(reason: ReasonView, job_id: str = "") -> list[Text]:
    """One of several causes, with what to do below it; `job_id` goes into the commands."""
    lines = [Text.assemble("  ", (reason["code"], "bold"), f": {reason['message']}")]
    if reason["hint"]:
        lines.append(Text.assemble("    ", (hint_of(job_id, reason["hint"]) if job_id else reason["hint"], "green")))
    return lines


def show_error(error: ErrorView, as_json: bool) -> None:
    """`error` is in the API's format: {"code", "message", "hint"}, "problems" of a job file, "reasons" of a refusal."""
    if as_json:
        emit({"error": error})
        return
    problems, reasons = error.get("problems") or [], error.get("reasons") or []
    if len(reasons) > 1:
        lines = [Text.assemble(("error: ", "bold red"), f"refused for {len(reasons)} reasons")]
        err().print(Text("\n").join([*lines, *(line for reason in reasons for line in cause_lines(reason))]))
        return
    lines = [Text.assemble(("error: ", "bold red"), error["message"])]
    for problem in problems:
        lines.append(Text.assemble("  ", (problem["where"], "bold"), f": got {problem['given']}"))
        lines.append(Text(f"    expected {problem['expected']}"))
        lines.append(Text.assemble("    ", (problem["hint"], "green")))
    if error["hint"] and not problems:
        lines.append(Text.assemble("  ", (error["hint"], "green")))
    err().print(Text("\n").join(lines))
