"""The save interval by Young and Daly, from the cost of a save and the failure rate of the machines."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

DEVICE_HOURS: Final = 50_000.0  # between failures of one accelerator with its share of the node, before any was seen:
# 466 interruptions of 16,384 H100s in 54 days (Llama 3, 2024, table 5) make 45,600 hours, planned ones left out 50,700.
SHORTEST: Final = 10.0  # seconds: below this, a run would spend its time on saving
LONGEST: Final = 6 * 3600.0  # seconds: the maximum loss, however rarely machines fail
ROOM: Final = 1.25  # a save must be written before the next one begins, with this margin


@dataclass(frozen=True, slots=True)
class Choice:
    """An interval between saves, and the reason for it."""

    seconds: float
    why: str  # a sentence

    def steps(self, step_seconds: float) -> int:
        """The interval in steps of this duration."""
        return max(1, round(self.seconds / max(step_seconds, 1e-9)))


def failures_per_second(devices: int, failures: int = 0, seconds: float = 0.0) -> float:
    """Failure rate of the whole gang: the typical rate for this many devices, corrected by this run's failures so far.

    The typical rate counts as one failure in DEVICE_HOURS device hours. Many hours without a failure lower it, and
    several failures in a short time raise it at once.
    """
    seen_hours = max(0, devices) * seconds / 3600
    per_device_hour = (1 + failures) / (DEVICE_HOURS + seen_hours)
    return max(1, devices) * per_device_hour / 3600


def choose(stall: float, write: float, size: int, rate: float) -> Choice:
    """The interval for saves of `size` bytes that block training for `stall` seconds and are committed after `write`
    seconds in the background, in a gang that fails `rate` times per second.
    """
    if min(stall, write, size, rate) < 0 or not all(map(math.isfinite, (stall, write, rate))):
        raise ValueError(
            f"choose(): stall {stall}, write {write}, size {size}, rate {rate}; expected numbers from 0 on."
        )
    between = 1 / rate if rate > 0 else math.inf
    best = _daly(stall, between)
    least, most = max(SHORTEST, ROOM * write), max(LONGEST, ROOM * write)
    seconds = min(max(best, least), most)
    limit = ""
    if best < least:
        why = "a save must be written before the next begins" if least > SHORTEST else "that is the least"
        limit = f"; {_time(best)} would be best by that, but {why}"
    elif best > most:
        limit = f"; {_time(best)} would be best by that, but more than {_time(most)} is not risked"
    cost = f"a save of {_size(size)} stops training for {_time(stall)} and is written in {_time(write)}"
    fail = f"a failure is expected every {_time(between)}" if rate > 0 else "no failure is expected"
    return Choice(seconds, f"a save every {_time(seconds)}: {cost}, and {fail} (Young and Daly){limit}.")


def _daly(cost: float, between: float) -> float:
    """Daly's estimate (2006, equation 20); its first term is Young's (1974). `between`: seconds between failures."""
    if math.isinf(between) or cost >= 2 * between:
        return between
    ratio = cost / (2 * between)
    return math.sqrt(2 * cost * between) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - cost


def _time(seconds: float) -> str:
    if math.isinf(seconds):
        return "never"
    for unit, name in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1000 * seconds:.0f} ms"


def _size(count: int) -> str:
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} bytes"
