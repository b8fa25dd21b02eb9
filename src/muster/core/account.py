"""The past use of one user in one queue, decayed with a half-life; fair share is computed from it.

Use is counted in accelerator-seconds, CPU-seconds and byte-seconds. While gangs hold resources, use grows with time by
itself, so an account is only changed when a gang starts and when it ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log

from muster.core.resources import Resources

Amount = tuple[float, float, float]  # accelerators, CPUs, bytes of memory
NOTHING: Amount = (0.0, 0.0, 0.0)


def amount(ask: Resources, workers: int) -> Amount:
    return (ask.weight * workers, ask.milli_cpus / 1000 * workers, float(ask.memory * workers))


@dataclass(slots=True)
class Account:
    used: Amount = NOTHING  # amount × seconds, as of `at`
    rate: Amount = NOTHING  # amount held since `at`
    at: float = 0.0

    def now(self, time: float, half_life: float) -> Amount:
        """Use up to `time`, decayed."""
        seconds = time - self.at
        if seconds <= 0:
            return self.used
        fading = log(2) / half_life
        kept = exp(-fading * seconds)
        grown = (1 - kept) / fading  # seconds of use that count after decay
        used, rate = self.used, self.rate
        return (used[0] * kept + rate[0] * grown, used[1] * kept + rate[1] * grown, used[2] * kept + rate[2] * grown)

    def change(self, by: Amount, sign: int, time: float, half_life: float) -> None:
        """A gang took (+1) or released (-1) the amount `by`."""
        self.used, self.at = self.now(time, half_life), max(time, self.at)
        rate = self.rate
        # Never below zero: a rounding error would count forever.
        self.rate = (
            max(rate[0] + sign * by[0], 0.0),
            max(rate[1] + sign * by[1], 0.0),
            max(rate[2] + sign * by[2], 0.0),
        )
