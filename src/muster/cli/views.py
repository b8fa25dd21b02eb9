"""Displays a watched job: a terminal with a status line, plain text for a file, or JSON for a program."""

from __future__ import annotations

import sys
import time
from typing import Final, Protocol

from rich.live import Live
from rich.text import Text

from muster.cli import format
from muster.cli.connect import say_link
from muster.cli.output import SafeConsole, emit, line_doc, note, phase_text
from muster.cli.ranks import RankPrinter
from muster.client import Job, LogLine

_DRAW_EVERY: Final = 0.2  # seconds


class View(Protocol):
    """Gets each item in order, and `tick` at intervals."""

    def lines(self, lines: list[LogLine]) -> None: ...
    def job(self, job: Job) -> None: ...
    def link(self, back: bool) -> None: ...
    def tick(self) -> None: ...
    def close(self) -> None: ...


class JsonView:
    """One object per line, named as in the API: {"event": "log", ...} and {"event": "job", "job": ...}."""

    def lines(self, lines: list[LogLine]) -> None:
        for line in lines:
            emit({"event": "log", **line_doc(line)})

    def job(self, job: Job) -> None:
        emit({"event": "job", "job": job.raw})

    def link(self, back: bool) -> None:
        say_link(back)

    def tick(self) -> None:
        pass

    def close(self) -> None:
        pass


class PlainView:
    """Output on stdout as it was written, and events of the job on stderr."""

    def __init__(self, named: bool) -> None:
        self._printer = RankPrinter(sys.stdout, named)
        self._state = ("", 0)

    def lines(self, lines: list[LogLine]) -> None:
        for line in lines:
            self._printer.write(line)

    def job(self, job: Job) -> None:
        if (job.phase, job.attempt) == self._state or job.final:
            return
        self._state = (job.phase, job.attempt)
        attempt = f" (attempt {job.attempt})" if job.attempt > 1 else ""
        why = f": {job.reason.message}" if job.reason and job.phase in ("queued", "stopping") else ""
        note((f"{job.id} {job.phase}{attempt}{why}", "dim"))

    def link(self, back: bool) -> None:
        say_link(back)

    def tick(self) -> None:
        pass

    def close(self) -> None:
        pass


class ScreenView:
    """Output above, and one status line of the job below it."""

    def __init__(self, named: bool) -> None:
        self._console = SafeConsole(highlight=False)
        self._printer = RankPrinter(sys.stdout, named)
        self._live: Live | None = None
        self._job: Job | None = None
        self._linked = True
        self._drawn_at = float("-inf")

    def lines(self, lines: list[LogLine]) -> None:
        self._console.print(Text("\n").join(self._printer.styled(line) for line in lines), soft_wrap=True)

    def job(self, job: Job) -> None:
        self._job = job

    def link(self, back: bool) -> None:
        self._linked = back

    def tick(self) -> None:
        if self._job is None or time.monotonic() - self._drawn_at < _DRAW_EVERY:
            return
        self._drawn_at = time.monotonic()
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(status_line(self._job, self._linked), refresh=True)

    def close(self) -> None:
        """Removes the status line; the next tick draws it again."""
        if self._live is not None:
            self._live.stop()
            self._live = None


def status_line(job: Job, linked: bool) -> Text:
    """One line, cut at the edge of the terminal, because it is redrawn in place."""
    parts = [Text(job.id, style="bold"), phase_text(job.phase)]
    if job.attempt > 1:
        parts.append(Text(f"attempt {job.attempt}"))
    if bar := format.progress_line(job.progress):
        parts.append(Text(bar))
    else:
        parts.append(Text(f"for {format.since(job.since)}"))
    if job.reason and job.phase in ("queued", "stopping"):
        parts.append(Text(job.reason.message, style="dim"))
    if not linked:
        parts.append(Text("server away, retrying", style="yellow"))
    line = Text("  ", no_wrap=True, overflow="ellipsis").join(parts)
    line.no_wrap, line.overflow = True, "ellipsis"
    return line
