"""A figure of the report: its value or why it is unknown, its target, and how it is defined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Measure = Literal["share", "seconds", "amount", "number"]


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    label: str
    measure: Measure
    definition: str
    value: float | None = None
    unknown: str = ""  # why there is no value
    target: float | None = None
    better: Literal["higher", "lower", ""] = ""
    details: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def met(self) -> bool | None:
        if self.value is None or self.target is None:
            return None
        return self.value >= self.target if self.better == "higher" else self.value <= self.target


def percentile(ordered: Sequence[float], percent: int) -> float | None:
    """By the nearest rank: the value of one that was measured."""
    return ordered[max(0, (len(ordered) * percent + 99) // 100 - 1)] if ordered else None


def ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
