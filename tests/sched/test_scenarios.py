"""Scenarios in YAML: a cluster, rules, what happens to it, and the one sequence of events that must follow.

A file in `scenarios/` says, with times in seconds:

    about      what it shows, in a sentence
    nodes      name → accelerators, CPUs (64), pool (main), and labels
    pools      beside `main`: name → whether spot
    queues     beside `default`: name → project
    rules      a policy file's contents
    past       [how many, details]: jobs that ran before all else, one after the other; all that is told comes later
    leave      how long a gang takes to leave (all of its grace)
    happens    [time, submit | drain | heal | lose | join | fail | save | stop, name, details]
    expected   [time, event, name, detail], of `starts`, `stopping`, `queued`, `succeeded`, `stopped`, `failed`
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import unified_diff
from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.core.policy_file import parse_rules
from muster.sched.policies import POLICIES
from scheduler_kit import SchedulerLoop
from streams import board_agrees, limits_hold, plan_is_sound

FOLDER = Path(__file__).parent / "scenarios"
SHOWN = {"starts", "stopping", "queued", "succeeded", "stopped", "failed"}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    scenario = yaml.safe_load(path.read_text())
    loop = build(scenario)
    loop.run(until=scenario.get("until"))
    expected = [line(*entry) for entry in scenario["expected"]]
    happened = [line(*entry) for entry in loop.told if entry[1] in SHOWN]
    if happened != expected:
        diff = unified_diff(expected, happened, "expected", "happened", lineterm="", n=100)
        pytest.fail(f"{scenario['about']}\n" + "\n".join(diff), pytrace=False)


def test_there_are_scenarios() -> None:
    assert len(list(FOLDER.glob("*.yaml"))) >= 12


def build(scenario: dict[str, Any]) -> SchedulerLoop:
    rules = parse_rules(yaml.safe_dump(scenario.get("rules", {})), orders=POLICIES)
    loop = SchedulerLoop(
        rules,
        {"default": "default", **scenario.get("queues", {})},
        {"main": False, **scenario.get("pools", {})},
        leave=scenario.get("leave"),
        checks=[plan_is_sound, limits_hold, board_agrees],
    )
    for name, node in scenario["nodes"].items():
        loop.node(name, **node)
    for count, details in scenario.get("past", ()):
        for _ in range(count):
            loop.submit(f"past-{len(loop.specs)}", **details)
            loop.run()
    loop.told.clear()
    for at, what, name, *details in scenario["happens"]:
        loop.after(at - loop.now, action(loop, scenario, what, name, dict(*details)))
    return loop


def action(
    loop: SchedulerLoop, scenario: dict[str, Any], what: str, name: str, details: dict[str, Any]
) -> Callable[[], None]:
    known: dict[str, Callable[[], object]] = {
        "submit": lambda: loop.submit(name, **details),
        "drain": lambda: loop.health(name, "draining"),
        "heal": lambda: loop.health(name, "healthy"),
        "lose": lambda: loop.lose(name, **details),
        "join": lambda: loop.node(name, **scenario["nodes"][name]),
        "fail": lambda: loop.fail(name, **details),
        "save": lambda: loop.checkpoint(name),
        "stop": lambda: loop.stop(name, **details),
    }
    do = known[what]
    return lambda: (do(), None)[1]


def line(at: float, what: str, name: str, detail: str = "") -> str:
    return f"{at:>8g}  {what:<10} {name:<12} {detail}".rstrip()
