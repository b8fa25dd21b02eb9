"""The causes of waste by name, largest first: hours that nobody used, that were out of service, or trained nothing.

Every hour is in one cause alone, so that causes may be added up.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from muster.monitor import rollup
from muster.monitor.report.capacity import hours_of, names_of
from muster.monitor.report.facts import UNIT_HOUR, Facts, HeldFact, Terms
from muster.monitor.report.outcomes import PLATFORM
from muster.monitor.rollup import ALL, Bucket, merge

_BY_PROJECT: Final = {
    "data": "Waits for data",
    "saving": "Waits for checkpoints",
    "starting": "Starts of jobs",
    "idle": "Idle programs",
    "done_again": "Steps done again",
    "hung": "Hung programs",
    "lost": "Seats held after failures",
}
_OF_FAILURES: Final = ("lost", "hung")


class Waste(NamedTuple):
    cause: str
    hours: float


def wastes(facts: Facts, terms: Terms) -> list[Waste]:
    sums: dict[str, float] = {}
    for cause, hours in (*(_pools(facts, terms) if terms.whole else ()), *_held(facts, terms)):
        sums[cause] = sums.get(cause, 0.0) + hours
    found = [Waste(cause, hours) for cause, hours in sums.items() if hours > 0]
    return sorted(found, key=lambda one: (-one.hours, one.cause))


def _pools(facts: Facts, terms: Terms) -> Iterator[tuple[str, float]]:
    pools: dict[str, list[Bucket]] = {}
    for one in facts.use:
        if one.pool != ALL:
            pools.setdefault(one.pool, []).append(one.bucket)
    for pool, buckets in pools.items():
        bucket = merge(buckets)
        used, there = (hours_of(bucket, name) for name in names_of(terms.unit))
        out = hours_of(bucket, rollup.OUT) if terms.unit == "accelerator" else 0.0
        yield f"No job used pool {pool}", there - used - out
        yield f"Idle nodes out of service in pool {pool}", out


def _held(facts: Facts, terms: Terms) -> Iterator[tuple[str, float]]:
    for one in facts.held:
        if one.unit != terms.unit:
            continue
        for kind, spent in one.parts.items():
            part = kind.partition(".")[0]
            if part in _BY_PROJECT:
                yield _cause(facts, one, part), one.units * spent / UNIT_HOUR


def _cause(facts: Facts, one: HeldFact, part: str) -> str:
    known = facts.runs.get(one.run)
    if part in _OF_FAILURES:
        tries = facts.attempts.get(one.run, ())
        failed = next((each for each in tries if each.number == one.attempt and each.failed), None)
        if failed is not None and failed.category in PLATFORM and failed.node:
            return f"Lost to node {failed.node} ({failed.code})"
    if part == "idle" and known is not None and known.kind == "session":
        return f"Idle sessions in project {one.project}"
    return f"{_BY_PROJECT[part]} in project {one.project}"
