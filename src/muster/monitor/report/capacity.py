"""Figures of the pools: utilisation, fragmentation, and the share of spot machines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from muster.core.period import Period
from muster.monitor import rollup
from muster.monitor.report.facts import HOUR, Facts, Terms
from muster.monitor.report.figure import Figure, ratio
from muster.monitor.rollup import ALL, Bucket, merge

TARGET: Final = 0.70
_MISSING: Final = (rollup.NO_CPUS, rollup.NO_MEMORY, rollup.NO_REST)
_SCOPED: Final = "pools are shared, and this report covers a part of the projects"


def capacity_figures(facts: Facts, terms: Terms, period: Period) -> Iterator[Figure]:
    everything = merge(one.bucket for one in facts.use if one.pool == ALL)
    yield _utilisation(everything, terms, period)
    yield _fragmentation(everything, terms)
    yield _stranded(facts, everything, terms)
    yield _spot(facts, terms)


def hours_of(bucket: Bucket, name: str) -> float:
    """Unit-hours of a gauge."""
    gauge = bucket.gauges.get(name)
    return gauge.total / 1_000_000 / HOUR if gauge is not None else 0.0


def names_of(unit: str) -> tuple[str, str]:
    """The gauges of what is used, and of what is there."""
    return (rollup.USED, rollup.THERE) if unit == "accelerator" else (rollup.CPUS_USED, rollup.CPUS)


def _utilisation(everything: Bucket, terms: Terms, period: Period) -> Figure:
    used, there = (hours_of(everything, name) for name in names_of(terms.unit))
    out = hours_of(everything, rollup.OUT) if terms.unit == "accelerator" else None
    elapsed = period.until(terms.now) - period.begin
    why = _SCOPED if not terms.whole else "" if there else "no use of pools was recorded"
    return Figure(
        "utilisation",
        "Utilisation",
        "share",
        f"{terms.unit} hours that jobs held, over those that were provisioned, in service or not, as observed",
        None if why else used / there,
        why,
        TARGET,
        "higher",
        {}
        if why
        else {
            "used_hours": used,
            "provisioned_hours": there,
            "in_service_hours": there - out if out is not None else None,
            "idle_out_of_service_hours": out,
            "share_in_service": ratio(used, there - out) if out is not None else None,
            "observed_share": ratio(everything.ms / 1000, elapsed),
        },
    )


def _fragmentation(everything: Bucket, terms: Terms) -> Figure:
    usable = everything.ratio(rollup.USABLE, rollup.FREE)
    why = _SCOPED if not terms.whole else "" if usable is not None else "no accelerator was free at a sample"
    return Figure(
        "fragmentation",
        "Fragmentation",
        "share",
        "the part of the free accelerator hours that gangs of the common shapes find no room on",
        None if why or usable is None else 1 - usable,
        why,
        better="lower",
    )


def _stranded(facts: Facts, everything: Bucket, terms: Terms) -> Figure:
    free = hours_of(everything, rollup.FREE)
    known = rollup.NO_CPUS in everything.gauges
    why = _SCOPED if not terms.whole else "" if free and known else "no free accelerator was looked at"
    hours = {name: hours_of(everything, name) for name in _MISSING}
    by_pool: defaultdict[str, float] = defaultdict(float)
    for one in facts.use:
        if one.pool != ALL:
            by_pool[f"hours_in_{one.pool}"] += sum(hours_of(one.bucket, name) for name in _MISSING)
    return Figure(
        "stranded",
        "Stranded accelerators",
        "share",
        "the part of the free accelerator hours that no typical request could use",
        None if why else sum(hours.values()) / free,
        why,
        better="lower",
        details={}
        if why
        else {
            "lacking_cpus_hours": hours[rollup.NO_CPUS],
            "lacking_memory_hours": hours[rollup.NO_MEMORY],
            "lacking_accelerators_hours": hours[rollup.NO_REST],
            **by_pool,
        },
    )


def _spot(facts: Facts, terms: Terms) -> Figure:
    spot = known = unknown = 0.0
    for one in facts.held:
        if one.unit != terms.unit:
            continue
        if not one.pool:
            unknown += one.hours
            continue
        known += one.hours
        spot += one.hours if terms.spot(one.pool) else 0.0
    return Figure(
        "spot",
        "Spot share",
        "share",
        f"{terms.unit} hours held in pools of spot machines, over all that were held in pools that are known",
        ratio(spot, known),
        "" if known else "no job held anything",
        details={"spot_hours": spot, "held_hours": known, "unknown_pool_hours": unknown} if known else {},
    )
