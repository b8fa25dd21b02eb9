"""Parser of dates and durations in queries. Times without an offset are UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from muster.core.units import InvalidValue, parse_duration
from muster.track.query.nodes import Span

EXPECTED_TIME: Final = "a date such as 2026-05-01 or 2026-05-01T14:30, `today`, `yesterday`, or `-7d` for 7 days ago"
EXPECTED_DURATION: Final = "a duration such as 90s, 15m, 2h30m or 1d"
_DATE: Final = re.compile(
    r"(\d{4})(?:-(\d\d)(?:-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(\.\d{1,6})?)?\s*(Z|[+-]\d\d:?\d\d)?)?)?)?$", re.I
)
_EPOCH: Final = re.compile(r"\d{9,11}(\.\d+)?$")  # seconds since the epoch, as programs write them: after 1973
_DAY: Final = timedelta(days=1)


def moment(text: str, now: float) -> Span | None:
    """The time span that the text names; None if it is no time."""
    word = text.strip().lower()
    today = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if word == "now":
        return Span(now, now)
    if word in ("today", "yesterday"):
        start = today if word == "today" else today - _DAY
        return _span(start, start + _DAY)
    if word.startswith("-"):
        back = duration(word[1:]) if word[-1:].isalpha() else None
        return None if back is None else Span(now - back, now - back)
    if _EPOCH.match(word):
        return Span(float(word), float(word))
    return _date(text.strip())


def duration(text: str) -> float | None:
    """Seconds; None if the text is no duration."""
    try:
        return float(parse_duration(text))
    except InvalidValue:
        return None


def _date(text: str) -> Span | None:
    match = _DATE.match(text)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    try:
        start = datetime(int(year), int(month or 1), int(day or 1), int(hour or 0), int(minute or 0), int(second or 0))
        start = start.replace(microsecond=round(float(fraction or 0) * 1e6), tzinfo=UTC) - _offset(zone)
        if fraction:
            return _span(start, start)
        if second or minute:
            return _span(start, start + timedelta(seconds=1 if second else 60))
        if day:
            return _span(start, start + _DAY)
        year_after, month_after = divmod(start.month, 12) if month else (1, 0)
        return _span(start, start.replace(year=start.year + year_after, month=month_after + 1))
    except (ValueError, OverflowError):
        return None


def _offset(zone: str | None) -> timedelta:
    if zone is None or zone.upper() == "Z":
        return timedelta()
    sign = -1 if zone[0] == "-" else 1
    return sign * timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))


def _span(start: datetime, end: datetime) -> Span:
    return Span(start.timestamp(), end.timestamp())
