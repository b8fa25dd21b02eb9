"""The rung `canary`: judges the record of a short run on real data. Pure: from series of numbers to a report.

    report = check_canary(Canary(losses, seconds, memory), Planned(steps=100_000, capacity=80e9, price_per_hour=12))

NumPy alone: it works where torch is not installed, and it starts nothing.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from muster.checks.findings import Check, Finding, Report, Result, failed, not_applicable, ok, some, unknown
from muster.checks.forecast import WARM_UP, Forecast, Profile, forecast, profile
from muster.checks.trend import trend

ALPHA: Final = 0.01  # of the runs whose loss does not fall, so many pass
STALL: Final = 10.0  # times the median: a step that long is a stall
SHORT: Final = 0.25  # seconds: what is no stall, however short steps are, as machines have other work too
TOLERANCE: Final = 0.1  # of the planned throughput that may be missing
RATES: Final = 4  # reports of a throughput, at least
RESERVE: Final = 0.05  # of the memory that must be left


@dataclass(frozen=True, slots=True)
class Canary:
    """A short run, by step: losses, seconds, bytes in use. `pauses` are steps (from 0) that also saved or evaluated."""

    losses: Sequence[float]
    seconds: Sequence[float]
    memory: Sequence[float] = ()
    items: float | None = None  # of a step
    start_up: float = 0.0  # seconds until the first step began
    pauses: Collection[int] = ()
    rates: Sequence[float] | None = None  # items in a second, as the run reported them: in place of `items`


@dataclass(frozen=True, slots=True)
class Planned:
    """What the full run is to be. What is None is not judged."""

    steps: int
    items_per_second: float | None = None
    capacity: float | None = None  # bytes of a device
    price_per_hour: float | None = None
    max_hours: float | None = None
    max_cost: float | None = None


@dataclass(frozen=True, slots=True)
class _Judged:
    run: Canary
    planned: Planned
    alpha: float

    def profile(self) -> Profile | None:
        run = self.run
        steps = [each for number, each in enumerate(run.seconds) if number not in run.pauses]
        try:
            return profile(
                steps, start_up=run.start_up, items=run.items, memory=run.memory, capacity=self.planned.capacity
            )
        except ValueError:
            return None


def check_canary(run: Canary, planned: Planned, *, alpha: float = ALPHA, name: str = "a run") -> Report:
    """Judges a short run by what was planned. `alpha` is the part of runs without progress that may pass."""
    subject = _Judged(run, planned, alpha)
    results = [Result("canary", each.name, each.proves, each.run(subject)) for each in CANARY]
    return Report(name, results, (), {"steps": len(run.losses), "alpha": alpha})


def full_run(run: Canary, planned: Planned) -> Forecast | None:
    """The time and cost of the full run; None after too few steps."""
    found = _Judged(run, planned, ALPHA).profile()
    return forecast(found, planned.steps, planned.price_per_hour) if found else None


def check_finite(subject: _Judged) -> Finding:
    losses = subject.run.losses
    if not losses:
        return failed("no step reported a loss", "Report it: `runtime.report(step=step, loss=loss)`.")
    bad = [step for step, loss in enumerate(losses) if not math.isfinite(loss)]
    if bad:
        return failed(
            f"the loss is not finite in steps {some([str(step) for step in bad])}", "Look at the steps before."
        )
    return ok(f"{len(losses)} losses, from {losses[0]:.4g} to {losses[-1]:.4g}")


def check_falls(subject: _Judged) -> Finding:
    if not subject.run.losses or not np.isfinite(subject.run.losses).all():
        return unknown("not judged, as finite failed", "Mend finite first.")
    found, alpha = trend(subject.run.losses), subject.alpha
    numbers: dict[str, Any] = {
        "p": found.p, "alpha": alpha, "blocks": found.blocks, "block_steps": found.length,
        "likeness": found.likeness, "first": found.first, "last": found.last,
    }  # fmt: skip
    if found.p is None:
        return unknown(
            f"{len(subject.run.losses)} steps are too few for a verdict: neighbours are alike by {found.likeness:.2f}",
            f"Run about {found.needed} steps.", **numbers, needed=found.needed,
        )  # fmt: skip
    what = f"means of {found.blocks} blocks of {found.length} steps go from {found.first:.4g} to {found.last:.4g}"
    if found.p > alpha:
        return failed(
            f"{what}: as good as without progress (p = {found.p:.2g})", "Look at the learning rate.", **numbers
        )
    return ok(f"{what}; without progress so in {found.p:.2g} of runs, {alpha:g} allowed", **numbers)


def check_throughput(subject: _Judged) -> Finding:
    wanted, found = subject.planned.items_per_second, subject.profile()
    if wanted is not None and subject.run.rates is not None:
        return _reported_throughput(subject.run.rates, wanted)
    if wanted is None or subject.run.items is None:
        return not_applicable("no throughput was planned, or the items of a step are not known")
    if found is None or found.items_per_second is None:
        return unknown(f"{len(subject.run.seconds)} steps are too few", "Run 16 steps or more.")
    best = subject.run.items / found.low if found.low > 0 else math.inf
    numbers = {"items_per_second": found.items_per_second, "planned": wanted}
    what = f"{found.items_per_second:.4g} items a second, planned {wanted:.4g}"
    if best < (1 - TOLERANCE) * wanted:
        return failed(what, "Look at the profile (`muster diagnose`), or plan with this figure.", **numbers)
    return ok(what, **numbers)


def _reported_throughput(rates: Sequence[float], wanted: float) -> Finding:
    steady = [each for each in rates if math.isfinite(each)][math.ceil(WARM_UP * len(rates)) :]
    if len(steady) < RATES:
        hint = "Report it in every step: `runtime.report(step=step, tokens_per_s=...)`, or samples_per_s and the like."
        return unknown(f"{wanted:.4g} items a second are planned, and {len(rates)} reports say what there were", hint)
    middle = float(np.median(steady))
    numbers = {"items_per_second": middle, "planned": wanted}
    what = f"{middle:.4g} items a second, planned {wanted:.4g}"
    if middle < (1 - TOLERANCE) * wanted:
        return failed(what, "Look at the profile (`muster diagnose`), or plan with this figure.", **numbers)
    return ok(what, **numbers)


def check_memory(subject: _Judged) -> Finding:
    memory, capacity = subject.run.memory, subject.planned.capacity
    if not memory or capacity is None:
        return not_applicable("no memory was reported, or none is planned")
    peak = max(memory)
    numbers: dict[str, Any] = {"peak": peak, "capacity": capacity, "headroom": 1 - peak / capacity}
    if peak > (1 - RESERVE) * capacity:
        return failed(
            f"{peak:.4g} of {capacity:.4g} bytes are used: {1 - peak / capacity:.1%} left, {RESERVE:.0%} needed",
            "Take a smaller micro-batch, recomputation, or more shards.", **numbers,
        )  # fmt: skip
    late = np.asarray(memory[len(memory) // 2 :], np.float64)
    slope = float(np.polyfit(np.arange(len(late)), late, 1)[0]) if len(late) > 1 else 0.0
    rises = trend([-each for each in late]).falls(subject.alpha) if len(set(late)) > 1 else False
    if rises and slope > 0 and peak + slope * subject.planned.steps > capacity:
        full = int((capacity - peak) / slope)
        return failed(
            f"memory rises by {slope:.4g} bytes a step, and is full after {full:,} of {subject.planned.steps:,} steps",
            "Look for tensors with graphs that are kept, such as losses that are added up without `.item()`.",
            **numbers, slope=slope,
        )  # fmt: skip
    return ok(f"{1 - peak / capacity:.1%} of {capacity:.4g} bytes are left", **numbers)


def check_stalls(subject: _Judged) -> Finding:
    run = subject.run
    steady = [(step, each) for step, each in enumerate(run.seconds) if step > 0 and step not in run.pauses]
    if len(steady) < 2:
        return unknown(f"{len(run.seconds)} steps are too few", "Run 16 steps or more.")
    middle = float(np.median([each for _, each in steady]))
    stalls = [(step, each) for step, each in steady if each > max(STALL * middle, SHORT)]
    if stalls:
        lost = sum(each - middle for _, each in stalls)
        names = some([f"{step} ({each:.3g} s)" for step, each in stalls])
        return failed(
            f"{len(stalls)} steps took over {STALL:g} times the median of {middle:.3g} s: {names}; {lost:.3g} s lost",
            "Look at data loading and at other work of the machine.", stalls=[step for step, _ in stalls], lost=lost,
        )  # fmt: skip
    longest = max(each for _, each in steady)
    return ok(f"the longest step took {longest:.3g} s, with a median of {middle:.3g} s", median=middle)


def check_profile(subject: _Judged) -> Finding:
    found, planned = subject.profile(), subject.planned
    if found is None:
        return unknown(f"{len(subject.run.seconds)} steps are too few", "Run 16 steps or more.")
    whole = forecast(found, planned.steps, planned.price_per_hour)
    numbers = {"profile": found.to_dict(), "hours": list(whole.hours), "cost": list(whole.cost) if whole.cost else None}
    over = []
    if planned.max_hours is not None and whole.hours[1] > planned.max_hours:
        over.append(f"{planned.max_hours:g} h")
    if planned.max_cost is not None and whole.cost is not None and whole.cost[1] > planned.max_cost:
        over.append(f"a cost of {planned.max_cost:g}")
    if over:
        return failed(
            f"{whole}; allowed are {' and '.join(over)}", "Take fewer steps, or raise what is allowed.", **numbers
        )
    return ok(f"start-up {found.start_up:.3g} s, a step {found.mean:.3g} s; {whole}", **numbers)


CANARY: Final[tuple[Check, ...]] = (
    Check("finite", "Every loss is a finite number.", check_finite),
    Check("falls", "The loss falls, by a test with a stated error rate.", check_falls),
    Check("throughput", "Throughput is what was planned.", check_throughput),
    Check("memory", "Memory is left, and is enough to the end.", check_memory),
    Check("stalls", "No step stalls.", check_stalls),
    Check("profile", "The time and cost of the full run are within what is allowed.", check_profile),
)
