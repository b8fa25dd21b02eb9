"""Makes the reports of the cost ledger: reads sums and adds what attempts that still run have cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

from sqlalchemy import Connection

from muster.api.cost_reports import (
    CostChanges,
    CostExplanation,
    CostForecasts,
    CostReport,
    CostStatement,
    FamilyCosts,
    HourCosts,
    RunCosts,
    SpotCosts,
    WasteCosts,
)
from muster.control.cost_pending import Pending, pending_of
from muster.control.costs import entry_of
from muster.core.errors import Invalid
from muster.core.state import State
from muster.cost.ledger import PROJECT_ACCOUNT, LedgerEntry
from muster.cost.report import change, spot
from muster.cost.report.days import Days, before, part_of_day_left
from muster.cost.report.explain import explained, unpriced_note
from muster.cost.report.families import FAMILIES, FamilySums, family_costs
from muster.cost.report.forecast import FORECAST, HISTORY, forecast
from muster.cost.report.pareto import PARETO, Better, RunValue, pareto
from muster.cost.report.sums import TIMES, Sum, by_time, merged, row_view, total_view, totals
from muster.cost.report.waste import USEFUL, WASTE, ClassAmount, waste_causes
from muster.track.cost_reads import (
    CostFilter,
    count_groups,
    read_classes,
    read_entries,
    read_families,
    read_run_values,
    read_sums,
)
from muster.track.record_db import RecordDb

ROWS_MAX: Final = 10_000  # of a report
DAYS_MAX: Final = 92  # of reports that read the entries and not the sums by day
READ_MAX: Final = 200_000  # rows of days that are put into weeks
LISTED: Final = 1000  # families, runs, causes and changes of an answer
_STATEMENT: Final = ("user", "family", "pool", "price", "account")


@dataclass(frozen=True, slots=True)
class CostScope:
    """What a report covers. `projects`: None for all. `equal`: dimension → the one value."""

    days: Days
    projects: Sequence[str] | None
    equal: Mapping[str, str]

    def filter(self, days: Days | None = None) -> CostFilter:
        wanted = days or self.days
        return CostFilter(wanted.first, wanted.last, self.projects, self.equal)


@dataclass(frozen=True, slots=True)
class CostReader:
    """`look` reads the live state between two commits."""

    db: RecordDb
    look: Callable[[Callable[[State], list[Pending]]], list[Pending]]
    now: float

    def report(self, scope: CostScope, by: Sequence[str], limit: int = ROWS_MAX) -> CostReport:
        if "run" in (*by, *scope.equal):
            _short(scope)
        pending, want = self.pending(scope, by), scope.filter()
        weekly = "week" in by  # which no database can group by
        with self.db.reading() as connection:
            rows = self._read(connection, want, by, READ_MAX if weekly else limit)
            groups = count_groups(connection, want, by) if len(rows) >= limit else len(rows)
            every = rows if len(rows) < limit else self._read(connection, want, ())
        if weekly and groups > READ_MAX:
            raise Invalid(
                f"There are {groups:,} rows before they are put into weeks.", "Choose fewer days, or `month`."
            )
        rows, whole = by_time(rows, by), totals([*every, *pending])
        groups = len(rows) if weekly else groups
        known = {one.keys for one in rows[:limit]}
        # A group that is cut off would be shown with a part of its amount.
        shown = [one for one in pending if groups <= limit or one.keys in known]
        found = merged([*rows, *shown])
        left_out = max(0, max(groups, len(found)) - limit)
        found = found[:limit]
        if by and by[0] in TIMES:
            found.sort(key=lambda one: (one.keys, one.currency))
        return {
            "period": scope.days.view(),
            "projects": _covered(scope),
            "by": list(by),
            "rows": [row_view(one, by) for one in found],
            "totals": [total_view(one) for one in whole],
            "left_out": left_out,
            "notes": _notes(whole),
        }

    def families(self, scope: CostScope) -> FamilyCosts:
        _short(scope)
        with self.db.reading() as connection:
            costs = family_costs(map(FamilySums._make, read_families(connection, scope.filter())))
        return {
            "period": scope.days.view(), "definition": FAMILIES, "families": costs[:LISTED],
            "left_out": max(0, len(costs) - LISTED), "notes": [],
        }  # fmt: skip

    def runs(self, scope: CostScope, metric: str, better: Better) -> RunCosts:
        _short(scope)
        column = "high" if better == "higher" else "low"
        with self.db.reading() as connection:
            found = read_run_values(connection, scope.filter(), metric, column)
        runs = pareto(map(RunValue._make, found), better, LISTED)
        notes = [] if runs else [f"No run with costs in the period reported the metric {metric!r}."]
        return {
            "period": scope.days.view(), "definition": PARETO, "metric": metric, "better": better,
            "runs": runs, "compared": len(found), "notes": notes,
        }  # fmt: skip

    def waste(self, scope: CostScope) -> WasteCosts:
        causes, useful = waste_causes(self._classes(scope))
        return {
            "period": scope.days.view(), "definition": WASTE, "causes": causes[:LISTED], "useful": useful,
            "notes": self.notes(scope),
        }  # fmt: skip

    def forecast(self, scope: CostScope) -> CostForecasts:
        days = scope.days
        first = min(days.first, (date.fromisoformat(days.today) - timedelta(days=HISTORY)).isoformat())
        with self.db.reading() as connection:
            past = self._read(connection, CostFilter(first, days.last, scope.projects, scope.equal), ("day",))
        pending = {one.currency: one.pending for one in self.pending(scope, ())}
        amounts: dict[str, dict[str, int]] = {}
        for one in past:
            amounts.setdefault(one.currency, {})[one.keys[0]] = one.amount
        left = part_of_day_left(self.now, days.zone)
        found = []
        for currency in sorted({*amounts, *pending}):
            known = amounts.get(currency, {})
            so_far = sum(amount for day, amount in known.items() if days.first <= day <= days.last)
            found.append(
                forecast(currency, so_far, pending.get(currency, 0), known, days.today, days.last, left)
            )  # fmt: skip
        return {"period": days.view(), "definition": FORECAST, "forecasts": found, "notes": self.notes(scope)}

    def changes(self, scope: CostScope) -> CostChanges:
        earlier = before(scope.days)
        old, new = (self.sums(scope, change.BY, days) for days in (earlier, scope.days))
        whole, moved = change.changes(old, new)
        return {
            "period": scope.days.view(), "before": earlier.view(), "definition": change.CHANGE, "totals": whole,
            "changes": moved[:LISTED], "notes": _notes(totals(new)),
        }  # fmt: skip

    def spot(self, scope: CostScope) -> SpotCosts:
        rows = self.sums(scope, spot.BY)
        return {
            "period": scope.days.view(), "definition": spot.SPOT, "pools": spot.spot_costs(rows),
            "notes": _notes(totals(rows)),
        }  # fmt: skip

    def hours(self, scope: CostScope) -> HourCosts:
        rows, useful = self.sums(scope, spot.BY), dict[tuple[str, str], tuple[int, int]]()
        for one in self._classes(scope):
            if one.name != "idle_capacity":
                good, charged = useful.get((one.pool, one.currency), (0, 0))
                mine = one.amount if one.name in USEFUL else 0
                useful[(one.pool, one.currency)] = (good + mine, charged + one.amount)
        return {
            "period": scope.days.view(), "definition": spot.HOURS, "pools": spot.hour_costs(rows, useful),
            "notes": _notes(totals(rows)),
        }  # fmt: skip

    def explain(self, scope: CostScope, after: tuple[int, int], limit: int) -> CostExplanation:
        found = self.entries(scope, after, limit + 1)
        more = found[limit - 1] if len(found) > limit else None
        rows = self.sums(scope, ())
        return {
            "entries": [explained(one) for one in found[:limit]],
            "totals": [total_view(one) for one in totals(rows)],
            "next": f"{more.seq}.{more.part}" if more is not None else None,
            "notes": _notes(rows),
        }

    def statement(self, scope: CostScope, project: str) -> CostStatement:
        mine = CostScope(scope.days, [project], {})
        rows = merged(self.sums(mine, _STATEMENT))
        days = sorted(by_time(self.sums(mine, ("day",)), ("day",)), key=lambda one: (one.keys, one.currency))
        return {
            "project": project,
            "period": scope.days.view(),
            "rows": [row_view(one, _STATEMENT) for one in rows],
            "totals": [total_view(one) for one in totals(rows)],
            "days": [row_view(one, ("day",)) for one in days],
            "notes": _notes(totals(rows)),
        }

    def entries(self, scope: CostScope, after: tuple[int, int], limit: int) -> list[LedgerEntry]:
        """Entries after this event and part, in the order of the log."""
        with self.db.reading() as connection:
            return [entry_of(row) for row in read_entries(connection, scope.filter(), after, limit)]

    def sums(self, scope: CostScope, by: Sequence[str], days: Days | None = None) -> list[Sum]:
        """Weeks and months are given as days."""
        with self.db.reading() as connection:
            return self._read(connection, scope.filter(days), by)

    def pending(self, scope: CostScope, by: Sequence[str]) -> list[Sum]:
        """What attempts that still run have cost so far, as of today."""
        if not scope.days.has_today:
            return []
        found = []
        for one in self.look(lambda state: pending_of(state, self.now, scope.projects)):
            values = {**one.payer._asdict(), "run": one.run, "account": PROJECT_ACCOUNT, "price": one.price}
            values |= dict.fromkeys(TIMES, scope.days.today)
            if all(values[name] == value for name, value in scope.equal.items()):
                found.append(Sum(tuple(values[name] for name in by), one.currency, pending=one.amount))
        return merged(found)

    def notes(self, scope: CostScope) -> list[str]:
        return _notes(self.sums(scope, ()))

    def _classes(self, scope: CostScope) -> Iterator[ClassAmount]:
        kept = {name: value for name, value in scope.equal.items() if name in ("project", "pool", "account")}
        want = CostFilter(scope.days.first, scope.days.last, scope.projects, kept)
        with self.db.reading() as connection:
            return map(ClassAmount._make, read_classes(connection, want))

    def _read(
        self, connection: Connection, want: CostFilter, by: Sequence[str], limit: int | None = None
    ) -> list[Sum]:  # fmt: skip
        return [Sum(keys, *sums) for keys, sums in read_sums(connection, want, by, limit)]


def _short(scope: CostScope) -> None:
    """Raises Invalid if entries of more days than are read at a time would be needed."""
    if scope.days.count > DAYS_MAX:
        raise Invalid(
            f"The period has {scope.days.count:,} days, and runs are looked at for {DAYS_MAX} at most.",
            "Choose a shorter period, or other dimensions than run.",
        )


def _covered(scope: CostScope) -> list[str] | None:
    return sorted(scope.projects) if scope.projects is not None else None


def _notes(rows: Sequence[Sum]) -> list[str]:
    """What limits the amounts."""
    notes = [unpriced_note(sum(one.unpriced for one in rows))]
    currencies = sorted({one.currency for one in rows if one.amount or one.pending})
    if len(currencies) > 1:
        notes.append(f"There are amounts in {' and '.join(currencies)}; they are never added to each other.")
    if any(one.pending for one in rows):
        notes.append("Pending: what attempts that still run have cost so far. It is charged when they end.")
    return [one for one in notes if one]
