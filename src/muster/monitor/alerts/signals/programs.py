"""Signals of running programs, from the points and phases that they report."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from muster.monitor.alerts.rule import Reading
from muster.monitor.alerts.signals.base import View


def device_use(view: View) -> Iterator[Reading]:
    """The mean use of all devices of a run."""
    for _, subject, figures in view.programs():
        if found := figures.device("gpu", view.now):
            low = min(found, key=lambda one: one[1])
            facts = {"devices": len(found), "lowest_rank": low[0][0], "lowest": f"{low[1]:.0%}"}
            yield Reading(subject, fmean(value for _, value in found), facts)


def device_memory(view: View) -> Iterator[Reading]:
    """The fullest device of a run."""
    yield from _highest(view, "gpu_memory_share")


def throttled(view: View) -> Iterator[Reading]:
    yield from _highest(view, "gpu_throttled")


def sample_age(view: View) -> Iterator[Reading]:
    """Seconds since the device of a run that was heard longest ago was heard: its driver or its launcher hangs."""
    for _, subject, figures in view.programs():
        ages = {rank: view.now - max(one.last for one in some.values()) for (rank, _), some in figures.devices.items()}
        if ages:
            rank = max(ages, key=lambda one: ages[one])
            yield Reading(subject, ages[rank], {"rank": rank})


def step_time(view: View) -> Iterator[Reading]:
    """The step time of the last minute against the run's own past."""
    for _, subject, figures in view.programs():
        if found := figures.steps.ratio():
            ratio, now, own = found
            yield Reading(subject, ratio, {"seconds": f"{now:.3g}", "own": f"{own:.3g}"})


def data_wait(view: View) -> Iterator[Reading]:
    yield from _phase(view, "data")


def rank_wait(view: View) -> Iterator[Reading]:
    yield from _phase(view, "waiting")


def save_share(view: View) -> Iterator[Reading]:
    yield from _phase(view, "saving")


def no_improvement(view: View) -> Iterator[Reading]:
    """Evaluations since the best one. Of several metrics, the one that improved last counts."""
    for _, subject, figures in view.programs():
        if figures.evaluations:
            one = min(figures.evaluations.values(), key=lambda some: some.since)
            yield Reading(subject, one.since, {"metric": one.metric, "best": one.best, "best_step": one.best_step})


def _highest(view: View, name: str) -> Iterator[Reading]:
    for _, subject, figures in view.programs():
        if found := figures.device(name, view.now):
            (rank, place), value = max(found, key=lambda one: one[1])
            yield Reading(subject, value, {"rank": rank, "device": place or "0"})


def _phase(view: View, name: str) -> Iterator[Reading]:
    for _, subject, figures in view.programs():
        if shares := figures.phases.shares:
            yield Reading(subject, shares.get(name, 0.0))
