"""Makes the report of a period: reads the facts of it and of the periods before it, once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, cast

from muster.api.report import ReportView
from muster.control.goodput import GoodputLedger
from muster.control.node_health import is_spot
from muster.monitor.report.facts import AttemptFact, Facts, HeldFact, RunFact, Terms, UseFact, WaitFact, unit_of
from muster.monitor.report.period import Period
from muster.monitor.report.report import make_report, period_view
from muster.monitor.rollup import DAY, from_text
from muster.store.base import Store
from muster.store.past import targets_of
from muster.track.goodput_rows import GoodputFilter, HeldDay
from muster.track.record_db import RecordDb
from muster.track.report_rows import (
    LONGEST,
    ROWS_MAX,
    ReportSpan,
    read_attempts,
    read_pools,
    read_runs,
    read_waits,
)


@dataclass(frozen=True, slots=True)
class ReportReader:
    store: Store
    db: RecordDb
    ledger: GoodputLedger
    live: Callable[[GoodputFilter], Sequence[str]]  # jobs that hold seats and count
    first: float  # the time of the first event that is recorded

    def report(self, periods: Sequence[Period], projects: Sequence[str] | None, now: float, zone: str) -> ReportView:
        """`periods`: those before, the oldest first, and the one of the report. `projects`: None for all."""
        span = ReportSpan(periods[0].begin, periods[-1].until(now) + 1, projects)
        facts = self._facts(span)
        terms = self._terms(facts, now, projects is None)
        made = make_report(facts, periods, terms)
        return {
            "now": now,
            "zone": zone,
            "period": period_view(periods[-1], now),
            "before": [period_view(one, now) for one in periods[:-1]],
            "projects": sorted(projects) if projects is not None else None,
            "unit": cast(Literal["accelerator", "cpu"], terms.unit),
            "figures": made.figures,
            "waste": made.waste,
            "notes": _notes(facts, periods[-1], self.first),
        }

    def _terms(self, facts: Facts, now: float, whole: bool) -> Terms:
        state = self.store.state()
        rules = state.rules
        targets = {(str(work), high): seconds for (work, high), seconds in targets_of(rules).items()}
        unit = unit_of(facts.held, facts.use if whole else ())
        return Terms(
            now,
            self.first,
            whole,
            unit,
            lambda pool: rules.pool(pool).price,
            lambda pool: is_spot(state, pool),
            targets,
        )

    def _facts(self, span: ReportSpan) -> Facts:
        begin, end = int(span.begin) // DAY * DAY, int(span.end) + DAY
        with self.db.reading() as connection:
            runs = {one.id: one for one in map(RunFact._make, read_runs(connection, span))}
            waits = [WaitFact(*one) for one in read_waits(connection, span)]
            tried = [one.id for one in runs.values() if one.attempts > 1 or one.phase == "failed"]
            attempts: dict[str, list[AttemptFact]] = {}
            for row in read_attempts(connection, tried):
                attempts.setdefault(row[0], []).append(AttemptFact(*row))
        want = GoodputFilter(begin, projects=span.projects, until=end)
        held = self._held(self.ledger.read(want, self.live(want)))
        use: list[UseFact] = []
        if span.projects is None:
            rows = self.store.rollups(DAY, None, begin, end)
            use = [UseFact(row.start, row.pool, from_text(row.data)) for row in rows]
        return Facts(runs, held, waits, attempts, use)

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
            found.append(HeldFact(time.day, run, attempt, project, unit, units, seats, pool, time.parts))
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
    if any(one.run not in facts.runs for one in facts.held):
        days = int(LONGEST // 86_400)
        notes.append(
            f"Runs that were submitted more than {days} days before the oldest of these periods count by their hours "
            "alone."
        )
    return notes
