"""Failures over a period by cause, node and code; the mean time between them, and the checkpoint interval for it.

An error of the program is listed, but the time between failures leaves it out: it says nothing of the machines.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from muster.api.failures import FailureCount, FailuresView, GangInterval, NodeFailures
from muster.core.job import Attempt
from muster.core.reasons import REASONS

_SIZES: Final = 8  # sizes of gangs for which an interval is given, those with the most node seconds
_COUNTED: Final = ("node", "worker")  # categories that count for the time between failures


@dataclass(frozen=True, slots=True)
class RunAttempt:
    attempt: Attempt
    code: str  # the version of the code; empty if it is not known


def summarize(
    found: Sequence[RunAttempt], saves: Sequence[float], since: float, now: float, whole: bool = True
) -> FailuresView:
    """`saves`: seconds that saves took. Only what happened between `since` and `now` counts."""
    causes, codes, on_node, counted = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    busy, sizes = defaultdict[str, float](float), defaultdict[int, float](float)  # node seconds
    attempts = 0
    for one in found:
        seconds = _overlap(one.attempt, since, now)
        if seconds is None:
            continue
        attempts += 1
        sizes[len(one.attempt.workers)] += seconds * len(one.attempt.workers)
        for worker in one.attempt.workers:
            busy[worker.node] += seconds
        if (code := _failure(one.attempt, since)) is None:
            continue
        node = _node(one.attempt)
        causes[code] += 1
        codes[one.code] += 1
        on_node[node] += 1
        counted[node] += REASONS[code].category in _COUNTED if code in REASONS else 0
    total, failed = sum(busy.values()), sum(counted.values())
    between = total / failed if failed else None
    save = median(saves) if saves else None
    return {
        "since": since,
        "now": now,
        "attempts": attempts,
        "failures": sum(causes.values()),
        "causes": _counts(causes),
        "codes": _counts(codes),
        "nodes": _nodes(busy, on_node, counted),
        "busy": total,
        "between": between,
        "save": save,
        "intervals": [_interval(size, between, save) for size in _common(sizes)] if between is not None else [],
        "whole": whole,
    }


def interval(save: float, between: float) -> float:
    """Young's interval between saves, in seconds: the square root of twice the cost of a save times the time between
    failures."""
    return math.sqrt(2 * save * between)


def _interval(size: int, between: float, save: float | None) -> GangInterval:
    """A gang fails when one of its nodes does."""
    mine = between / size
    return {"nodes": size, "between": mine, "interval": interval(save, mine) if save is not None else None}


def _overlap(attempt: Attempt, since: float, now: float) -> float | None:
    """Seconds of the period in which the attempt ran; None if it is not of the period, or never began."""
    begin = attempt.running_at if attempt.running_at is not None else attempt.planned_at
    end = attempt.ended_at if attempt.ended_at is not None else now
    return max(0.0, min(end, now) - max(begin, since)) if end >= since and begin <= now else None


def _failure(attempt: Attempt, since: float) -> str | None:
    ended = attempt.ended_at is not None and attempt.ended_at >= since
    failed = ended and attempt.outcome == "failed" and attempt.reason is not None
    return attempt.reason.code if failed and attempt.reason is not None else None


def _node(attempt: Attempt) -> str:
    named = attempt.reason.data.get("node") if attempt.reason is not None else None
    return str(named or attempt.workers[0].node)


def _common(sizes: Mapping[int, float]) -> list[int]:
    return sorted(sorted((size for size in sizes if size), key=lambda size: -sizes[size])[:_SIZES])


def _counts(found: Mapping[str, int]) -> list[FailureCount]:
    ordered = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return [{"name": name, "failures": count} for name, count in ordered]


def _nodes(busy: Mapping[str, float], on_node: Mapping[str, int], counted: Mapping[str, int]) -> list[NodeFailures]:
    names = sorted({*busy, *on_node}, key=lambda node: (-counted.get(node, 0), -on_node.get(node, 0), node))
    return [
        {
            "node": node,
            "failures": on_node.get(node, 0),
            "counted": counted.get(node, 0),
            "busy": busy.get(node, 0.0),
            "between": busy.get(node, 0.0) / counted[node] if counted.get(node) else None,
        }
        for node in names
    ]
