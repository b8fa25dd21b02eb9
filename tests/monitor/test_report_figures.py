"""Figures of a report from rows whose answers are known; sums that hold, and words for what is unknown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.core.period import Period, months
from muster.monitor import rollup
from muster.monitor.report.facts import (
    AttemptFact,
    CostFact,
    Facts,
    HeldFact,
    RunFact,
    Terms,
    UseFact,
    WaitFact,
    within,
)
from muster.monitor.report.figure import Figure
from muster.monitor.report.report import figures, make_report, values
from muster.monitor.report.waste import wastes
from muster.monitor.rollup import held
from muster.monitor.time_ledger import CLASSES

HOUR, DAY = 3600, 86_400
NOW = 1_794_998_000.0  # 18 November 2026
SEPTEMBER, OCTOBER, NOVEMBER = months("this", NOW, ZoneInfo("UTC"), 2)
OCT = int(OCTOBER.begin)
TERMS = Terms(
    now=NOW,
    first=0.0,
    whole=True,
    unit="accelerator",
    spot=lambda pool: pool == "spot",
    targets={("single", False): 1800.0, ("single", True): 300.0, ("distributed", False): 1800.0},
)


def run(id: str, at: float = OCT + HOUR, took: float | None = HOUR, **given: Any) -> RunFact:
    ended = at + took if took is not None else None
    made = RunFact(id, "vision", "ada", id, "train", "succeeded", at, ended, None, 1)
    return made._replace(**given)


def hold(id: str, hours: float = 1, day: int = OCT, pool: str = "a100", units: int = 8, **parts: float) -> HeldFact:
    """Hours by class; all of them training unless given."""
    spent = {kind.replace("__", "."): int(value * HOUR * 1e6) for kind, value in (parts or {"training": hours}).items()}
    hours = units * sum(spent.values()) / 1e6 / HOUR
    return HeldFact(day, id, 1, "vision", "accelerator", 1000 * units, 1, pool, hours, spent)


def cost(amount: float, unpriced: float = 0.0) -> CostFact:
    return CostFact(round(amount * 1_000_000), unpriced)


def tried(id: str, number: int, end: float, outcome: str = "failed", code: str = "node_lost") -> AttemptFact:
    return AttemptFact(id, number, end - 100, end, outcome, code if outcome == "failed" else "", "n17")


def used(day: int = OCT, pool: str = "", **values: int) -> UseFact:
    sample = {"used": 6, "there": 10, "out": 1, "free": 3, "usable": 2, **values}
    thousandths = {name: 1000 * value for name, value in sample.items()}
    ((_, bucket),) = held(thousandths, 1000 * day, 1000 * (day + DAY), DAY)
    return UseFact(day, pool, bucket)


def facts(runs: list[RunFact] = [], **given: Any) -> Facts:  # noqa: B006  (never changed)
    return Facts({one.id: one for one in runs}, **given)


def found(of: Facts, period: Period = OCTOBER, terms: Terms = TERMS) -> dict[str, Figure]:
    return {one.name: one for one in figures(within(of, period), terms, period)}


def test_utilisation_counts_what_is_out_of_service_as_provisioned_and_says_so() -> None:
    one = found(facts(use=[used(), used(OCT + DAY, used=8, free=1, usable=1)]))["utilisation"]
    assert one.value == pytest.approx(0.7)
    assert one.met
    assert one.details["provisioned_hours"] == 480
    assert one.details["idle_out_of_service_hours"] == 48
    assert one.details["share_in_service"] == pytest.approx(336 / 432)
    assert one.details["observed_share"] == pytest.approx(2 / 31)
    assert not found(facts(use=[used()]))["utilisation"].met


def test_fragmentation_is_what_no_common_gang_fits_on() -> None:
    assert found(facts(use=[used()]))["fragmentation"].value == pytest.approx(1 / 3)


def test_stranded_accelerators_by_what_is_missing_and_by_pool() -> None:
    sample = {rollup.FREE: 4000, rollup.NO_CPUS: 1500, rollup.NO_MEMORY: 0, rollup.NO_REST: 500}
    (_, bucket), *_ = held(sample, 1000 * OCT, 1000 * OCT + 60_000, rollup.MINUTE)
    shown = found(facts(use=[UseFact(OCT, pool, bucket) for pool in ("a100", rollup.ALL)]))["stranded"]
    assert shown.value == pytest.approx(0.5)
    assert shown.details["lacking_cpus_hours"] == pytest.approx(1.5 / 60)
    assert shown.details["lacking_accelerators_hours"] == pytest.approx(0.5 / 60)
    assert shown.details["hours_in_a100"] == pytest.approx(2 / 60)
    assert found(facts(use=[used()]))["stranded"].value is None  # sampled by an older release


def test_a_part_of_the_projects_says_nothing_of_the_pools() -> None:
    shown = found(facts(use=[used()]), terms=replace(TERMS, whole=False))
    assert shown["utilisation"].value is None
    assert "projects" in shown["utilisation"].unknown
    assert wastes(facts(use=[used(pool="a100")]), replace(TERMS, whole=False)) == []


def test_waits_by_class_against_their_targets() -> None:
    waits = [WaitFact(OCT + n, float(n), "single", False) for n in range(1, 11)]
    waits += [WaitFact(OCT + 5, 400.0, "single", True), WaitFact(OCT - 5, 9e9, "single", False)]
    shown = found(facts(waits=waits))
    assert (shown["wait_single"].value, shown["wait_single"].met) == (9.0, True)
    assert (shown["wait_single_high"].value, shown["wait_single_high"].met) == (400.0, False)
    assert shown["wait_single_high"].details["within_target"] == 0
    assert "wait_distributed" not in shown


def test_success_leaves_errors_of_programs_out_and_states_the_rate_with_them() -> None:
    runs = [run(f"good-{n}") for n in range(6)]
    runs += [run("node", phase="failed"), run("code-1", phase="failed"), run("code-2", phase="failed")]
    runs += [run("stopped", phase="stopped"), run("never", phase="failed", attempts=0), run("later", at=NOVEMBER.begin)]
    attempts = {
        "node": [tried("node", 1, OCT + 9)],
        "code-1": [tried("code-1", 1, OCT + 9, code="user_error")],
        "code-2": [tried("code-2", 1, OCT + 5), tried("code-2", 2, OCT + 9, code="out_of_memory")],
    }
    one = found(facts(runs, attempts=attempts))["success"]
    assert one.value == pytest.approx(6 / 7)
    assert one.met is False
    assert one.details["code_errors"] == 2
    assert one.details["with_code_errors"] == pytest.approx(6 / 9)


def test_recovery_is_from_the_end_of_a_failed_attempt_to_the_next_one_that_runs() -> None:
    attempts = {
        "a": [tried("a", 1, OCT + 1000), tried("a", 2, OCT + 1160, "succeeded")],  # runs at 1060
        "b": [tried("b", 1, OCT + 1000, code="user_error"), tried("b", 2, OCT + 1120)],  # runs at 1020
        "c": [tried("c", 1, OCT - 1000), tried("c", 2, OCT + 5000, "succeeded")],  # failed in September
    }
    shown = found(facts(attempts=attempts, held=[hold("a", 125)]))
    assert shown["recovery"].value == pytest.approx(40.0)
    assert shown["recovery"].details == {"recovered": 2, "failed_attempts": 3}
    assert shown["failures"].value == pytest.approx(2)  # of nodes, in 1,000 hours


def test_experiments_are_runs_of_kind_train_that_are_no_tasks() -> None:
    runs = [run("a", took=2 * HOUR), run("b", user="bob", took=4 * HOUR), run("c", took=None, phase="running")]
    runs += [run("task", parent="a", took=9 * HOUR), run("eval", kind="eval"), run("old", at=OCT - DAY)]
    shown = found(facts(runs))
    assert shown["experiments"].value == pytest.approx(3 / 2 / (31 / 7))
    assert shown["time_to_result"].value == 2 * HOUR
    assert shown["time_to_result"].details["experiments"] == 2


def test_cost_of_an_experiment_has_its_tasks_and_a_family_counts_when_it_succeeded() -> None:
    runs = [run("a", family="gpt"), run("b", family="gpt", phase="failed"), run("c", phase="failed")]
    runs += [run("sweep", kind="sweep"), run("t1", parent="sweep"), run("t2", parent="sweep", phase="failed")]
    held = [hold("a"), hold("b"), hold("c"), hold("t1", pool="spot"), hold("t2", pool="spot"), hold("c", pool="free")]
    costs = {name: cost(16) for name in ("a", "b")} | {"c": cost(16, 8), "t1": cost(8), "t2": cost(8)}
    shown = found(facts(runs, held=held, costs=costs))
    assert shown["experiment_cost"].value == pytest.approx((16 + 16 + 16 + 16) / 4)
    assert shown["experiment_cost"].details["unpriced_hours"] == 8
    assert shown["family_cost"].value == pytest.approx((32 + 16) / 2)  # gpt and the sweep
    assert shown["spot"].value == pytest.approx(16 / 48)


def test_without_accelerators_figures_are_of_cpus() -> None:
    one = hold("a", 3, units=64)._replace(unit="cpu", nodes=2)
    shown = found(facts([run("a")], held=[one]), terms=replace(TERMS, unit="cpu"))
    assert shown["failures"].label == "Failures per 1,000 cpu hours"


def test_effective_training_is_of_runs_that_train() -> None:
    held = [hold("a", training=3, data=0.5, starting__load=0.5), hold("s", 100)]
    shown = found(facts([run("a"), run("s", kind="session")], held=held))
    assert shown["effective"].value == pytest.approx(0.75)


def test_nothing_known_is_said_and_is_never_zero() -> None:
    for of in (facts(), facts([run("a", took=None, phase="queued", attempts=0)])):
        shown = found(of)
        empty = {name for name, one in shown.items() if one.value is None}
        assert empty >= set(shown) - {"experiments"}
        assert all(bool(one.unknown) == (one.value is None) for one in shown.values())
        assert all(one.definition for one in shown.values())
    unpriced = found(facts([run("a")], held=[hold("a")], costs={"a": cost(0, 8)}))
    assert "no price" in unpriced["experiment_cost"].unknown
    assert "no price" in unpriced["family_cost"].unknown


def test_the_trend_has_the_periods_before_and_none_for_times_before_the_server() -> None:
    use = [used(int(SEPTEMBER.begin)), used(), used(int(NOVEMBER.begin), used=8)]
    before = [values(facts(use=use), one, TERMS) for one in (SEPTEMBER, OCTOBER)]
    made = make_report(facts(use=use), NOVEMBER, TERMS, before)
    one = next(each for each in made.figures if each["name"] == "utilisation")
    assert one["before"] == [pytest.approx(0.6)] * 2
    assert one["change"] == pytest.approx(0.2)
    assert values(facts(use=use), OCTOBER, replace(TERMS, first=NOVEMBER.begin)) == {}
    alone = make_report(facts(use=use), NOVEMBER, TERMS, [{}, {}]).figures[0]
    assert alone["before"] == [None, None]
    assert alone["change"] is None


def test_waste_is_named_by_pool_node_project_and_session() -> None:
    runs = [run("a"), run("s", kind="session")]
    held = [hold("a", training=5, data=2, lost=1), hold("s", idle=4)]
    of = facts(runs, held=held, use=[used(pool="a100")], attempts={"a": [tried("a", 1, OCT + 9)]})
    assert [(one.cause, round(one.hours, 6)) for one in wastes(of, TERMS)] == [
        ("No job used pool a100", 72),
        ("Idle sessions in project vision", 32),
        ("Idle nodes out of service in pool a100", 24),
        ("Waits for data in project vision", 16),
        ("Lost to node n17 (node_lost)", 8),
    ]


PARTS = st.dictionaries(st.sampled_from(CLASSES), st.integers(1, 10**10), max_size=5)


@given(rows=st.lists(st.tuples(PARTS, st.integers(1, 64), st.integers(0, 90), st.sampled_from("ab"))))
def test_causes_and_training_add_up_to_what_was_held_in_any_grouping(rows: list[Any]) -> None:
    held = [
        hold(
            name,
            day=int(SEPTEMBER.begin) + day * DAY,
            units=units,
            **{kind.replace(".", "__"): part / 3.6e9 for kind, part in parts.items()},
        )
        for parts, units, day, name in rows
    ]
    of = facts([run("a"), run("b")], held=held)
    parts = [within(of, one) for one in (SEPTEMBER, OCTOBER, NOVEMBER)]
    assert [one for part in parts for one in part.held] == sorted(held, key=lambda one: _period(one.day))
    for part in (of, *parts):
        good = sum(
            one.units * one.parts.get(kind, 0) / 1000 / 1e6 / HOUR
            for one in part.held
            for kind in ("training", "evaluating")
        )
        lost = sum(one.hours for one in wastes(part, TERMS))
        assert good + lost == pytest.approx(sum(one.hours for one in part.held))


def _period(day: int) -> int:
    return sum(day >= one.begin for one in (OCTOBER, NOVEMBER))
