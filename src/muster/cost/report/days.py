"""Periods of a cost report: whole days in the time zone of the price book."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from muster.api.cost_reports import CostPeriod
from muster.core.errors import Invalid
from muster.core.period import THIS, Period, months, weeks
from muster.core.units import InvalidValue, parse_duration
from muster.cost.ledger import local_day

_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_LONGEST: Final = 3660  # days


@dataclass(frozen=True, slots=True)
class Days:
    """The days `first` to `last`. `today` is the day of the report, `begin` and `end` are seconds since 1970."""

    name: str
    first: str
    last: str
    begin: float
    end: float
    today: str
    zone: ZoneInfo

    @property
    def over(self) -> bool:
        return self.last < self.today

    @property
    def has_today(self) -> bool:
        return self.first <= self.today <= self.last

    @property
    def count(self) -> int:
        return (date.fromisoformat(self.last) - date.fromisoformat(self.first)).days + 1

    def view(self) -> CostPeriod:
        return {
            "name": self.name, "first": self.first, "last": self.last, "zone": str(self.zone), "over": self.over,
        }  # fmt: skip


def days_of(
    month: str | None, week: str | None, since: str | None, until: str | None, now: float, zone: ZoneInfo
) -> Days:
    """The month or week, or from `since`, a date or a duration such as 30d, to `until`, a date. Else this month."""
    given = [name for name, value in (("month", month), ("week", week), ("since", since)) if value is not None]
    if len(given) > 1 or (until is not None and since is None and given):
        both = " and ".join([*given, *(["until"] if until is not None else [])])
        raise Invalid(f"{both} were given.", "Give one of month, week and since; until goes with since.")
    if week is not None:
        return _named(weeks(week, now, zone, 0)[-1], now, zone)
    if since is None and until is None:
        return _named(months(month if month is not None else THIS, now, zone, 0)[-1], now, zone)
    today = local_day(now, zone)
    last = _day("until", until, now, zone) if until is not None else today
    first = _day("since", since, now, zone) if since is not None else f"{last[:7]}-01"
    if first > last:
        raise Invalid(f"The first day is {first}, and the last {last}.", "Give a first day that is not after the last.")
    return _days(f"{first} to {last}" if first != last else first, first, last, today, zone)


def before(period: Days) -> Days:
    """The period before: the month or week before, or as many days. One that is not over is cut to as many days."""
    first = date.fromisoformat(period.first)
    last = first - timedelta(days=1)
    whole = re.fullmatch(r"\d{4}-\d{2}", period.name) is not None
    start = last.replace(day=1) if whole else first - timedelta(days=period.count)
    if period.has_today:
        passed = (date.fromisoformat(period.today) - first).days
        last = min(last, start + timedelta(days=passed))
    name = f"{start} to {last}" if period.has_today or len(period.name) > 8 else _name_like(period.name, start)
    return _days(name, start.isoformat(), last.isoformat(), period.today, period.zone)


def part_of_day_left(now: float, zone: ZoneInfo) -> float:
    """The part of today that has not passed. A day in which clocks change is an hour longer or shorter."""
    day = datetime.fromtimestamp(now, zone).date()
    begin, end = _midnight(day, zone), _midnight(day + timedelta(days=1), zone)
    return max(0.0, min(1.0, (end - now) / (end - begin)))


def _name_like(name: str, start: date) -> str:
    if "W" in name:
        year, week, _ = start.isocalendar()
        return f"{year:04d}-W{week:02d}"
    return f"{start:%Y-%m}"


def _named(period: Period, now: float, zone: ZoneInfo) -> Days:
    first, last = local_day(period.begin, zone), local_day(period.end - 1, zone)
    return Days(period.name, first, last, period.begin, period.end, local_day(now, zone), zone)


def _days(name: str, first: str, last: str, today: str, zone: ZoneInfo) -> Days:
    begin, end = date.fromisoformat(first), date.fromisoformat(last) + timedelta(days=1)
    return Days(name, first, last, _midnight(begin, zone), _midnight(end, zone), today, zone)


def _day(option: str, text: str, now: float, zone: ZoneInfo) -> str:
    if _DATE.fullmatch(text):
        try:
            found = date.fromisoformat(text)
        except ValueError:
            found = date.min
        if 1971 <= found.year <= 9000:
            return text
    else:
        try:
            seconds = parse_duration(text)
        except InvalidValue:
            seconds = 0.0
        if 0 < seconds <= _LONGEST * 86_400 and seconds <= now:
            # `1d` is today, and `30d` are thirty days with today.
            days = max(1, -(-int(seconds) // 86_400))
            today = datetime.fromtimestamp(now, zone).date()
            return (today - timedelta(days=days - 1)).isoformat()
    raise Invalid(f"{option} is {text!r}.", "Give a date such as 2026-11-01, or a duration such as 30d.")


def _midnight(day: date, zone: ZoneInfo) -> float:
    return datetime(day.year, day.month, day.day, tzinfo=zone).timestamp()
