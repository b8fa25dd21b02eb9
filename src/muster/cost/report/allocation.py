"""Sums of the ledger in the shape of OpenCost's allocations, for tools that ask Kubernetes for costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from muster.api.cost_reports import AllocationView
from muster.core.errors import Invalid
from muster.core.money import MICRO
from muster.cost.report.sums import Sum, hours

# What OpenCost calls it, and the dimension here.
AGGREGATES: Final = {
    "cluster": (), "namespace": ("project",), "controller": ("project", "run"), "pod": ("project", "run"),
    "job": ("project", "run"), "node": ("pool",), "label:user": ("user",), "label:queue": ("queue",),
    "label:family": ("family",), "label:environment": ("environment",), "label:kind": ("kind",),
    "label:project": ("project",), "label:pool": ("pool",),
}  # fmt: skip
IDLE: Final = "__idle__"
UNALLOCATED: Final = "__unallocated__"
_PROPERTIES: Final = {"project": "namespace", "run": "controller", "pool": "node"}


def dimensions_of(aggregate: str) -> tuple[str, ...]:
    """The dimensions of `namespace,label:user`. Raises Invalid."""
    found: list[str] = []
    for part in aggregate.split(","):
        name = part.strip().lower()
        name = f"label:{name[6:-1]}" if name.startswith("label[") and name.endswith("]") else name
        if name not in AGGREGATES:
            raise Invalid(f"aggregate has {part.strip()!r}.", f"Give some of {', '.join(AGGREGATES)}.")
        found += AGGREGATES[name]
    return tuple(dict.fromkeys(found))


def allocations(rows: Iterable[Sum], by: Sequence[str], begin: float, end: float) -> dict[str, AllocationView]:
    """By name, for one window. OpenCost knows one currency: rows have that alone."""
    found: dict[str, AllocationView] = {}
    for one in rows:
        values = dict(zip(by, one.keys, strict=True))
        name = "/".join(value or UNALLOCATED for value in one.keys) if by else "muster"
        if by and not any(one.keys):
            name = IDLE
        found[name] = _view(name, values, one, begin, end)
    return found


def _view(name: str, values: dict[str, str], one: Sum, begin: float, end: float) -> AllocationView:
    start, stop = _time(begin), _time(end)
    span = (end - begin) / 3600
    gpu, cpu = hours(one.held), hours(one.workers)
    amount, storage = one.amount - one.storage, one.storage
    properties: dict[str, str | dict[str, str]] = {"cluster": "muster"}
    labels = {key: value for key, value in values.items() if key not in _PROPERTIES}
    for key, value in values.items():
        if key in _PROPERTIES and value:
            properties[_PROPERTIES[key]] = value
    if labels:
        properties["labels"] = labels
    return {
        "name": name,
        "properties": properties,
        "window": {"start": start, "end": stop},
        "start": start,
        "end": stop,
        "minutes": span * 60,
        "cpuCores": cpu / span if span else 0.0,
        "cpuCoreHours": cpu,
        "cpuCost": 0.0 if gpu else amount / MICRO,
        "gpuCount": gpu / span if span else 0.0,
        "gpuHours": gpu,
        "gpuCost": amount / MICRO if gpu else 0.0,
        "ramBytes": 0.0,
        "ramByteHours": 0.0,
        "ramCost": 0.0,
        "pvCost": storage / MICRO,
        "networkCost": 0.0,
        "loadBalancerCost": 0.0,
        "sharedCost": 0.0,
        "externalCost": 0.0,
        "totalCost": one.amount / MICRO,
        "totalEfficiency": 0.0,
    }


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
