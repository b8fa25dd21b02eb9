"""Formats durations, sizes and numbers for people. Rounded, unlike `core.units`, which is exact."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from muster.api import numbers
from muster.api.jobs import ArrayView, StartView
from muster.api.numbers import JsonFloat
from muster.api.words import is_measurement
from muster.core.units import format_accelerators, format_size

_BAR = 20  # characters
_BARS = "▁▂▃▄▅▆▇█"


def span(seconds: float | None) -> str:
    """`45s`, `3m20s`, `2h05m` or `3d04h`: at most two units."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole}s"
    for unit, below, length, part in (("m", "s", 60, 1), ("h", "m", 3600, 60), ("d", "h", 86400, 3600)):
        if unit == "d" or whole < length * (60 if unit == "m" else 24):
            return f"{whole // length}{unit}{whole % length // part:02d}{below}"
    raise AssertionError("days hold any length")


def since(moment: float | None, now: float | None = None) -> str:
    """How long ago; not negative when the local clock is a little behind the server's."""
    return "-" if moment is None else span((time.time() if now is None else now) - moment)


def lasted(
    attempts: Sequence[Mapping[str, Any]], submitted_at: float, started_at: float | None, ended_at: float
) -> str:
    """Of a job that has ended, `after 3m20s`: the time that it ran, and apart from it the time that it waited."""
    if started_at is None:
        return f"after {span(ended_at - submitted_at)} of waiting"
    begun = ((one, one.get("running_at") or one.get("planned_at") or one.get("started_at")) for one in attempts)
    busy = sum(max(0.0, (one.get("ended_at") or ended_at) - start) for one, start in begun if start)
    busy = busy if attempts else ended_at - started_at  # a job without nodes has none
    waited = ended_at - submitted_at - busy
    return f"after {span(busy)}" + (f", and {span(waited)} of waiting" if waited >= 1 else "")


def clock(moment: float | None) -> str:
    """Local date and time."""
    return "-" if moment is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))


def size(count: float | None) -> str:
    """Bytes in decimal units, three digits: `1.21 GB`."""
    if count is None:
        return "-"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.4g} PB"


def output_kept(output: Mapping[str, Any] | None) -> str:
    """How much of a job's output is kept, if not all of it; empty when all is."""
    if not output or not output["dropped"]:
        return ""
    limit = format_size(output["limit"])
    return f"{size(output['kept'])} kept, {size(output['dropped'])} dropped: `log_limit` is {limit} for each rank"


def number(value: JsonFloat | None) -> str:
    """A metric's value with four digits."""
    return f"{numbers.number(value):.4g}"


def resources(needs: Mapping[str, Any]) -> str:
    """Such as `8 cpus, 64 GB, H100:8`, without parts that are absent; `H100:0.5` is a part of one."""
    parts = [f"{needs['cpus']:g} cpu{'' if needs['cpus'] == 1 else 's'}"]
    if needs.get("memory"):
        parts.append(size(needs["memory"]))
    if needs.get("accelerators"):
        kind, share = needs.get("accelerator") or "", needs.get("share", 1000)
        parts.append(format_accelerators(kind, needs["accelerators"], share))
    return ", ".join(parts)


def steps(progress: Mapping[str, Any] | None) -> str:
    """`120/350`, `120/~350` if the end is a guess, or `120`."""
    if not progress or progress["step"] is None:
        return "-"
    if progress.get("total"):
        return f"{progress['step']}/{progress['total']}"
    return f"{progress['step']}/~{progress['expected_total']}" if _guessed(progress) else f"{progress['step']}"


def tasks(array: ArrayView) -> str:
    """The tasks of an array, in the order of the phases: `12 queued, 3 running, 5 succeeded`."""
    return ", ".join(f"{count} {phase}" for phase, count in array["phases"].items())


def start(start: StartView) -> str:
    """`gpt-12@2000`, and what of it is not known yet."""
    step = start["step"] if start["taken"] is None else start["taken"]
    return f"{start['run']}@{step}" if step is not None else f"the newest checkpoint of {start['run']}"


def progress_cell(progress: Mapping[str, Any] | None, running: bool) -> str:
    """For a column of a table: the steps and, while it runs, the rate and one metric."""
    if not progress or progress["step"] is None or not running:
        return steps(progress)
    return "  ".join([steps(progress), *_rate(progress), *_first_metric(progress)])


def metrics_line(progress: Mapping[str, Any] | None) -> str:
    """The last values of all metrics that measure something."""
    found = (progress or {}).get("metrics") or {}
    return "  ".join(f"{name} {number(value)}" for name, value in found.items() if is_measurement(name))


def progress_line(progress: Mapping[str, Any] | None) -> str:
    """A bar if the end is known, the step, the loss or else the first metric, the rate and the time left."""
    if not progress or progress["step"] is None:
        return ""
    parts = []
    step, about = progress["step"], "~" if _guessed(progress) else ""
    if total := progress.get("total") or progress.get("expected_total"):
        done = min(1.0, max(0.0, step / total))
        filled = round(done * _BAR)
        parts.append(f"{'━' * filled}{'╌' * (_BAR - filled)} {steps(progress)} {about}{done:.0%}")
    else:
        parts.append(f"{progress.get('unit') or 'step'} {step}")
    parts += [*_first_metric(progress), *_rate(progress)]
    if progress.get("eta"):
        parts.append(f"{about}{span(progress['eta'])} left")
    return "  ".join(parts)


def bars(values: Sequence[float | None], top: float) -> str:
    """One bar per value, scaled to `top`; a blank for None."""
    return "".join(
        " " if value is None else _BARS[min(max(round(value / top * 8), 1), 8) - 1] if top > 0 else _BARS[0]
        for value in values
    )


def _guessed(progress: Mapping[str, Any]) -> bool:
    """Whether the end is known from an earlier run alone."""
    return not progress.get("total") and bool(progress.get("expected_total"))


def _rate(progress: Mapping[str, Any]) -> list[str]:
    return [f"{number(progress['rate'])}/s"] if progress.get("rate") else []


def _first_metric(progress: Mapping[str, Any]) -> list[str]:
    metrics = {name: value for name, value in (progress.get("metrics") or {}).items() if is_measurement(name)}
    shown = "loss" if "loss" in metrics else next(iter(metrics), None)
    return [f"{shown} {number(metrics[shown])}"] if shown is not None else []
