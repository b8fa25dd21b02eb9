"""Alerts from readings: when they fire and end, over gaps and absence; groups, silences and inhibition."""

from __future__ import annotations

from dataclasses import replace
from math import nan
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from muster.core.entities.alert import Alert, Silence
from muster.monitor.alerts.evaluate import FIRED_MAX, evaluate, subject_doc
from muster.monitor.alerts.figures import Figures
from muster.monitor.alerts.rule import Example, Groups, Reading, Rule, RuleSet, Subject
from muster.monitor.alerts.tell import due, muted
from muster.monitor.alerts.track import Track, advance

NONE = Example((None,))
RULE = Rule("busy", "data_wait", "me", "data-stall", NONE, NONE, above=0.5, hold=60.0, keep=120.0)
RUN = Subject("run", "gpt-1", "gpt", "language", nodes=("n1",))


def look(rules: RuleSet, values: list[tuple[Subject, float]], tracks: Any, alerts: dict[str, Alert], now: float) -> Any:
    readings = {"data_wait": [Reading(subject, value) for subject, value in values]}
    return evaluate(rules, readings, tracks, alerts, lambda subject: True, now)


def alert(rule: str = "busy", subject: Subject = RUN, fired_at: float = 0.0, **more: Any) -> Alert:
    made = Alert(f"{rule} {subject.key}", 1, rule, "warning", subject_doc(subject), 1.0, "", {}, 0.0, fired_at)
    return replace(made, **more)


@given(st.lists(st.tuples(st.floats(1, 30), st.sampled_from([0.9, 0.1, None, nan])), max_size=60))
def test_it_fires_after_its_whole_time_and_ends_after_its_rest(steps: list[tuple[float, float | None]]) -> None:
    """Against the definition: the last `hold` seconds were all met, and so on."""
    track: Track | None = None
    now, since_met, since_unmet, firing = 0.0, None, None, False
    for passed, value in steps:
        now += passed
        met = value == 0.9
        since_met = (now if since_met is None else since_met) if met else None
        since_unmet = None if met else now if since_unmet is None else since_unmet
        if not firing:
            firing = since_met is not None and now - since_met >= RULE.hold
        elif since_unmet is not None and now - since_unmet >= RULE.keep:
            firing = False
        track = advance(RULE, track, value, now)
        assert (track is not None and track.firing) == firing


@given(st.floats(0, 59), st.one_of(st.floats(91, 1e6), st.floats(-1e6, -0.001)))
def test_a_gap_or_a_jump_of_the_clock_never_makes_it_fire(first: float, jump: float) -> None:
    begun = advance(RULE, None, 0.9, 0.0)
    waited = advance(RULE, begun, 0.9, first)
    after = advance(RULE, waited, 0.9, first + jump)
    assert after is not None
    assert not after.firing
    firing = Track(True, 0.0, 100.0, True)
    back = advance(RULE, firing, None, 100.0 + jump)
    assert back is not None
    assert back.firing


def test_an_alert_of_the_state_is_not_fired_again_after_a_restart() -> None:
    rules = RuleSet({"busy": RULE})
    alerts = {"busy run/gpt-1": alert()}
    found = look(rules, [(RUN, 0.9)], {}, alerts, 1000.0)
    assert not found.fired
    assert not found.resolved
    later = look(rules, [(RUN, 0.1)], found.tracks, alerts, 1050.0)
    assert not later.resolved
    end = look(rules, [(RUN, 0.1)], look(rules, [(RUN, 0.1)], later.tracks, alerts, 1100.0).tracks, alerts, 1171.0)
    assert [one.number for one in end.resolved] == [1]


def test_one_whose_end_is_untold_does_not_fire_again_before() -> None:
    rules = RuleSet({"busy": replace(RULE, hold=0.0)})
    ended = {"busy run/gpt-1": alert(told_at=5.0, resolved_at=10.0)}
    assert not look(rules, [(RUN, 0.9)], {}, ended, 20.0).fired
    assert look(rules, [(RUN, 0.9)], {}, {}, 20.0).fired


def test_a_rule_that_is_gone_a_run_that_is_over_and_a_metric_that_stops_end_it() -> None:
    rules, alerts = RuleSet({"busy": RULE}), {"busy run/gpt-1": alert()}
    assert "no longer in force" in look(RuleSet(), [], {}, alerts, 10.0).resolved[0].text
    over = evaluate(rules, {}, {}, alerts, lambda subject: False, 10.0)
    assert over.resolved[0].text == "the run is over"
    silent = look(rules, [], {}, alerts, 10.0)
    assert not silent.resolved
    assert (
        "no value" in look(rules, [], {"busy run/gpt-1": Track(False, 0.0, 90.0, True)}, alerts, 130.0).resolved[0].text
    )


def test_ten_thousand_alerts_fire_over_several_looks_each_once() -> None:
    rules = RuleSet({"busy": replace(RULE, hold=0.0)})
    values = [(replace(RUN, name=f"gpt-{number}"), 0.9) for number in range(10_000)]
    alerts: dict[str, Alert] = {}
    tracks: Any = {}
    looks = 0
    while len(alerts) < len(values):
        found = look(rules, values, tracks, alerts, looks * 5.0)
        assert len(found.fired) == FIRED_MAX
        assert not alerts.keys() & {one.key for one in found.fired}
        alerts |= {one.key: alert(subject=replace(RUN, name=one.subject["name"])) for one in found.fired}
        tracks, looks = found.tracks, looks + 1
    assert looks == 10


def test_scope() -> None:
    scoped = replace(RULE, hold=0.0, scope=replace(RULE.scope, projects=("other",)))
    assert not look(RuleSet({"busy": scoped}), [(RUN, 0.9)], {}, {}, 0.0).fired


# --- telling ----------------------------------------------------------------------------------------------------------
def test_a_group_is_told_once_after_its_wait_then_after_its_interval_then_as_a_repeat() -> None:
    rules = RuleSet({"busy": RULE}, Groups(30.0, 300.0, 14_400.0))
    first = alert()
    assert due(rules, {"a": first}, {}, 29.0) == []
    (notice,) = due(rules, {"a": first}, {}, 30.0)
    assert notice.firing == (first,)
    told = replace(first, told_at=30.0)
    assert due(rules, {"a": told}, {}, 14_429.0) == []
    second = alert(subject=replace(RUN, name="gpt-2"), fired_at=40.0)
    assert due(rules, {"a": told, "b": second}, {}, 329.0) == []
    assert len(due(rules, {"a": told, "b": second}, {}, 330.0)[0].firing) == 2
    assert len(due(rules, {"a": told}, {}, 14_430.0)) == 1


def test_nobody_is_reminded_of_what_somebody_looks_after_and_its_end_is_told() -> None:
    rules = RuleSet({"busy": RULE}, Groups(30.0, 300.0, 14_400.0))
    mine = alert(told_at=30.0, acked_at=60.0, acked_by="ada")
    assert due(rules, {"a": mine}, {}, 99_999.0) == []
    other = alert(subject=replace(RUN, name="gpt-2"), told_at=30.0)
    assert len(due(rules, {"a": mine, "b": other}, {}, 14_430.0)[0].firing) == 2
    assert due(rules, {"a": replace(mine, resolved_at=100.0)}, {}, 101.0)[0].resolved[0].acked_by == "ada"


def test_the_end_is_told_at_once_if_nothing_of_the_group_is_left() -> None:
    rules = RuleSet({"busy": RULE})
    ended = alert(told_at=30.0, resolved_at=50.0)
    assert due(rules, {"a": ended}, {}, 51.0)[0].resolved == (ended,)
    other = alert(subject=replace(RUN, name="gpt-2"), told_at=30.0)
    assert due(rules, {"a": ended, "b": other}, {}, 51.0) == []


def test_groups_are_by_rule_and_project() -> None:
    rules = RuleSet({"busy": RULE}, Groups(0.0))
    others = {
        "a": alert(), "b": alert(subject=replace(RUN, name="x", project="vision")), "c": alert("other"),
    }  # fmt: skip
    assert len(due(rules, others, {}, 1.0)) == 3


def test_a_dead_nodes_twelve_alerts_are_one() -> None:
    rules = RuleSet({"busy": RULE, "node-out": replace(RULE, name="node-out", inhibits=("busy",))})
    node = Subject("node", "n1", pool="main", nodes=("n1",))
    alerts = {f"r{number}": alert(subject=replace(RUN, name=f"gpt-{number}")) for number in range(11)}
    alerts = {one.key: one for one in (*alerts.values(), alert("node-out", node))}
    elsewhere = alert(subject=replace(RUN, name="far", nodes=("n2",)))
    alerts[elsewhere.key] = elsewhere
    quiet = muted(rules, alerts, [], 1.0)
    assert set(alerts) - set(quiet) == {"node-out node/n1", "busy run/far"}
    ended = {**alerts, "node-out node/n1": alert("node-out", node, resolved_at=1.0)}
    assert muted(rules, ended, [], 1.0) == {}


def test_a_silence_covers_what_matches_until_its_time() -> None:
    rules, alerts = RuleSet({"busy": RULE}), {"a": replace(alert(), key="a")}
    for parts in ({}, {"rule": "busy"}, {"run": "gpt-1"}, {"project": "language"}, {"node": "n1"}):
        silence = Silence("s", 10.0, "ada", "maintenance", **parts)  # type: ignore[arg-type]
        assert "ada" in muted(rules, alerts, [silence], 9.0)["a"]
        assert muted(rules, alerts, [silence], 10.0) == {}
    for parts in ({"rule": "x"}, {"run": "gpt-2"}, {"project": "vision"}, {"node": "n2"}):
        assert muted(rules, alerts, [Silence("s", 10.0, "ada", "", **parts)], 9.0) == {}  # type: ignore[arg-type]


# --- figures ----------------------------------------------------------------------------------------------------------
def test_step_times_are_compared_with_the_runs_own_past() -> None:
    figures = Figures()
    steps = list(range(1300))
    times = [0.5 * step if step < 1250 else 625 + 2.0 * (step - 1250) for step in steps]
    figures.take("gpt-1", 1, 0, "loss", (steps[:1250], times[:1250], times[:1250]), 0.0)
    run = figures.of("gpt-1", 1)
    assert run is not None
    assert run.steps.ratio() is None
    figures.take("gpt-1", 1, 0, "loss", (steps[1250:], times[1250:], times[1250:]), 0.0)
    ratio = run.steps.ratio()
    assert ratio is not None
    assert ratio[0] == 4.0


def test_evaluations_count_from_the_best_over_restarts_and_a_nan_is_no_improvement() -> None:
    figures = Figures()
    figures.take("gpt-1", 1, 0, "val_loss", ([1, 2, 3], [0.0] * 3, [3.0, 2.0, 2.5]), 0.0)
    figures.take("gpt-1", 2, 0, "val_loss", ([4, 5], [0.0] * 2, [nan, 2.1]), 0.0)
    figures.take("gpt-1", 1, 0, "val_loss", ([9], [0.0], [0.1]), 0.0)  # late, of an old attempt
    run = figures.of("gpt-1", 2)
    assert run is not None
    assert run.evaluations["val_loss"].since == 3


def test_shares_of_phases_add_up_and_garbage_is_passed_over() -> None:
    figures = Figures()
    docs: list[tuple[int, dict[str, Any]]] = [
        (0, {"type": "phase", "time": 100.0, "name": "training"}),
        (0, {"type": "phase", "time": 130.0, "name": "training", "spent": {"data": 10.0, "saving": "x", "idle": -1}}),
        (0, {"type": "phase", "time": 160.0, "name": "training", "spent": {"data": 20.0}}),
        (0, {"type": "phase", "time": "soon", "name": None}),
        (0, {"type": "progress"}),
    ]
    figures.take_phases("gpt-1", 1, docs)
    run = figures.of("gpt-1", 1)
    assert run is not None
    assert run.phases.shares == {"data": 0.5, "training": 0.5}


def test_a_device_that_is_silent_has_no_figure() -> None:
    figures = Figures()
    figures.take("gpt-1", 1, 3, "system/gpu.1", ([1, 2], [1.0, 2.0], [0.2, 0.4]), 1000.0)
    run = figures.of("gpt-1", 1)
    assert run is not None
    ((which, value),) = run.device("gpu", 1000.0)
    assert which == (3, "1")
    assert abs(value - 0.3) < 1e-9
    assert run.device("gpu", 1061.0) == []
