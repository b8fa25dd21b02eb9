"""Keeps the cost ledger: entries and sums in rows, folded from the events of charges.

A charge is an event of its own, written with the end of its attempt. The rows can be made again from the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast
from zoneinfo import ZoneInfo

from muster.control.goodput import GoodputLedger
from muster.control.prices import corrections
from muster.core.cost_events import AttemptCharged, CostCorrected, Line, PoolIdle, ProjectStored
from muster.core.entities.price_book import PricesSet, book_zone, prices_of
from muster.core.event import Event
from muster.core.job import Job
from muster.core.money import divide
from muster.core.prices import SECOND
from muster.cost.ledger import (
    IDLE_ACCOUNT,
    STORAGE_ACCOUNT,
    LedgerEntry,
    Payer,
    TimeClass,
    by_class,
    charge_entries,
    correction_entries,
)
from muster.store.base import Entry, EventFilter, JobFilter, Store
from muster.track.cost_rows import ClassRow, charged_runs, cost_record, read_charges
from muster.track.tracking import Tracking

KINDS = (AttemptCharged, CostCorrected, PoolIdle, ProjectStored)
_PAST: Final = 10_000  # charges and corrections of one run that are read at a time


class CostLedger:
    def __init__(self, store: Store, track: Tracking, goodput: GoodputLedger) -> None:
        self._store, self._track, self._goodput = store, track, goodput

    def fold(self, events: Sequence[Event]) -> Entry:
        """The fold of the follower `costs`: the entries of these events, and the corrections that a new book needs."""
        fixed = self._corrected(events)
        wanted = [event for event in events if isinstance(event.data, KINDS)]
        if not wanted:
            return Entry(fixed)
        runs = list(dict.fromkeys(event.job for event in wanted if event.job))
        jobs = {job.id: job for job in self._store.jobs(JobFilter(ids=runs, limit=len(runs)))} if runs else {}
        charged = [(e.job, e.attempt) for e in wanted if isinstance(e.data, AttemptCharged | CostCorrected)]
        classes = self._goodput.classes(list(dict.fromkeys(charged)))
        zone = book_zone(self._store.state())
        entries: list[LedgerEntry] = []
        for event in wanted:
            entries += self._entries(event, jobs.get(event.job), zone, entries)
        rows = [_row(one) for one in entries]
        return Entry(fixed, records=[cost_record(rows, _classes(entries, classes))])

    def _entries(
        self, event: Event, job: Job | None, zone: ZoneInfo, before: Sequence[LedgerEntry]
    ) -> list[LedgerEntry]:
        data = event.data
        if isinstance(data, AttemptCharged):
            return charge_entries(event.seq, event.job, event.attempt, data, _payer(event, job, data), zone)
        if isinstance(data, CostCorrected):
            known = [*self.entries(event.job), *(one for one in before if one.run == event.job)]
            mine = [one for one in known if one.attempt == event.attempt and one.seq < event.seq]
            return correction_entries(event.seq, mine, data, zone)
        if isinstance(data, PoolIdle):
            return list(_idle(event, data))
        assert isinstance(data, ProjectStored)
        payer = Payer(event.project)
        return [_day_entry(event, data.day, payer, STORAGE_ACCOUNT, data.amount, data.currency, data.book)]

    def _corrected(self, events: Sequence[Event]) -> list[Event]:
        """The corrections of charges whose prices are changed by a book among these events, to the book in force."""
        changed: dict[str, float] = {}
        for event in events:
            for pool, since in event.data.changed.items() if isinstance(event.data, PricesSet) else ():
                changed[pool] = min(since, changed.get(pool, since))
        if not changed:
            return []
        runs = dict.fromkeys(event.job for event in events if isinstance(event.data, AttemptCharged))
        with self._track.db.reading() as connection:
            for pool, since in changed.items():
                runs |= dict.fromkeys(charged_runs(connection, pool, since))
        standing = (one for run in runs for one in self._standing(run, changed))
        jobs = self._store.jobs(JobFilter(ids=list(runs), limit=len(runs))) if runs else ()
        users = {job.id: job.user for job in jobs}
        return list(corrections(standing, prices_of(self._store.state()), events[-1].time, users))

    def _standing(self, run: str, changed: Mapping[str, float]) -> Iterator[tuple[Event, int, int, list[Line]]]:
        """The charges of a run in pools whose prices changed, and what they stand at: see `corrections`."""
        known: dict[int, tuple[Event, int, int, list[Line]]] = {}
        for event in self._store.events(EventFilter(job=run, kind="attempt.charged", limit=_PAST)):
            data = event.data
            if isinstance(data, AttemptCharged) and data.pool in changed:
                known[event.seq] = (event, data.amount, data.platform, data.lines)
        for event in self._store.events(EventFilter(job=run, kind="cost.corrected", limit=_PAST)):
            data = event.data
            if isinstance(data, CostCorrected) and data.charge in known:
                charge, amount, platform, _ = known[data.charge]
                known[data.charge] = (charge, amount + data.amount, platform + data.platform, data.lines)
        for one in known.values():
            if one[3] and int(one[3][-1][1]) > changed[cast("AttemptCharged", one[0].data).pool] * SECOND:
                yield one

    def entries(self, run: str) -> list[LedgerEntry]:
        """All entries of a run, in the order of the log."""
        with self._track.db.reading() as connection:
            return [entry_of(row) for row in read_charges(connection, [run])]


def _payer(event: Event, job: Job | None, charge: AttemptCharged) -> Payer:
    if job is None:  # its row was removed: what the event says is kept
        return Payer(event.project, family=charge.family, environment=charge.environment, pool=charge.pool)
    return Payer(
        event.project, job.user, job.queue, job.spec.kind, charge.family, charge.environment, charge.pool
    )  # fmt: skip


def _idle(event: Event, idle: PoolIdle) -> Iterator[LedgerEntry]:
    shares = idle.shares or {"": idle.amount}
    times = divide(idle.idle, [max(amount, 0) for amount in shares.values()])
    for part, ((project, amount), held) in enumerate(zip(shares.items(), times, strict=True)):
        payer = Payer(project, pool=idle.pool)
        one = _day_entry(event, idle.day, payer, IDLE_ACCOUNT, amount, idle.currency, idle.book)
        yield one._replace(part=part, held=held, unit="accelerator", cause=IDLE_ACCOUNT)


def _day_entry(
    event: Event, day: str, payer: Payer, account: str, amount: int, currency: str, book: int
) -> LedgerEntry:  # fmt: skip
    return LedgerEntry(
        event.seq, 0, "", 0, day, 0, 0, payer, account, "", "", currency, amount, amount, 0, 0, 0, book, False, ""
    )  # fmt: skip


def _classes(
    entries: Sequence[LedgerEntry], classes: Mapping[tuple[str, int], Sequence[TimeClass]]
) -> Iterator[ClassRow]:  # fmt: skip
    for one in entries:
        if not one.amount:
            continue
        where = (one.day, one.payer.project, one.payer.pool, one.account, one.currency)
        if not one.run:
            yield ClassRow(*where, "storage" if one.account == STORAGE_ACCOUNT else "idle_capacity", "", one.amount)
            continue
        for name, cause, amount in by_class(one, classes.get((one.run, one.attempt), ())):
            yield ClassRow(*where, name, cause, amount)


def _row(one: LedgerEntry) -> dict[str, Any]:
    doc = one._asdict()
    payer = doc.pop("payer")
    return {**doc, **payer._asdict()}


def entry_of(row: Mapping[str, Any]) -> LedgerEntry:
    payer = Payer(*(row[name] for name in Payer._fields))
    known = {name: row[name] for name in LedgerEntry._fields if name != "payer"}
    return LedgerEntry(payer=payer, **{**known, "correction": bool(known["correction"])})
