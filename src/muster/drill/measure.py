"""What came of a fault, from a job's events and steps: how long each part of the recovery took. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from muster.api.events import EventView
from muster.api.goodput import GoodputView
from muster.api.jobs import AttemptView
from muster.drill.watch import Seen

_SKEW: Final = 0.5  # seconds by which an event may be dated before its cause
Verdict = Literal["held", "did not hold", "not applicable"]


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds from the fault; None if it did not happen."""

    detected: float | None
    restarted: float | None  # the next attempt runs
    new_step: float | None  # a step further than any before


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must hold; `ok` is None if it could not be checked, and `told` says why or what was compared."""

    name: str
    ok: bool | None
    told: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one scenario."""

    scenario: str
    holds: str
    verdict: Verdict
    why: str = ""  # it did not hold, or does not apply
    job: str = ""
    fault: str = ""
    times: Times | None = None
    steps_again: int | None = None
    attempts: int = 0
    checks: tuple[Check, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def times(events: Sequence[EventView], steps: Sequence[Seen], at: float, attempt: int, sees: Sequence[str]) -> Times:
    """`attempt`: the one that the fault hit. `sees`: the kinds of events that say that something is wrong."""
    later = [event for event in events if event["time"] >= at - _SKEW]
    detected = next((event["time"] for event in later if event["kind"] in sees and not _good(event)), None)
    again = (event["time"] for event in later if event["kind"] == "attempt.running" and event["attempt"] > attempt)
    restarted = next(again, None)
    # What was done before the fault may be seen after it: with a restart only the steps of later attempts count.
    before = [seen for seen in steps if seen.time < at or (restarted is not None and seen.attempt <= attempt)]
    reached = max((seen.step for seen in before), default=0)
    new_step = next((seen.time for seen in steps if seen not in before and seen.step > reached), None)
    return Times(*(None if one is None else round(max(0.0, one - at), 2) for one in (detected, restarted, new_step)))


def from_checkpoint(attempts: Sequence[AttemptView], after: int) -> bool:
    """Whether every attempt after this one began at a checkpoint."""
    later = [one for one in attempts if one["number"] > after]
    return bool(later) and all(one["from_step"] is not None for one in later)


def adds_up(found: GoodputView) -> Check:
    """Whether every second that the attempts held is in exactly one class of the ledger."""
    ledgers = found["ledgers"]
    wrong = [one for one in ledgers if abs(sum(one["parts"].values()) - one["held"]) > 1e-3]
    negative = [name for one in ledgers for name, value in one["parts"].items() if value < 0]
    held = ", ".join(f"{one['held']:.1f} {one['unit']}-seconds" for one in ledgers)
    if not ledgers:
        return Check("the ledger of its time adds up", False, "there is none")
    return Check("the ledger of its time adds up", not wrong and not negative, f"{held} in all")


def result_of(scenario: str, holds: str, checks: Sequence[Check], facts: Mapping[str, Any]) -> Result:
    """The verdict over all checks; the first that failed is its reason."""
    failed = next((check for check in checks if check.ok is False), None)
    why = "" if failed is None else f"{failed.name}: {failed.told}" if failed.told else failed.name
    return Result(scenario, holds, "held" if failed is None else "did not hold", why, checks=tuple(checks), **facts)


def _good(event: EventView) -> bool:
    """The end of what has done its work."""
    data = event["data"]
    outcome = data.get("outcome") or (data.get("exit") or {}).get("outcome")
    return bool(outcome == "succeeded")
