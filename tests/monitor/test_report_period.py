"""Months and weeks of a report: their hours, those before them, and what is no period."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.core.errors import Invalid
from muster.core.period import months, spans, weeks, zone_of

NOW = datetime(2026, 11, 18, 10, 30, tzinfo=UTC).timestamp()
ZONE = ZoneInfo("UTC")


def hours(month: str, zone: str) -> float:
    (period,) = months(month, NOW, ZoneInfo(zone), 0)
    return (period.end - period.begin) / 3600


def test_a_month_in_which_clocks_change_has_an_hour_more_or_less() -> None:
    assert hours("2026-10", "UTC") == 31 * 24
    assert hours("2026-10", "Europe/Berlin") == 31 * 24 + 1
    assert hours("2026-03", "Europe/Berlin") == 31 * 24 - 1
    assert hours("2024-02", "UTC") == 29 * 24


def test_the_months_before_come_first_and_leave_no_gap() -> None:
    found = months("2026-02", NOW, ZoneInfo("Europe/Berlin"), 6)
    assert [one.name for one in found] == [
        "2025-08", "2025-09", "2025-10", "2025-11", "2025-12", "2026-01", "2026-02",
    ]  # fmt: skip
    assert all(one.end == after.begin for one, after in itertools.pairwise(found))
    assert months("this", NOW, ZONE, 0)[0].name == "2026-11"


def test_weeks_are_those_of_iso() -> None:
    before, found = weeks("2026-W01", NOW, ZONE, 1)
    assert (before.name, found.name) == ("2025-W52", "2026-W01")
    assert datetime.fromtimestamp(found.begin, UTC) == datetime(2025, 12, 29, tzinfo=UTC)
    assert weeks("this", NOW, ZONE, 0)[0].name == "2026-W47"


@pytest.mark.parametrize("text", ["2026-13", "2026-00", "0000-01", "9999-12", "26-1", "2026-1", "x", "", "2027-01"])
def test_no_month(text: str) -> None:
    with pytest.raises(Invalid):
        months(text, NOW, ZONE, 6)


@pytest.mark.parametrize("text", ["2026-W54", "2026-W00", "2026-11", "0001-W01", "9999-W52", "2026-W48"])
def test_no_week(text: str) -> None:
    with pytest.raises(Invalid):
        weeks(text, NOW, ZONE, 6)


@pytest.mark.parametrize("name", ["Mars/Olympus", "../../etc/passwd", "/etc/passwd", "Europe", "a\0b", "x" * 300])
def test_no_zone(name: str) -> None:
    with pytest.raises(Invalid):
        zone_of(name)


@given(seconds=st.floats(60, 1e8), before=st.integers(0, 6))
def test_the_last_days_are_whole_and_contain_what_was_asked(seconds: float, before: int) -> None:
    found = spans(seconds, NOW, before)
    last = found[-1]
    assert last.begin % 86_400 == 0
    assert last.begin <= NOW - seconds < last.begin + 86_400
    assert last.end > NOW
    assert last.until(NOW) == NOW
    assert {one.end - one.begin for one in found} == {last.end - last.begin}
    assert all(one.end == after.begin for one, after in itertools.pairwise(found))
