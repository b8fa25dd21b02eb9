"""Calendar months and weeks in a time zone, as intervals of seconds since 1970, and the periods before them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from muster.core.errors import Invalid

THIS: Final = "this"  # the month or week of now
_DAY: Final = 86_400
_SECOND: Final = 1_000_000  # microseconds
_MONTH: Final = re.compile(r"(\d{4})-(\d{2})", re.ASCII)
_WEEK: Final = re.compile(r"(\d{4})-W(\d{2})", re.ASCII)
_YEARS: Final = (1970, 9000)  # what a date and its neighbours can be computed for


@dataclass(frozen=True, slots=True)
class Period:
    """From `begin` up to, and without, `end`."""

    name: str
    begin: float
    end: float

    def until(self, now: float) -> float:
        """The end of the part that has passed."""
        return max(self.begin, min(self.end, now))

    def has_day(self, day: int) -> bool:
        """Whether it has the greater part of a UTC day, which is given by its first second."""
        return self.begin <= day + _DAY // 2 < self.end


def zone_of(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise Invalid(
            f"{name!r} is not a time zone that this server knows.", "Give a name such as UTC or Europe/Berlin."
        ) from error


def months(text: str, now: float, zone: ZoneInfo, before: int) -> list[Period]:
    """The month of this name, `2026-10` or `this`, and so many before it; the oldest first."""
    if text == THIS:
        there = datetime.fromtimestamp(now, zone)
        year, month = there.year, there.month
    else:
        found = _MONTH.fullmatch(text)
        year, month = (int(found[1]), int(found[2])) if found else (0, 0)
        if not (_YEARS[0] <= year <= _YEARS[1] and 1 <= month <= 12):
            raise Invalid(f"The month is {text!r}.", "Give a year and a month, such as 2026-10, or `this`.")
    last = 12 * year + month - 1
    return _begun([_month(number, zone) for number in range(last - before, last + 1)], now)


def weeks(text: str, now: float, zone: ZoneInfo, before: int) -> list[Period]:
    """The ISO week of this name, `2026-W43` or `this`, and so many before it; the oldest first. It begins on Monday."""
    if text == THIS:
        there = datetime.fromtimestamp(now, zone).date()
        monday = there - timedelta(days=there.weekday())
    else:
        found = _WEEK.fullmatch(text)
        try:
            monday = date.fromisocalendar(int(found[1]), int(found[2]), 1) if found else date.min
        except ValueError:
            monday = date.min
        if not _YEARS[0] <= monday.year <= _YEARS[1]:
            raise Invalid(f"The week is {text!r}.", "Give a year and an ISO week, such as 2026-W43, or `this`.")
    return _begun([_week(monday - timedelta(weeks=ago), zone) for ago in range(before, -1, -1)], now)


def spans(seconds: float, now: float, before: int) -> list[Period]:
    """The last whole UTC days that contain so many seconds, and as many days several times before; the oldest first."""
    end = (int(now) // _DAY + 1) * _DAY
    days = max(1, -(-(end - int(now - seconds)) // _DAY))
    found = [(end - days * _DAY * (ago + 1), end - days * _DAY * ago) for ago in range(before, -1, -1)]
    return [Period(_dates(begin, end), float(begin), float(end)) for begin, end in found if begin >= 0]


def local_days(begin: int, end: int, zone: ZoneInfo) -> Iterator[tuple[str, int, int]]:
    """The days between two times in microseconds, each with the part of the time that is in it.

    A day in which clocks change is an hour longer or shorter.
    """
    at = begin
    while at < end:
        day = datetime.fromtimestamp(at / _SECOND, zone).date()
        midnight = round(_midnight(day + timedelta(days=1), zone) * _SECOND)
        until = min(end, max(midnight, at + 1))
        yield day.isoformat(), at, until
        at = until


def day_period(first: str, last: str, zone: ZoneInfo) -> Period:
    """From the begin of one day to the end of another."""
    begin, end = (date.fromisoformat(day) for day in (first, last))
    return Period(f"{first} to {last}", _midnight(begin, zone), _midnight(end + timedelta(days=1), zone))


def _month(number: int, zone: ZoneInfo) -> Period:
    (year, month), (after, then) = divmod(number, 12), divmod(number + 1, 12)
    return Period(f"{year:04d}-{month + 1:02d}", _midnight(date(year, month + 1, 1), zone),
                  _midnight(date(after, then + 1, 1), zone))  # fmt: skip


def _week(monday: date, zone: ZoneInfo) -> Period:
    year, week, _ = monday.isocalendar()
    return Period(f"{year:04d}-W{week:02d}", _midnight(monday, zone), _midnight(monday + timedelta(weeks=1), zone))


def _midnight(day: date, zone: ZoneInfo) -> float:
    """When the day begins there: a month in which clocks change is an hour longer or shorter."""
    return datetime(day.year, day.month, day.day, tzinfo=zone).timestamp()


def _begun(found: list[Period], now: float) -> list[Period]:
    if found[-1].begin > now:
        raise Invalid(f"{found[-1].name} has not begun.", "Ask for a period that has begun; `this` is the one of now.")
    return [one for one in found if one.begin >= 0]


def _dates(begin: int, end: int) -> str:
    first, last = (datetime.fromtimestamp(moment, UTC).date() for moment in (begin, end - 1))
    return f"{first} to {last}" if first != last else f"{first}"
