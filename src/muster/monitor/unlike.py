"""Which ranks of a gang are unlike the others, by median and MAD of each figure. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from typing import Final, NamedTuple

Z: Final = 4.0  # deviations from the median
LEAST_RANKS: Final = 3  # of two, nobody knows which one is odd


class Measure(NamedTuple):
    """`least`: the distance from the median that matters, of its value and at least."""

    words: str
    share: float
    least: float
    show: Callable[[float], str]


MEASURES: Final[Mapping[str, Measure]] = {
    "step": Measure("step", 0.0, 2.0, "{:,.0f}".format),
    "cpu": Measure("CPUs", 0.5, 0.5, "{:.1f}".format),
    "device_use": Measure("device use", 0.2, 0.2, "{:.0%}".format),
    "device_memory": Measure("device memory", 0.2, 0.15, "{:.0%}".format),
    "power": Measure("power", 0.3, 50.0, "{:.0f} W".format),
    "quiet": Measure("without activity", 1.0, 10.0, "{:.0f} s".format),
}


def unlike(ranks: Mapping[int, Mapping[str, float | None]]) -> dict[int, list[str]]:
    """The ranks that stand out, each with what is unlike: `device use 12%, the others 95%`."""
    found: dict[int, list[str]] = {}
    for name, measure in MEASURES.items():
        values = {rank: value for rank, one in ranks.items() if (value := one.get(name)) is not None}
        if len(values) < LEAST_RANKS:
            continue
        middle = median(values.values())
        spread = 1.4826 * median(abs(value - middle) for value in values.values())
        far = max(Z * spread, measure.share * abs(middle), measure.least)
        odd = {rank: value for rank, value in values.items() if abs(value - middle) >= far}
        if 2 * len(odd) < len(values):
            for rank, value in odd.items():
                said = f"{measure.words} {measure.show(value)}, the others {measure.show(middle)}"
                found.setdefault(rank, []).append(said)
    return found
