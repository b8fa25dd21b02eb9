"""Hours, days and dates: conversion between the notation of a policy file and the values in the rules."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from muster.core.rules import DAYS, Day, Window
from muster.core.suggest import did_you_mean
from muster.core.units import InvalidValue

DAY: Final = 86_400  # seconds


def parse_clock(text: str) -> int:
    """Seconds since midnight from `20:00` or `20:00:30`; `24:00` is the end of the day."""
    match = _CLOCK.fullmatch(text.strip())
    if not match:
        raise InvalidValue('Write hours and minutes, in quotes, as in `"20:00"`.')
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    moment = hours * 3600 + minutes * 60 + seconds
    if minutes > 59 or seconds > 59 or moment > DAY:
        raise InvalidValue("A day goes from `00:00` to `24:00`.")
    return moment


def format_clock(seconds: int) -> str:
    hours, minutes, left = seconds // 3600, seconds // 60 % 60, seconds % 60
    return f"{hours:02}:{minutes:02}" + (f":{left:02}" if left else "")


def parse_days(text: str) -> tuple[Day, ...]:
    """Days in the order of the week, from `mon-fri`, `sat,sun`, `weekdays`, `weekends` or `daily`."""
    named = set[Day]()
    for part in re.split(r"[,\s]+", re.sub(r"\s*-\s*", "-", text.strip().lower())):
        first, dash, last = part.partition("-")
        if part in _NAMED_DAYS:
            named.update(_NAMED_DAYS[part])
        elif dash:
            begin, end = _day(first), _day(last)
            named.update(DAYS[(begin + n) % 7] for n in range((end - begin) % 7 + 1))
        else:
            named.add(DAYS[_day(first)])
    return tuple(day for day in DAYS if day in named)


def format_days(days: Sequence[Day]) -> str:
    """Such as `mon-fri` or `mon,wed`; three or more days in a row are written as a range."""
    runs: list[list[Day]] = []
    for day in days:
        if runs and DAYS.index(day) == DAYS.index(runs[-1][-1]) + 1:
            runs[-1].append(day)
        else:
            runs.append([day])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(run) for run in runs)


def parse_window(text: str) -> dict[str, Any]:
    """The values of a `Window` from `mon-fri 20:00-06:00`, `20:00-06:00` (every day) or `sat,sun` (all day)."""
    words = re.sub(r"\s*-\s*", "-", text.strip()).rsplit(None, 1)
    hours = _HOURS.fullmatch(words[-1]) if words else None
    days = " ".join(words[:-1] if hours else words)
    values: dict[str, Any] = {"days": parse_days(days)} if days or not hours else {}
    if hours:
        values |= {"start": parse_clock(hours[1]), "end": parse_clock(hours[2]) or DAY}
    return values


def format_window(window: Window) -> str:
    whole = (window.start, window.end) == (0, DAY)
    days = "" if window.days == DAYS else format_days(window.days)
    hours = "" if whole and days else f"{format_clock(window.start)}-{format_clock(window.end)}"
    return f"{days} {hours}".strip()


def parse_moment(text: str) -> float:
    """Seconds since 1970 from `2026-11-20T08:00Z`, or the same with an offset."""
    words = text.strip()
    try:
        moment = datetime.fromisoformat(words)
    except ValueError:
        raise InvalidValue from None
    if moment.tzinfo is None:
        day = words if len(words) > 10 else f"{words}T00:00"
        raise InvalidValue(f"Say the zone: `{day}Z` is UTC, and `{day}+02:00` two hours east of it.")
    return moment.timestamp()


def format_moment(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, UTC)
    precision = "minutes" if not moment.second and not moment.microsecond else "auto"
    return moment.replace(tzinfo=None).isoformat(timespec=precision) + "Z"


def _day(text: str) -> int:
    """The number of a day of the week, from its name or a prefix of it; 0 is Monday."""
    found = [n for n, day in enumerate(_DAY_NAMES) if len(text) > 1 and day.startswith(text)]
    if len(found) != 1:
        days = (*DAYS, *_DAY_NAMES, *_NAMED_DAYS)
        raise InvalidValue(did_you_mean(text, days, "Write, for example, `mon-fri 20:00-06:00`."))
    return found[0]


_CLOCK: Final = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?")
_HOURS: Final = re.compile(r"([0-9:]+)-([0-9:]+)")
_DAY_NAMES: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NAMED_DAYS: Final = {"daily": DAYS, "weekdays": DAYS[:5], "weekends": DAYS[5:]}
