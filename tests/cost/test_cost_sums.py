"""Sums of the ledger: in every grouping they are those of the entries, to the millionth."""

from __future__ import annotations

from collections import defaultdict

import pytest
from cost_ledger_kit import entry, ledger_of, run_row
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.core.errors import Invalid
from muster.cost.charge import UNPRICED
from muster.cost.ledger import LedgerEntry, Payer
from muster.cost.report.families import FamilySums, family_costs
from muster.cost.report.sums import DIMENSIONS, Sum, by_time, parse_by, time_key, totals
from muster.store import record_tables as tables
from muster.store.insert import add
from muster.track.cost_reads import (
    CostFilter,
    count_groups,
    read_classes,
    read_costs,
    read_entries,
    read_families,
    read_run_cost,
    read_run_values,
    read_sums,
)
from muster.track.cost_rows import ClassRow
from strategy_kit import pick

DAYS = ("2026-10-24", "2026-10-25", "2026-10-31", "2026-11-01", "2026-11-30")
EDGES = (*DAYS, "2026-01-01", "2026-09-30", "2026-10-01", "2026-10-30", "2026-11-29", "2026-12-31")
ALL = CostFilter("2026-01-01", "2026-12-31")
payers = st.builds(
    Payer, pick("red", "blue"), pick("ann", "bob"), pick("q", "r"), pick("train", "eval"), pick("gpt", "vit"),
    pick("", "prod"), pick("h100", "cpu"),
)  # fmt: skip
made = st.builds(
    entry, amount=st.integers(-(10**9), 10**12), day=pick(*DAYS), run=pick("a-1", "b-2", "c-3"), payer=payers,
    account=pick("project", "platform"), price=pick("on_demand", "spot"), unit=pick("accelerator", "worker"),
    currency=pick("USD", "EUR"), held=st.integers(0, 10**12), rate=pick(UNPRICED, 5), correction=st.booleans(),
)  # fmt: skip


def value_of(one: LedgerEntry, name: str) -> str:
    if name in ("day", "week", "month"):
        return time_key(name, one.day)
    return str(getattr(one.payer if name in Payer._fields else one, name))


@settings(max_examples=40)
@given(
    st.lists(made, max_size=30),
    st.lists(pick(*DIMENSIONS), unique=True, max_size=4),
    st.tuples(pick(*EDGES), pick(*EDGES)),
)
def test_any_grouping_of_any_days_has_the_sums_of_the_entries(
    entries: list[LedgerEntry], by: list[str], days: tuple[str, str]
) -> None:
    everything = [one._replace(seq=seq) for seq, one in enumerate(entries)]
    first, last = sorted(days)
    entries = [one for one in everything if first <= one.day <= last]
    expected: dict[tuple[tuple[str, ...], str], list[int]] = defaultdict(lambda: [0] * 6)
    for one in entries:
        sums = expected[tuple(value_of(one, name) for name in by), one.currency]
        mine = one.amount if one.account == "platform" else 0
        held = (one.held, 0) if one.unit == "accelerator" else (0, one.held)
        for place, value in enumerate((one.amount, mine, *held, one.unpriced, 1)):
            sums[place] += value
    with ledger_of(everything) as connection:
        rows = by_time((Sum(keys, *sums) for keys, sums in read_sums(connection, CostFilter(first, last), by)), by)
    found = {(r.keys, r.currency): [r.amount, r.platform, r.held, r.workers, r.unpriced, r.entries] for r in rows}
    assert found == dict(expected)
    whole = {one.currency: one.amount for one in totals(rows)}
    assert whole == {
        money: sum(one.amount for one in entries if one.currency == money) for money in {e.currency for e in entries}
    }


def test_both_databases_say_the_same(postgres_url: str) -> None:
    entries = [
        entry(seq, 7 * seq, day=DAYS[seq % 5], run=f"r-{seq % 3}", account=("project", "platform")[seq % 2],
              currency=("USD", "EUR")[seq % 3 == 0])
        for seq in range(1, 30)
    ]  # fmt: skip
    classes = [ClassRow("2026-11-01", "red", "h100", "project", "USD", "training", "", 5)]
    found = []
    for url in ("sqlite://", postgres_url):
        with ledger_of(entries, classes, url) as connection:
            add(connection, tables.runs, [run_row("r-1", "succeeded", 2)])
            by = [(), *((name,) for name in DIMENSIONS), ("month", "run"), ("week", "project", "pool", "user")]
            rows = [(sorted(read_sums(connection, ALL, one)), read_sums(connection, ALL, one, 2)) for one in by]
            counts = [count_groups(connection, ALL, one) for one in by]
            more = [
                sorted(read_families(connection, ALL)),
                read_classes(connection, ALL),
                read_entries(connection, ALL),
            ]
            runs = [sorted(read_costs(connection, ALL, "USD")), read_run_cost(connection, "r-1")]
            found.append((rows, counts, more, runs, read_run_values(connection, ALL, "loss", "low")))
            assert counts == [len(every) for every, _ in rows]
    assert found[0] == found[1]


def test_capacity_that_nobody_used_is_no_held_time_whoever_pays_it() -> None:
    idle = {"run": "", "price": "", "held": 7, "cause": "idle", "rate": 0}
    entries = [
        entry(1, 5, payer=Payer("", pool="h100"), account="idle", **idle),
        entry(2, 3, payer=Payer("red", pool="h100"), account="idle", **idle),
        entry(3, 2, run="", payer=Payer("red"), account="storage", unit="", held=0),
        entry(4, 11, account="platform"),
        entry(5, 13),
    ]
    with ledger_of(entries) as connection:
        ((_, sums),) = read_sums(connection, ALL, ())
        red = read_sums(connection, CostFilter(ALL.first, ALL.last, ["red"]), ())
        none = read_sums(connection, CostFilter(ALL.first, ALL.last, []), ("project",))
    one = Sum((), *sums)
    assert (one.amount, one.platform, one.idle, one.storage) == (34, 11, 8, 2)
    assert one.held == 2 * 3_600_000_000
    assert Sum((), *red[0][1]).amount == 29
    assert none == []


def test_a_success_costs_all_of_its_family_and_failed_attempts_are_a_part_of_it() -> None:
    costs = (("a", 1, 10), ("a", 2, 30), ("b", 1, 5), ("c", 1, 2), ("d", 1, 1))
    entries = [entry(seq, amount, run=run, attempt=number) for seq, (run, number, amount) in enumerate(costs)]
    phases = {"a": ("succeeded", 2), "b": ("failed", 1), "c": ("running", 1)}  # the record of d was removed
    with ledger_of([*entries, entry(9, 7, currency="EUR", run="b")]) as connection:
        add(connection, tables.runs, [run_row(name, phase, tries) for name, (phase, tries) in phases.items()])
        found = family_costs(map(FamilySums._make, read_families(connection, ALL)))
        runs = count_groups(connection, ALL, ("run",))
        largest = read_sums(connection, ALL, ("run",), 2)
    dollars, euros = found
    assert (dollars["amount"], dollars["failed"], dollars["per_success"]) == (48, 15, 48)
    assert (dollars["runs"], dollars["succeeded"]) == (4, 1)
    assert (euros["amount"], euros["per_success"]) == (7, None)
    assert runs == 5  # that of b in two currencies
    assert [keys for keys, _ in largest] == [("a",), ("b",)]


def test_entries_are_read_in_pages_without_gaps() -> None:
    entries = [entry(seq // 3, seq, part=seq % 3) for seq in range(20)]
    with ledger_of(entries) as connection:
        after, found = (-1, -1), list[int]()
        while page := read_entries(connection, ALL, after, 4):
            found += [row["amount"] for row in page]
            after = (page[-1]["seq"], page[-1]["part"])
    assert found == list(range(20))


def test_dimensions_that_there_are_not_are_refused() -> None:
    assert parse_by(" Project, user,project ") == ("project", "user")
    for text in ("projekt", "run;drop", "project,user,queue,kind,pool"):
        with pytest.raises(Invalid):
            parse_by(text)
