"""Predictions beside what was measured, and the correction for each kind of device that follows from them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from muster.planner.catalogue import GIB, Device, find
from muster.planner.search import Option, predict
from muster.planner.setups import Setup, setup_of
from muster.planner.shapes import PlanError


@dataclass(frozen=True, slots=True)
class Compared:
    """One run. Figures are None where it did not report them."""

    run: str
    device: str
    devices: int
    predicted_s: float  # a step, before any correction
    measured_s: float | None
    predicted_gib: float  # as torch's allocator counts
    measured_gib: float | None

    @property
    def ratio(self) -> float | None:
        """Measured step time over predicted."""
        return self.measured_s / self.predicted_s if self.measured_s else None

    def to_dict(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "ratio": self.ratio}


def nested(params: Mapping[str, str]) -> dict[str, Any]:
    """A configuration from the parameters that a run recorded of it: dotted names with values as text."""
    tree: dict[str, Any] = {}
    for key, text in params.items():
        *above, last = key.split(".")
        below: Any = tree
        for name in above:
            below = below.setdefault(name, {}) if isinstance(below, dict) else None
        if isinstance(below, dict):
            try:
                below[last] = json.loads(text)
            except ValueError:
                below[last] = None if text == "None" else {"True": True, "False": False}.get(text, text)
    return tree


def compared(
    run: str, params: Mapping[str, str], metrics: Mapping[str, float], device: str, catalogue: Mapping[str, Device]
) -> Compared | None:
    """None for a run that the planner can't predict: another program, an unknown device, a task of the user's own."""
    kind = find(device, catalogue)
    world = params.get("world_size", "")
    if kind is None or not world.isdigit() or not 1 <= int(world) <= 10**6:
        return None
    try:
        setup: Setup = setup_of(nested(params))
        made: Option = predict(setup, setup.layout(int(world)), dataclasses.replace(kind, factor=1.0))
    except (PlanError, TypeError, ArithmeticError):
        return None
    memory, seconds = metrics.get("memory"), metrics.get("step_s")
    return Compared(
        run, kind.name, int(world), made.step.seconds, seconds or None, made.memory.allocated / GIB,
        memory / GIB if memory else None,
    )  # fmt: skip


def factors(found: Iterable[Compared]) -> dict[str, float]:
    """Device → the median of measured over predicted step time."""
    by_device: dict[str, list[float]] = {}
    for each in found:
        if each.ratio is not None:
            by_device.setdefault(each.device, []).append(each.ratio)
    return {device: median(ratios) for device, ratios in sorted(by_device.items())}


def corrected(catalogue: Mapping[str, Device], by_device: Mapping[str, float]) -> dict[str, Device]:
    return {
        name: dataclasses.replace(device, factor=by_device.get(name, 1.0)) for name, device in catalogue.items()
    }  # fmt: skip
