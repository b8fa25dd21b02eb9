"""Figures of paired measurements: quartiles, and the probabilities of what was seen if nothing differed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import binomtest, wilcoxon


def quartiles(some: Sequence[float | None]) -> dict[str, float | None]:
    """What was not found (None) is more than all others; a quartile among these is None. Between two, their mean."""
    known = sorted(math.inf if one is None else float(one) for one in some)
    ends = [(math.ceil(part * len(known)) - 1, math.floor(part * len(known))) for part in (0.25, 0.5, 0.75)]
    found = [0.5 * (known[one] + known[other]) for one, other in ends]
    low, middle, high = (float(f"{one:.4g}") if math.isfinite(one) else None for one in found)
    return {"q1": low, "median": middle, "q3": high}


def sooner(times: Sequence[float | None], than: float) -> float:
    """If half of them were later: how likely it is that at least so many are not. A sign test, since what was not found
    has no number."""
    within = sum(one is not None and one <= than for one in times)
    return float(f"{binomtest(within, len(times), 0.5, alternative='greater').pvalue:.2g}")


def worse(some: Sequence[float], others: Sequence[float]) -> dict[str, Any]:
    """Pairs of losses, by Wilcoxon's signed-rank test to both sides."""
    off = np.array(some) - np.array(others)
    better, same = int(np.sum(off < 0)), int(np.sum(off == 0))
    sides = {"p_worse": "greater", "p_better": "less"}
    tests = {name: float(wilcoxon(off, alternative=side).pvalue) if off.any() else 1.0 for name, side in sides.items()}
    return {"better": better, "same": same, **{name: float(f"{one:.2g}") for name, one in tests.items()}}


def geometric(some: Sequence[float]) -> float:
    return math.exp(float(np.mean(np.log(some))))
