"""Time windows: weekly off-peak hours, and maintenance windows of nodes."""

from __future__ import annotations

from math import inf

from muster.core.rules import DAYS, PoolRules, Window

DAY = 86_400
WEEK = 7 * DAY
_MONDAY = 4 * DAY  # the first Monday after 1970 began, in seconds


def opens(windows: tuple[Window, ...], now: float) -> float:
    """The first time, now or later, at which one of the windows is open; `now` when there are no windows."""
    if not windows:
        return now
    second = (now - _MONDAY) % WEEK
    best = inf
    for window in windows:
        length = (window.end - window.start) % DAY or DAY
        for day in window.days:
            start = DAYS.index(day) * DAY + window.start
            since = (second - start) % WEEK
            if since < length:
                return now
            best = min(best, now + WEEK - since)
    return best


def open_until(windows: tuple[Window, ...], now: float) -> float:
    """When the windows that are open now, and those that follow without a gap, have all ended.

    inf if that never happens, and when no window is open.
    """
    at = now
    while at < now + WEEK:
        ends = _ends(windows, at)
        if ends <= at:
            return at if at > now else inf
        at = ends
    return inf


def _ends(windows: tuple[Window, ...], now: float) -> float:
    """When the last of the windows that are open now ends; `now` when none is open."""
    second, found = (now - _MONDAY) % WEEK, now
    for window in windows:
        length = (window.end - window.start) % DAY or DAY
        for day in window.days:
            since = (second - DAYS.index(day) * DAY - window.start) % WEEK
            if since < length:
                found = max(found, now + length - since)
    return found


def closes(rules: PoolRules, node: str, now: float) -> float:
    """When the node's next maintenance begins; inf for never, -inf during maintenance."""
    found = inf
    for window in rules.maintenance:
        if window.end > now and (not window.nodes or node in window.nodes):
            found = min(found, -inf if window.start <= now else window.start)
    return found


def next_change(rules: PoolRules, now: float) -> float:
    """When the pool's maintenance next begins or ends; inf for never."""
    return min((at for window in rules.maintenance for at in (window.start, window.end) if at > now), default=inf)
