"""The judge: what holds, what does not, and that no better evidence ever makes a promotion harder."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.core.promotion import Approval, Evidence, Need, SeedValue, judge, missing
from muster.core.rules import EfficiencyNeed, MetricNeed, StageRules
from muster.core.scaling import scaling

RULES = StageRules(
    after="medium", devices=64, certificate="canary", metric=MetricNeed(name="val_loss", seeds=3), cost_at_most=200,
    efficiency=EfficiencyNeed(devices=2, at_least=0.8), reviewer="admin",
)  # fmt: skip
MINE = tuple(SeedValue(f"gpt-{i}", 2.0 + i / 100) for i in range(3))
BASE = tuple(SeedValue(f"base-{i}", 3.0 + i / 100) for i in range(3))
GOOD = Evidence(
    run="gpt-0", author="ada", phase="succeeded", stages=frozenset({"medium"}), certificate=(True, "c-1"),
    baseline="base-0", values=MINE, against=BASE, costs={"USD": 150_000_000}, currency="USD",
    scaling=scaling({1: [100.0], 2: [180.0], 4: [240.0]}), approvals=(Approval("bob", "admin", 1.0),),
)  # fmt: skip
NAMES = ["run", "stage", "certificate", "metric", "cost", "efficiency", "reviewer"]


def lacking(evidence: Evidence, rules: StageRules = RULES) -> list[str]:
    return [one.name for one in missing(judge("large", rules, evidence))]


def found(evidence: Evidence, name: str) -> Need:
    return next(one for one in judge("large", RULES, evidence) if one.name == name)


def test_all_holds():
    assert lacking(GOOD) == []
    assert [one.name for one in judge("large", RULES, GOOD)] == NAMES
    assert not any(one.command for one in judge("large", RULES, GOOD))


def test_nothing_holds_and_each_has_its_command():
    needs = judge("large", RULES, Evidence("gpt-0", "ada", "failed", priced=False))
    assert [one.name for one in missing(needs)] == NAMES
    assert all(one.command.startswith("muster ") for one in needs)


def test_a_stage_that_asks_for_nothing_wants_a_run_that_succeeded():
    assert lacking(replace(GOOD, certificate=(False, "")), StageRules()) == []
    assert lacking(replace(GOOD, phase="running"), StageRules()) == ["run"]
    assert lacking(replace(GOOD, valid=False), StageRules()) == ["run"]


def values(*numbers: float | None) -> tuple[SeedValue, ...]:
    return tuple(SeedValue(f"gpt-{i}", one) for i, one in enumerate(numbers))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"values": values(2.0, 2.1)}, "2 of 3 seeds"),
        ({"against": BASE[:1]}, "the baseline base-0 ran with 1 of 3 seeds"),
        ({"values": values(2.0, float("nan"), 2.1)}, "gpt-1: no finite val_loss"),
        ({"values": values(2.0, None, 2.1)}, "gpt-1: no finite val_loss"),
        ({"values": values(2.0, float("-inf"), 2.1)}, "gpt-1: no finite val_loss"),
        ({"values": values(4.0, 4.1, 4.2)}, "against"),
        ({"values": values(1.0, 3.0, 4.9)}, "p = "),  # better on average, by chance
        ({"baseline": ""}, "no baseline is named"),
        ({"against": MINE}, "it is the baseline itself"),
    ],
)
def test_a_metric_that_shows_nothing_does_not_hold(changed: dict[str, object], told: str):
    need = found(replace(GOOD, **changed), "metric")  # type: ignore[arg-type]
    assert not need.holds
    assert told in need.found
    assert need.command


def test_a_metric_may_be_better_when_it_is_higher_or_without_noise():
    higher = RULES.model_copy(update={"metric": MetricNeed(name="acc", goal="max", seeds=3)})
    assert lacking(GOOD, higher) == ["metric"]
    assert lacking(replace(GOOD, values=BASE, against=MINE), higher) == ["metric"]  # `gpt-0` is among the others
    swapped = replace(GOOD, values=values(4.0, 4.1, 4.2))
    assert lacking(swapped, higher) == []
    still = replace(GOOD, values=values(2.0, 2.0, 2.0), against=tuple(replace(one, value=3.0) for one in BASE))
    assert lacking(still) == []


def test_what_is_not_known_of_the_cost_is_not_cheap():
    assert not found(replace(GOOD, costs={}, priced=False), "cost").holds
    assert not found(replace(GOOD, costs={"USD": 1, "EUR": 1}), "cost").holds
    assert not found(replace(GOOD, costs={"USD": 200_000_001}), "cost").holds
    assert found(replace(GOOD, costs={"USD": 200_000_000}), "cost").holds


def test_efficiency_is_measured_at_the_scale_or_the_next_larger_one():
    assert found(GOOD, "efficiency").found == "90% (2 devices 1.8×, 4 devices 2.4×: adding stops paying at 4)"
    assert not found(replace(GOOD, scaling=scaling({1: [1.0], 4: [2.4]})), "efficiency").holds
    assert not found(replace(GOOD, scaling=scaling({1: [1.0]})), "efficiency").holds
    assert not found(replace(GOOD, scaling=scaling({4: [1.0]})), "efficiency").holds
    assert not found(replace(GOOD, scaling=None), "efficiency").holds


@pytest.mark.parametrize(
    ("approvals", "holds"),
    [
        ((), False),
        ((Approval("ada", "admin", 1.0),), False),  # the author
        ((Approval("bob", "member", 1.0),), False),
        ((Approval("bob", None, 1.0),), False),  # has left the project since
        ((Approval("bob", None, 1.0), Approval("eve", "admin", 2.0)), True),
    ],
)
def test_a_reviewer_is_somebody_else_with_the_role_now(approvals: tuple[Approval, ...], holds: bool):
    assert found(replace(GOOD, approvals=approvals), "reviewer").holds is holds


@given(st.sets(st.sampled_from(NAMES)))
def test_each_need_stands_for_itself(broken: set[str]):
    worse = {
        "run": {"phase": "failed"}, "stage": {"stages": frozenset()}, "certificate": {"certificate": (False, "none")},
        "metric": {"values": ()}, "cost": {"priced": False}, "efficiency": {"scaling": None},
        "reviewer": {"approvals": ()},
    }  # fmt: skip
    changes = {key: value for name in broken for key, value in worse[name].items()}
    assert set(lacking(replace(GOOD, **changes))) == broken  # type: ignore[arg-type]


@given(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=6), st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=6))
def test_of_two_sides_at_most_one_is_better(first: list[float], second: list[float]):
    one = replace(GOOD, values=values(*first), against=tuple(SeedValue(f"b-{i}", v) for i, v in enumerate(second)))
    other = replace(GOOD, values=values(*second), against=tuple(SeedValue(f"b-{i}", v) for i, v in enumerate(first)))
    assert not (found(one, "metric").holds and found(other, "metric").holds)
