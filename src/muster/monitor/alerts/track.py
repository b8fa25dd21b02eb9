"""Since when a rule's condition holds for one subject: quiet, pending or firing. Pure functions.

The time between two looks counts only while the looks come regularly. After a gap, such as a server that was down or a
clock that jumped, a pending alert waits for its whole time again, less what is remembered of it, and one that fires
stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import isnan
from typing import Final

from muster.monitor.alerts.rule import Example, Rule

GAP: Final = 90.0  # seconds between two looks, from which on nothing is known of the time between


@dataclass(frozen=True, slots=True)
class Track:
    """The condition of one rule for one subject. `since` is the start of the present stretch, met or not."""

    met: bool
    since: float
    seen: float  # the last look
    firing: bool = False


def advance(rule: Rule, before: Track | None, value: float | None, now: float, gap: float = GAP) -> Track | None:
    """The track after a look; None if there is nothing to remember. A value of None or NaN means: absent."""
    met = value is not None and not isnan(value) and rule.is_met(value)
    if before is None:
        return Track(True, now, now, rule.hold <= 0) if met else None
    if not 0 <= now - before.seen <= gap:
        before = replace(before, since=now)
    since = before.since if met == before.met else now
    if met:
        return Track(True, since, now, before.firing or now - since >= rule.hold)
    if before.firing and now - since < rule.keep:
        return Track(False, since, now, True)
    return None


def firing_track(now: float) -> Track:
    """The track of an alert that fired before this server started."""
    return Track(True, now, now, True)


def fires(rule: Rule, example: Example) -> bool:
    """Whether a rule fires at any time of an example."""
    return any(track is not None and track.firing for track in _tracks(rule, example))


def _tracks(rule: Rule, example: Example) -> Iterator[Track | None]:
    track: Track | None = None
    for number, value in enumerate(example.values):
        track = advance(rule, track, value, number * example.every, gap=max(GAP, 2 * example.every))
        yield track
