"""The output of `muster demo`: its events as sentences, the screen while it runs, and the last screen."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from muster.api.events import EventView
from muster.api.jobs import AttemptPoints, JobSummary, RestartView
from muster.api.numbers import number
from muster.cli.curve import Series, draw
from muster.cli.svg import place_words
from muster.client import Job

COLORS = ("cyan", "green", "magenta", "blue", "yellow")  # of the attempts, in order
PHASE_STYLES = {"running": "bold green", "succeeded": "bold green", "failed": "bold red", "stopped": "bold red"}
Doc = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Line:
    """One sentence; the last screen leaves out the `minor` ones."""

    time: float
    text: str
    style: str = ""
    minor: bool = False

    def after(self, began: float) -> Text:
        return Text(f"{max(0.0, self.time - began):6.1f} s", "dim")

    def render(self, began: float) -> Text:
        return Text.assemble(self.after(began), "  ", (self.text, self.style))


@dataclass(frozen=True, slots=True)
class Result:
    """The result of the demo: each check with its sentence, and the figures of the last screen."""

    job: Job
    summary: JobSummary
    checks: dict[str, bool]
    first_loss: float | None
    last_loss: float | None
    same: bool  # every repeated step gave the same loss, to the last bit
    commands: list[str]

    @property
    def ok(self) -> bool:
        return all(self.checks.values())


@dataclass(slots=True)
class Screen:
    """What is known so far; redrawn by `rich.live.Live`."""

    title: str
    began: float
    job: Job | None = None
    lines: list[Line] = field(default_factory=list)
    curves: list[AttemptPoints] = field(default_factory=list)  # the metric's attempts, as the API returns them
    output: str = ""  # the last line that rank 0 wrote

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Rule(Text(self.title, "bold"), align="left", style="dim")
        if self.job is not None:
            yield _state(self.job, time.time() - self.began)
        height = min(12, console.height - 18)  # what the other lines leave; they are more important
        if self.curves and height >= 4:
            total = self.job.progress["total"] if self.job is not None and self.job.progress else None
            yield loss_curve(self.curves, [], min(options.max_width, 100), height, total)
        if self.output:
            yield Text(f"rank 0: {self.output}", "dim", no_wrap=True, overflow="ellipsis")
        yield Text("")
        newest = next((line for line in reversed(self.lines) if line.minor), None)
        yield _story([line for line in self.lines if not line.minor or line is newest][-9:], self.began)


def tell(event: EventView, from_step: int | None = None) -> Line | None:
    """An event of the job as a sentence; None for an event that is not shown.

    `from_step`: of the checkpoint that a planned attempt starts from.
    """
    kind, data, attempt = event["kind"], event["data"], event["attempt"]
    cause = _first_line((data.get("reason") or {}).get("message", ""))
    if kind == "job.submitted":
        return Line(event["time"], f"submitted as {event['job']}: two ranks, one gang")
    if kind == "attempt.planned":
        nodes = ", ".join(dict.fromkeys(seat["node"] for seat in data["seats"]))
        begins = "from the beginning" if from_step is None else f"from the checkpoint committed at step {from_step}"
        return Line(
            event["time"], f"attempt {attempt}: placed on {nodes}, starts {begins}", "" if attempt == 1 else "green"
        )
    if kind == "attempt.running":
        return Line(event["time"], f"attempt {attempt}: both ranks were started")
    if kind == "checkpoint.committed":
        text = f"attempt {attempt}: checkpoint committed at step {data['step']} ({data['bytes'] / 1e6:.1f} MB)"
        return Line(event["time"], text, "dim", minor=True)
    if kind == "attempt.ended" and data["outcome"] != "succeeded":
        return Line(event["time"], f"attempt {attempt} ended: {cause}", "red")
    if kind == "job.requeued":
        wait = max(0.0, data["not_before"] - event["time"])
        text = f"restarting the whole gang in {wait:.0f} s; the restart is charged to: {data['charge']}"
        return Line(event["time"], text, "yellow")
    if kind in ("job.succeeded", "job.failed", "job.stopped"):
        return Line(event["time"], f"{kind.removeprefix('job.')}: {cause}", PHASE_STYLES[kind.removeprefix("job.")])
    return None


def progress_line(job: Job) -> str:
    """The job in one line, for output without a terminal."""
    words = [f"{job.phase}", f"attempt {job.attempt}"]
    words += _progress_words(job)
    if job.phase == "queued" and job.reason is not None:
        words.append(_first_line(job.reason.message))
    return ", ".join(words)


def loss_curve(
    curves: Sequence[AttemptPoints],
    restarts: Sequence[RestartView],
    width: int,
    height: int,
    total: float | None = None,
) -> Text:
    """One curve per attempt, each in its colour; `total`: the last step of the run."""
    series = [
        Series(f"attempt {one['attempt']}", one["steps"], list(map(number, one["values"])), _color(one["attempt"]))
        for one in curves
    ]
    steps = [one["at_step"] for one in restarts if one["at_step"] is not None]
    marks = [(step, f"restarted from step {step}") for step in steps]
    return draw(series, marks, width, height, y_label="loss", x_range=(0, total) if total else None)


def _color(attempt: int) -> str:
    return COLORS[(attempt - 1) % len(COLORS)]


def last_screen(screen: Screen, result: Result, width: int) -> RenderableType:
    """The events without minor ones, one curve over all attempts, the numbers, the checks, and further commands."""
    summary = result.summary
    numbers = Table.grid(padding=(0, 2))
    twice = f"{summary['steps_repeated']} were done twice" + (", with the same losses to the last bit" * result.same)
    numbers.add_row("steps", f"{summary['steps'] or 0}, of which {twice}")
    numbers.add_row(
        "loss", f"{_short(result.first_loss)} → {_short(result.last_loss)} (first and last tenth of the steps)"
    )
    numbers.add_row("time", f"{summary['seconds_total']:.1f} s, of which {summary['seconds_lost']:.1f} s were lost")
    goodput = summary["goodput"]
    numbers.add_row("goodput", "unknown" if goodput is None else f"{goodput:.0%} of the time moved the run forward")
    checks = [
        Text.assemble(("✓ " if passed else "✗ ", "green" if passed else "bold red"), name)
        for name, passed in result.checks.items()
    ]
    commands = [Text(f"  {command}", "bold", no_wrap=True, overflow="ignore") for command in result.commands]
    return Group(
        Rule(Text(screen.title, "bold"), align="left", style="dim"),
        _story([line for line in screen.lines if not line.minor], screen.began),
        Text(""),
        loss_curve(screen.curves, summary["restarts"], min(width, 100), 14),
        Text(""),
        numbers,
        Text(""),
        *checks,
        Text(""),
        Text("Look further with:"),
        *commands,
    )


def write_picture(path: Path, content: RenderableType, title: str) -> None:
    """The last screen as an SVG without external resources."""
    console = Console(record=True, width=100, file=StringIO(), force_terminal=True, color_system="truecolor")
    console.print(content)
    svg = console.export_svg(title=title, unique_id="muster-demo")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(place_words(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)), encoding="utf-8")


def _state(job: Job, elapsed: float) -> RenderableType:
    head = Text.assemble(
        (job.phase, PHASE_STYLES.get(job.phase, "bold yellow")),
        f"   attempt {job.attempt}   {job.ranks} ranks   {elapsed:.0f} s",
    )
    if job.phase == "queued" and job.reason is not None:
        head.append(f"   {_first_line(job.reason.message)}", "yellow")
    head.no_wrap, head.overflow = True, "ellipsis"
    done, total = (job.progress["step"] or 0, job.progress["total"] or 1) if job.progress else (0, 1)
    row = Table.grid(padding=(0, 2))
    row.add_row(ProgressBar(total=total, completed=done, width=20), "   ".join(_progress_words(job)))
    return Group(head, row)


def _progress_words(job: Job) -> list[str]:
    progress = job.progress
    if progress is None or progress["step"] is None:
        return [] if job.final else ["no step is done yet"]
    where = f"step {progress['step']} of {progress['total']}"
    # The last report of an earlier attempt says nothing about the current speed.
    if not job.final and (job.phase != "running" or (progress["time"] or 0) < job.since):
        return [f"{where} so far"]
    metrics, words = progress["metrics"], [where]
    for name, shown in (("loss", "loss"), ("tokens_per_s", "tokens/s")):
        if isinstance(value := metrics.get(name), int | float):
            words.append(f"{shown} {_short(value)}")
    if progress["eta"] is not None and not job.final:
        words.append(f"{progress['eta']:.0f} s left")
    return words


def _story(lines: Sequence[Line], began: float) -> Table:
    rows = Table.grid(padding=(0, 2))
    for line in lines:
        rows.add_row(line.after(began), Text(line.text, line.style))
    return rows


def _short(value: float | None) -> str:
    if value is None:
        return "unknown"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3f}"


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text else ""
