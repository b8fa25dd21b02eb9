"""Draws curves of several runs in one plot in the terminal, with attempts as marks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from rich.text import Text

from muster.cli.curve import Series, draw
from muster.cli.output import note, out
from muster.client import MusterError, Run
from muster.core.errors import Unavailable

COLORS: Final = ("cyan", "magenta", "green", "yellow", "blue", "red", "bright_cyan", "bright_magenta")
_BUCKETS: Final = 400  # twice the dots of a wide terminal
_HEIGHT: Final = 14


def draw_curves(runs: Sequence[Run], name: str) -> None:
    """Prints one metric of these runs as a plot; says of which runs there is none."""
    screen = out()
    plot, notes = curves(runs, name, min(screen.width, 120))
    for text in notes:
        note((text, "dim"))
    if plot is not None:
        screen.print(plot, soft_wrap=False)
    if len(runs) > len(COLORS):
        screen.print(Text(f"the first {len(COLORS)} of {len(runs)} runs", style="dim"))


def curves(runs: Sequence[Run], name: str, width: int) -> tuple[Text | None, list[str]]:
    """The plot, and what it does not show; the starts of attempts are marked if there is only one run."""
    series: list[Series] = []
    marks: list[tuple[float, str]] = []
    notes: list[str] = []
    for i, run in enumerate(runs[: len(COLORS)]):
        try:
            curve = run.curve(name, _BUCKETS)
        except Unavailable:
            raise
        except MusterError as error:
            notes.append(f"{run.id}: {error.message}")
            continue
        values = [value if math.isfinite(value) else None for value in curve.mean]
        series.append(Series(run.id, curve.last_step, values, COLORS[i]))
        starts = [(step, band["attempt"]) for band in curve.bands if (step := band["first_step"]) is not None]
        starts = [(step, attempt) for step, attempt in starts if attempt > 1]
        if len(runs) == 1:
            marks += [(step, f"attempt {attempt}") for step, attempt in starts]
        elif starts:
            text = ", ".join(f"{attempt} from step {step}" for step, attempt in starts)
            notes.append(f"{run.id} has attempts: {text}")
    return draw(series, marks, width, _HEIGHT, y_label=name) if series else None, notes
