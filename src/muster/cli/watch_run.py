"""`muster watch RUN`: its curves of training and evaluation, its pace, and its alerts on one live screen."""

from __future__ import annotations

from typing import Annotated, Final

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from muster.api.alerts import AlertView
from muster.cli import complete, format
from muster.cli.call import Json
from muster.cli.connect import client
from muster.cli.curve import Series, draw
from muster.cli.live_screen import EVERY, watch_screen
from muster.cli.output import emit, out, phase_text
from muster.client import Client, MusterError, Run
from muster.core.errors import Unavailable

# What is drawn if the run has it, each with the names that programs give it; the rest follows in their order.
_KNOWN: Final = (
    ("loss", "train_loss", "train/loss", "training_loss"),
    ("val_loss", "val/loss", "eval_loss", "eval/loss", "validation_loss", "val_accuracy", "eval_accuracy"),
    ("grad_norm", "gradient_norm", "train/grad_norm"),
    ("tokens_per_s", "samples_per_s", "throughput", "step_s"),
)
_PLOTS: Final = 4
_BUCKETS: Final = 400
_SYSTEM: Final = "system/"


def watch_run(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Its id.", autocompletion=complete.jobs)],
    metric: Annotated[list[str] | None, typer.Option("--metric", "-m", help="Draw these instead.")] = None,
    every: Annotated[float, typer.Option(min=0.5, metavar="SECONDS", help="The interval.")] = EVERY,
    once: Annotated[bool, typer.Option("--once", help="Show it once.")] = False,
    json: Json = False,
) -> None:
    """Show how a run learns, live: training and evaluation, gradient norm, pace against its best, and its alerts."""
    with client() as to:
        first = to.run(run)
        if json:
            names = metric or _chosen(first)
            emit({"run": first.raw, "metrics": names, "alerts": _alerts(to, first.id)})
        elif once or not out().is_terminal:
            out().print(_screen(to, first, metric))
        else:

            def look() -> tuple[RenderableType, bool]:
                now = to.run(first.id)
                return _screen(to, now, metric), now.final

            watch_screen(look, every, keep=True)


def _screen(to: Client, run: Run, metric: list[str] | None) -> Group:
    head = Text.assemble((run.id, "bold"), " ", phase_text(run.phase), "  ")
    if run.source == "job":
        head.append(format.progress_line(to.job(run.id).progress))
    width = min(out().width, 160)
    plots = [plot for name in (metric or _chosen(run)) if (plot := _plot(run, name, width)) is not None]
    alerts = [Text(f"{one['severity']}: {one['rule']}: {one['text']}", style="yellow") for one in _alerts(to, run.id)]
    return Group(head, *alerts, *(plots or [Text("No values yet.", style="dim")]))


def _chosen(run: Run) -> list[str]:
    names = [name for name in run.metrics if not name.startswith(_SYSTEM)]
    known = [next((name for name in some if name in names), "") for some in _KNOWN]
    found = [name for name in known if name]
    return [*found, *(name for name in names if name not in found)][:_PLOTS]


def _plot(run: Run, name: str, width: int) -> Text | None:
    """The curve, with its last value and its best; None if the run has none."""
    try:
        curve = run.curve(name, _BUCKETS)
    except Unavailable:
        raise
    except MusterError:
        return None
    if not len(curve.last_step):
        return None
    starts = [(band["first_step"], f"attempt {band['attempt']}") for band in curve.bands if band["attempt"] > 1]
    marks = [(float(step), words) for step, words in starts if step is not None]
    label = f"{name}  now {curve.last[-1]:.4g}, lowest {min(curve.low):.4g}, highest {max(curve.high):.4g}"
    return draw([Series(name, curve.last_step, list(curve.mean))], marks, width, height=6, y_label=label)


def _alerts(to: Client, run: str) -> list[AlertView]:
    found = to.alerts()["alerts"]
    return [one for one in found if one["subject"]["name"] == run and one["state"] == "firing"]
