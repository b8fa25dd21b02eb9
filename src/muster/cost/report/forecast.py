"""What a period will have cost at its end, with a band, from the days before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from math import sqrt
from statistics import fmean, stdev
from typing import Final

from muster.api.cost_reports import CostForecast

HISTORY: Final = 28  # days that are looked at
LEAST: Final = 7  # days without which nothing is forecast
_EIGHT_OF_TEN: Final = 1.2816  # standard deviations
FORECAST: Final = (
    f"What was charged so far, and what runs now has cost; for each day that is left the mean of the {HISTORY} days "
    "before today, working days and weekends apart. The band has the amount in 8 of 10 cases if days differ as they "
    "did."
)


def forecast(
    currency: str, so_far: int, pending: int, days: Mapping[str, int], today: str, last: str, left: float
) -> CostForecast:
    """`days`: amounts of days, with at least those of the history. `left`: the part of today that has not passed.

    `last`: the last day of the period.
    """
    begun = min(days, default=today)
    here = date.fromisoformat(today)
    past = [here - timedelta(days=ago) for ago in range(1, HISTORY + 1)]
    known = [(day, days.get(day.isoformat(), 0)) for day in past if day.isoformat() >= begun]
    rest = max(0, (date.fromisoformat(last) - here).days)
    remaining = [(here + timedelta(days=ahead), 1.0) for ahead in range(1, rest + 1)]
    if today <= last:
        remaining.append((here, left))
    found: CostForecast = {
        "currency": currency,
        "so_far": so_far,
        "pending": pending,
        "expected": None,
        "low": None,
        "high": None,
        "days_left": sum(part for _, part in remaining),
        "history": len(known),
        "unknown": None,
    }
    sure = so_far + pending
    if not remaining:
        return {**found, "expected": sure, "low": sure, "high": sure}
    if len(known) < LEAST:
        return {**found, "unknown": f"the ledger has {len(known)} days before today, and {LEAST} are needed"}
    mean, spread = _expected(known, remaining)
    return {
        **found,
        "expected": sure + round(mean),
        "low": sure + max(0, round(mean - spread)),
        "high": sure + round(mean + spread),
    }


def _expected(known: Sequence[tuple[date, int]], remaining: Sequence[tuple[date, float]]) -> tuple[float, float]:
    """The mean of what comes, and half the width of the band."""
    everything = [amount for _, amount in known]
    mean = variance = 0.0
    for weekend in (False, True):
        mine = [amount for day, amount in known if (day.weekday() >= 5) == weekend]
        mine = mine if len(mine) >= 2 else everything
        parts = [part for day, part in remaining if (day.weekday() >= 5) == weekend]
        mean += fmean(mine) * sum(parts)
        # The mean itself is uncertain too: by the spread over the days that it is made from.
        variance += stdev(mine) ** 2 * (sum(part * part for part in parts) + sum(parts) ** 2 / len(mine))
    return mean, _EIGHT_OF_TEN * sqrt(variance)
