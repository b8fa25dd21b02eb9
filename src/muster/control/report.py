"""Makes the report of a period: reads the facts of it and of the periods before it, once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Final, Literal, cast

from sqlalchemy import Connection

from muster.api.report import ReportView
from muster.control.cost_pending import Pending
from muster.control.goodput import GoodputLedger
from muster.control.node_health import is_spot
from muster.core.entities.price_book import book_of, book_zone
from muster.core.period import Period
from muster.cost.ledger import local_day
from muster.cost.report.sums import hours
from muster.monitor.report.facts import (
    UNIT_HOUR,
    AttemptFact,
    CostFact,
    Facts,
    HeldFact,
    RunFact,
    Terms,
    UseFact,
    WaitFact,
)
from muster.monitor.report.report import Values, make_report, period_view, values
from muster.monitor.rollup import DAY, THERE, from_text
from muster.store.base import Store
from muster.store.past import targets_of
from muster.track.cost_reads import CostFilter, read_costs
from muster.track.goodput_rows import GoodputFilter, HeldDay
from muster.track.record_db import RecordDb
from muster.track.report_rows import (
    ROWS_MAX,
    ReportSpan,
    read_attempts,
    read_pools,
    read_runs,
    read_waits,
)

KEPT_FOR: Final = 3600.0  # seconds
KEPT_MAX: Final = 200  # periods


class KeptValues:
    """Values of periods that are over, which change little: a report of half a year takes as long as a month's."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[float, Values]] = {}

    def get(self, key: Hashable, now: float, make: Callable[[], Values]) -> Values:
        known = self._kept.get(key)
        if known is not None and 0 <= now - known[0] < KEPT_FOR:
            return known[1]
        made = make()
        for old in list(self._kept)[: max(0, len(self._kept) - KEPT_MAX + 1)]:  # other threads may do the same
            self._kept.pop(old, None)
        self._kept[key] = (now, made)
        return made


@dataclass(frozen=True, slots=True)
class ReportReader:
    """`live`: jobs that hold seats and count. `first`: the time of the first event that is recorded.

    `pending`: what attempts of these projects that still run have cost so far.
    """

    store: Store
    db: RecordDb
    ledger: GoodputLedger
    live: Callable[[GoodputFilter], Sequence[str]]
    first: float
    kept: KeptValues
    pending: Callable[[float, Sequence[str] | None], Sequence[Pending]]

    def report(self, periods: Sequence[Period], projects: Sequence[str] | None, now: float, zone: str) -> ReportView:
        """`periods`: those before, the oldest first, and the one of the report. `projects`: None for all."""
        *earlier, period = periods
        covered = tuple(sorted(projects)) if projects is not None else None
        facts = self._facts(period, covered, now)
        terms = self._terms(facts, now, covered is None)
        made = make_report(facts, period, terms, [self._values(one, covered, terms) for one in earlier])
        return {
            "now": now,
            "zone": zone,
            "period": period_view(period, now),
            "before": [period_view(one, now) for one in earlier],
            "projects": list(covered) if covered is not None else None,
            "unit": cast(Literal["accelerator", "cpu"], terms.unit),
            "figures": made.figures,
            "waste": made.waste,
            "notes": _notes(facts, period, self.first),
        }

    def _values(self, period: Period, projects: tuple[str, ...] | None, terms: Terms) -> Values:
        if period.end <= self.first:
            return {}
        key = (period.begin, period.end, projects, terms.unit, self.store.state().rules.model_dump_json())

        def make() -> Values:
            return values(self._facts(period, projects, terms.now), period, terms)

        return self.kept.get(key, terms.now, make)

    def _terms(self, facts: Facts, now: float, whole: bool) -> Terms:
        state = self.store.state()
        rules = state.rules
        counted = any(one.unit == "accelerator" for one in facts.held)
        there = any(one.bucket.high(THERE) for one in facts.use)
        return Terms(
            now=now,
            first=self.first,
            whole=whole,
            unit="accelerator" if counted or there else "cpu",
            spot=cache(lambda pool: is_spot(state, pool)),
            targets={(str(work), high): seconds for (work, high), seconds in targets_of(rules).items()},
        )

    def _facts(self, period: Period, projects: tuple[str, ...] | None, now: float) -> Facts:
        span = ReportSpan(period.begin, period.until(now) + 1, projects)
        begin, end = int(span.begin) // DAY * DAY, int(span.end) + DAY
        want = GoodputFilter(begin, projects=span.projects, until=end)
        held = self._held(self.ledger.read(want, self.live(want)))
        with self.db.reading() as connection:
            # Runs that were submitted before, and ended in the span, held something in it.
            costs = self._costs(connection, period, covered=projects, now=now)
            rows = read_runs(connection, span, {*(one.run for one in held), *costs})
            runs = {one.id: one for one in map(RunFact._make, rows)}
            waits = [WaitFact._make(one) for one in read_waits(connection, span)]
            tried = [one.id for one in runs.values() if one.attempts > 1 or one.phase == "failed"]
            attempts: dict[str, list[AttemptFact]] = {}
            for row in read_attempts(connection, tried):
                attempts.setdefault(row[0], []).append(AttemptFact._make(row))
        use: list[UseFact] = []
        if span.projects is None:
            buckets = self.store.rollups(DAY, None, begin, end)
            use = [UseFact(one.start, one.pool, from_text(one.data)) for one in buckets]
        return Facts(runs, held, costs, waits, attempts, use)

    def _costs(
        self, connection: Connection, period: Period, covered: tuple[str, ...] | None, now: float
    ) -> dict[str, CostFact]:
        """Of days in the time zone of the price book, in its currency; with what runs now has cost so far."""
        state = self.store.state()
        zone, currency = book_zone(state), book_of(state).currency
        want = CostFilter(local_day(period.begin, zone), local_day(period.end - 1, zone), covered)
        found = {
            run: CostFact(amount, hours(unpriced)) for run, amount, unpriced in read_costs(connection, want, currency)
        }
        if period.begin <= now < period.end:
            for one in self.pending(now, covered):
                known = found.get(one.run, CostFact(0, 0.0))
                found[one.run] = known._replace(amount=known.amount + one.amount)
        return found

    def _held(self, days: Sequence[HeldDay]) -> list[HeldFact]:
        """Rows of older releases lack the pool, which their attempts have."""
        lacking = {one.run for one in days if not one.time.pool}
        known: dict[tuple[str, int], tuple[str, int]] = {}
        if lacking:
            with self.db.reading() as connection:
                known = read_pools(connection, lacking)
        found = []
        for run, attempt, unit, units, time, _, project in days:
            pool, seats = time.pool, time.seats
            if not pool:
                pool, seats = known.get((run, attempt), ("", 0))
            held = units * sum(time.parts.values()) / UNIT_HOUR
            found.append(HeldFact(time.day, run, attempt, project, unit, units, seats, pool, held, time.parts))
        return found


def _notes(facts: Facts, period: Period, first: float) -> list[str]:
    notes = []
    if first > period.begin:
        began = datetime.fromtimestamp(first, UTC)
        notes.append(
            f"The server's record begins on {began:%Y-%m-%d at %H:%M} UTC: nothing is known of the time before."
        )
    if len(facts.runs) >= ROWS_MAX or len(facts.waits) >= ROWS_MAX:
        notes.append(f"There were more runs than are looked at; the newest {ROWS_MAX:,} count.")
    return notes
