"""Advice that saves money: one file a kind, each a function of what is known, listed in `ADVICE`."""

from __future__ import annotations

from muster.cost.advice.checkpoints import checkpoints
from muster.cost.advice.facts import Advice, AdviceFacts, Judge
from muster.cost.advice.idle_sessions import idle_sessions
from muster.cost.advice.off_peak import off_peak
from muster.cost.advice.reserve import reserve
from muster.cost.advice.right_size import right_size
from muster.cost.advice.spot import spot
from muster.cost.advice.sweeps import sweeps

LEAST = 1_000_000  # millionths a month: less is not worth reading
ADVICE: dict[str, Judge] = {
    "right-size": right_size,
    "spot": spot,
    "off-peak": off_peak,
    "reserve": reserve,
    "idle-session": idle_sessions,
    "checkpoint": checkpoints,
    "sweep": sweeps,
}


def advise(facts: AdviceFacts, kind: str | None = None) -> list[Advice]:
    """All advice, or that of one kind; what saves most first. Savings under 1.00 a month are left out."""
    found = [one for name, judge in ADVICE.items() if kind in (None, name) for one in judge(facts)]
    found = [one for one in found if one.saves >= LEAST]
    return sorted(found, key=lambda one: (-one.saves, one.kind, one.subject))
