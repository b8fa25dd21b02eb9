"""Entries of the cost ledger from its events: by day, with who caused them, and by what the time went to.

All amounts are divided into parts that add up exactly, so that every grouping of the entries has the same sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from muster.core.cost_events import AttemptCharged, CostCorrected, Line
from muster.core.money import divide
from muster.core.period import local_days
from muster.core.prices import SECOND, Quantity
from muster.core.resources import WHOLE
from muster.cost.charge import PLATFORM, UNPRICED

PROJECT_ACCOUNT: Final = "project"  # what the project pays
PLATFORM_ACCOUNT: Final = "platform"  # what was lost to hardware, drains, preemption and failed starts
IDLE_ACCOUNT: Final = "idle"  # capacity that nobody used
STORAGE_ACCOUNT: Final = "storage"
_MILLI: Final = SECOND // 1000


class Payer(NamedTuple):
    """Who and what caused a charge."""

    project: str
    user: str = ""
    queue: str = ""
    kind: str = ""
    family: str = ""
    environment: str = ""
    pool: str = ""


class LedgerEntry(NamedTuple):
    """A part of a charge that is of one day, one price and one account. See `store.cost_tables.cost_charges`."""

    seq: int
    part: int
    run: str
    attempt: int
    day: str
    begin: int
    end: int
    payer: Payer
    account: str
    price: str
    unit: str
    currency: str
    amount: int
    listed: int
    held: int
    unpriced: int
    rate: int
    book: int
    correction: bool
    cause: str


class TimeClass(NamedTuple):
    """A time of an attempt that went to one class of the goodput ledger; microseconds. `cause`: of the loss."""

    begin: int
    end: int
    name: str
    cause: str = ""


def charge_entries(
    seq: int, run: str, attempt: int, charge: AttemptCharged, payer: Payer, zone: ZoneInfo
) -> list[LedgerEntry]:
    found = LedgerEntry(
        seq, 0, run, attempt, "", 0, 0, payer, "", "", "", charge.currency, 0, 0, 0, 0, 0, charge.book, False,
        charge.cause,
    )  # fmt: skip
    return list(_entries(found, charge.held, charge.lines, zone))


def correction_entries(
    seq: int, before: Sequence[LedgerEntry], fixed: CostCorrected, zone: ZoneInfo
) -> list[LedgerEntry]:
    """What takes the entries of a charge back, and puts those in that should have been there.

    `before`: the entries of the charge, and of corrections that followed it.
    """
    if not before:
        return []
    back = [
        one._replace(amount=-one.amount, listed=-one.listed, held=-one.held, unpriced=-one.unpriced)
        for one in _net(before)
    ]
    new = _entries(before[0]._replace(book=fixed.book), fixed.held, fixed.lines, zone)
    return [one._replace(seq=seq, part=part, correction=True) for part, one in enumerate([*back, *new])]


def _entries(like: LedgerEntry, held: list[int], lines: Sequence[Line], zone: ZoneInfo) -> Iterator[LedgerEntry]:
    """The lines by day, as entries that are otherwise like this one. Platform entries alone have its cause."""
    what, part = Quantity(*held), 0
    unit, units = ("accelerator", what.accelerators) if what.accelerators else ("worker", what.workers * WHOLE)
    for line in lines:
        _, _, rate, _, account, _, kind = _read(line)
        platform = account == PLATFORM
        for day, since, until, cost, listed in _days(line, zone):
            time = units * ((until // _MILLI) - (since // _MILLI))
            yield like._replace(
                part=part, day=day, begin=since, end=until, price=kind, unit=unit, amount=cost, listed=listed,
                account=PLATFORM_ACCOUNT if platform else PROJECT_ACCOUNT, held=time, rate=rate,
                unpriced=time if rate == UNPRICED else 0, cause=like.cause if platform else "",
            )  # fmt: skip
            part += 1


def by_class(entry: LedgerEntry, classes: Sequence[TimeClass]) -> Iterator[tuple[str, str, int]]:
    """The amount of the entry by class and cause. Time that no class covers is `unknown`."""
    found: dict[tuple[str, str], int] = {}
    covered = 0
    for one in classes:
        time = min(one.end, entry.end) - max(one.begin, entry.begin)
        if time > 0:
            found[(one.name, one.cause)] = found.get((one.name, one.cause), 0) + time
            covered += time
    if (rest := entry.end - entry.begin - covered) > 0 or not found:
        found[("unknown", "")] = max(rest, 1)
    for (name, cause), amount in zip(found, divide(entry.amount, list(found.values())), strict=True):
        if amount:
            yield name, cause, amount


def local_day(time: float, zone: ZoneInfo) -> str:
    return datetime.fromtimestamp(time, zone).date().isoformat()


def _net(entries: Iterable[LedgerEntry]) -> list[LedgerEntry]:
    """The entries that stand: those that were taken back are left out."""
    standing: dict[tuple[object, ...], LedgerEntry] = {}
    for one in entries:
        key = (one.day, one.begin, one.end, one.account, one.price, one.rate)
        known = standing.get(key)
        if known is None:
            standing[key] = one
            continue
        sums = {name: getattr(known, name) + getattr(one, name) for name in ("amount", "listed", "held", "unpriced")}
        standing[key] = known._replace(**sums)
    return [one for one in standing.values() if one.amount or one.listed or one.held or one.unpriced]


def _read(line: Line) -> tuple[int, int, int, int, int, int, str]:
    begin, end, rate, cost, account, listed, kind = line
    return int(begin), int(end), int(rate), int(cost), int(account), int(listed), str(kind)


def _days(line: Line, zone: ZoneInfo) -> Iterator[tuple[str, int, int, int, int]]:
    """The line by day of the time zone: day, begin, end, and its parts of the amount and of that at list price."""
    begin, end, _, cost, _, listed, _ = _read(line)
    cuts = list(local_days(begin, end, zone))
    times = [until - since for _, since, until in cuts]
    if not times:
        return
    for (day, since, until), part, list_part in zip(cuts, divide(cost, times), divide(listed, times), strict=True):
        yield day, since, until, part, list_part
