"""Prints lines of several ranks: each with its rank in front, in its own colour on a terminal."""

from __future__ import annotations

from datetime import datetime
from typing import TextIO

from rich.text import Text

from muster.cli.output import SafeConsole
from muster.cli.terminal import colours_only
from muster.client import LogLine

COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "bright_cyan", "bright_magenta", "bright_green")


class RankPrinter:
    """Writes lines to a stream; `named` puts `[r0]` in front of each, and `timed` when it was written."""

    def __init__(self, stream: TextIO, named: bool, timed: bool = False) -> None:
        self._stream = stream
        self._named = named
        self._timed = timed
        self._console = SafeConsole(file=stream, highlight=False, soft_wrap=True)
        self._attempt = 1

    def write(self, line: LogLine) -> None:
        if self._console.is_terminal:
            self._console.print(self.styled(line))
            return
        # Unchanged, for a file or another program.
        rank = f"[r{line.rank}] " if self._named else ""
        self._stream.write(f"{self._moment(line)}{rank}{line.text}\n")
        self._stream.flush()

    def styled(self, line: LogLine) -> Text:
        """The line for a terminal, with the rank's colours but no other sequence; announces a new attempt above it."""
        parts = [Text.from_ansi(colours_only(line.text))]
        if self._named:
            parts.insert(0, Text(f"[r{line.rank}] ", COLOURS[line.rank % len(COLOURS)]))
        if self._timed:
            parts.insert(0, Text(self._moment(line), style="dim"))
        if line.attempt > self._attempt:
            self._attempt = line.attempt
            parts.insert(0, Text(f"--- attempt {line.attempt} ---\n", style="dim"))
        return Text.assemble(*parts)

    def _moment(self, line: LogLine) -> str:
        """When the line was written, in local time with its offset, as wide for every line."""
        if not self._timed:
            return ""
        if line.time is None:
            return f"{'-':<29} "
        return f"{datetime.fromtimestamp(line.time).astimezone().isoformat(timespec='milliseconds')} "
