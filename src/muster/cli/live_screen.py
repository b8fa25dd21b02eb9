"""A screen that is drawn again at intervals until Ctrl-C: `muster ls --watch`, `muster top`, a curve that grows."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from muster.cli.call import Usage
from muster.cli.output import SafeConsole, emit
from muster.core.errors import Unavailable

EVERY = 2.0  # seconds
FEW = 1e-3  # seconds, the shortest interval


def watch_screen(look: Callable[[], tuple[RenderableType, bool]], every: float, keep: bool = False) -> None:
    """Draws what `look` returns until it says that this was the last, or until Ctrl-C.

    The screen is left as it was, or with `keep` the last picture stays. While the server is away, the last picture is
    shown and says so.
    """
    if not sys.stdout.isatty():
        raise Usage("The output is not a terminal.", "Leave --watch or --follow out, or add --json.")
    shown: RenderableType = Text("")
    with Live(console=SafeConsole(highlight=False), auto_refresh=False, screen=not keep) as live:
        try:
            last = False
            while not last:
                begun = time.monotonic()
                try:
                    shown, last = look()
                    live.update(shown, refresh=True)
                except Unavailable:
                    live.update(Group(shown, Text("server away, retrying", style="yellow")), refresh=True)
                if not last:
                    time.sleep(max(FEW, every - (time.monotonic() - begun)))
        except KeyboardInterrupt:
            return


def watch_json(look: Callable[[], Any], every: float) -> None:
    """One document a line, at intervals, until Ctrl-C or until the reader is gone."""
    try:
        while True:
            emit(look())
            time.sleep(max(FEW, every))
    except KeyboardInterrupt:
        return
