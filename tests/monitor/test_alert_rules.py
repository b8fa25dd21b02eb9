"""Files of alert rules: the defaults, changes to them, and every mistake at once; runbooks."""

from __future__ import annotations

import re
from typing import Any

import pytest

from muster.core.errors import SpecError
from muster.monitor.alerts.rule_file import default_rules, parse_alert_rules
from muster.monitor.alerts.runbooks import fill, runbooks
from muster.monitor.alerts.signals import SIGNALS
from muster.monitor.alerts.track import fires

OWN: dict[str, Any] = {
    "signal": "data_wait",
    "above": "30%",
    "for": "10m",
    "owner": "vision",
    "runbook": "data-stall",
    "examples": {"fires": "50% x12", "quiet": "10% x12"},
}


def problems(given: Any) -> list[str]:
    with pytest.raises(SpecError) as caught:
        parse_alert_rules(given, receivers=["ops"])
    return [problem.where for problem in caught.value.problems]


def test_every_default_rule_has_an_owner_a_runbook_and_examples_that_hold() -> None:
    rules = default_rules().rules
    assert len(rules) >= 20
    for rule in rules.values():
        assert rule.owner
        assert rule.runbook in runbooks()
        assert fires(rule, rule.fires)
        assert not fires(rule, rule.quiet)
        assert set(rule.inhibits) <= set(rules)


def test_every_signal_is_used_by_a_default_rule() -> None:
    assert {rule.signal for rule in default_rules().rules.values()} == set(SIGNALS)


def test_a_file_changes_adds_and_switches_off() -> None:
    given = {"rules": {"device-idle": {"below": "40%"}, "hang": {"enabled": "no"}, "own": OWN}}
    found = parse_alert_rules(given).rules
    assert found["device-idle"].below == 0.4
    assert found["device-idle"].hold == 600
    assert "hang" not in found
    assert found["own"].above == 0.3
    assert parse_alert_rules("groups: {wait: 1m}").groups.wait == 60


def test_five_mistakes_get_five_errors() -> None:
    wrong = {**OWN, "signal": "data_wayt", "for": "soon", "runbook": "no-such", "owner": "", "colour": "red"}
    assert problems({"rules": {"own": wrong}}) == [
        "rules.own.colour", "rules.own.signal", "rules.own.for", "rules.own.owner", "rules.own.runbook",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"examples": None}, "rules.own.examples"),
        ({"examples": {"fires": "10% x12", "quiet": "10% x12"}}, "rules.own.examples.fires"),
        ({"examples": {"fires": "50% x12", "quiet": "50% x12"}}, "rules.own.examples.quiet"),
        ({"examples": {"fires": "50% x99999999", "quiet": "1%"}}, "rules.own.examples.fires"),
        ({"below": "10%"}, "rules.own"),
        ({"above": None}, "rules.own"),
        ({"notify": ["nobody"]}, "rules.own.notify"),
        ({"inhibits": ["nothing"]}, "rules.own.inhibits"),
        ({"action": "explode"}, "rules.own.action.do"),
        ({"action": {"do": "stop", "limit": 0}}, "rules.own.action.limit"),
        ({"signal": "server_disk", "action": "stop"}, "rules.own.action"),
        ({"severity": "loud"}, "rules.own.severity"),
        ({"scope": {"project": "a"}}, "rules.own.scope.project"),
        ({"runbook": "ftp://host/x"}, "rules.own.runbook"),
        ({"above": "much"}, "rules.own.above"),
    ],
)
def test_a_mistake_is_named_where_it_is(change: dict[str, Any], where: str) -> None:
    assert problems({"rules": {"own": {**OWN, **change}}}) == [where]


@pytest.mark.parametrize("text", ["", "rules: 3", "rules: {a: 3}", "- x", "rules: {device-idle: {inhibits: {a: 1}}}"])
def test_other_shapes_are_refused(text: str) -> None:
    assert problems(text)


def test_rules_that_inhibit_each_other_are_refused() -> None:
    given = {"rules": {"a": {**OWN, "inhibits": ["b"]}, "b": {**OWN, "inhibits": ["a"]}}}
    assert problems(given) == ["rules.a.inhibits", "rules.b.inhibits"]


def test_a_runbook_names_what_to_look_at_and_what_to_do() -> None:
    for name, text in runbooks().items():
        assert all(part in text for part in ("# ", "## Look", "## Do")), name


def test_the_blanks_of_a_runbook_are_filled_and_others_stay() -> None:
    assert fill("{run} on {node}: {value}", {"run": "gpt-1", "value": 0, "node": ""}) == "gpt-1 on {node}: 0"


def test_runbooks_use_blanks_that_signals_fill() -> None:
    known = {"run", "title", "value", "threshold", "node", "nodes", "project", "queue", "pool"}
    known |= {
        "lowest_rank", "lowest", "rank", "device", "seconds", "own", "metric", "best", "best_step", "last", "step",
        "why", "failed", "ended", "health", "programs", "budget", "used", "limit", "left", "forecast", "period",
        "mode", "hourly", "usual", "currency",
    }  # fmt: skip
    used = {blank for text in runbooks().values() for blank in re.findall(r"\{([a-z_]+)\}", text)}
    assert used <= known
