"""Draws curves of several runs in one plot in the terminal, with attempts as marks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from rich.text import Text

from muster.cli.curve import Series, draw
from muster.cli.output import note, out
from muster.client import MusterError, Run

COLORS: Final = ("cyan", "magenta", "green", "yellow", "blue", "red", "bright_cyan", "bright_magenta")
_BUCKETS: Final = 400  # twice the dots of a wide terminal
_HEIGHT: Final = 14


def draw_curves(runs: Sequence[Run], name: str) -> None:
    """Draws one metric of these runs; the starts of attempts are marked if there is only one run."""
    series: list[Series] = []
    marks: list[tuple[float, str]] = []
    for i, run in enumerate(runs[: len(COLORS)]):
        try:
            curve = run.curve(name, _BUCKETS)
        except MusterError as error:
            note((f"{run.id}: {error.message}", "dim"))
            continue
        values = [value if math.isfinite(value) else None for value in curve.mean]
        series.append(Series(run.id, curve.last_step, values, COLORS[i]))
        starts = [(step, band["attempt"]) for band in curve.bands if (step := band["first_step"]) is not None]
        starts = [(step, attempt) for step, attempt in starts if attempt > 1]
        if len(runs) == 1:
            marks += [(step, f"attempt {attempt}") for step, attempt in starts]
        elif starts:
            text = ", ".join(f"{attempt} from step {step}" for step, attempt in starts)
            note((f"{run.id} has attempts: {text}", "dim"))
    screen = out()
    if series:
        screen.print(draw(series, marks, min(screen.width, 120), _HEIGHT, y_label=name), soft_wrap=False)
    if len(runs) > len(COLORS):
        screen.print(Text(f"the first {len(COLORS)} of {len(runs)} runs", style="dim"))
