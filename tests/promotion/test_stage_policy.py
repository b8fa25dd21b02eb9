"""Stages in a policy file: what they may say, what contradicts itself, and how they read in plain language."""

from __future__ import annotations

import pytest

from muster.core.errors import SpecError
from muster.core.policy_file import parse_rules
from muster.core.rules import Rules
from muster.sched.describe import describe

POLICY = """
promotion:
  medium: {devices: 8, metric: {name: val_loss, seeds: 3}, cost_at_most: 200, efficiency: {devices: 2, at_least: 0.8}}
  large: {after: medium, devices: 64, certificate: canary, reviewer: admin}
  production: {reviewer: admin}
projects: {default: {baseline: gpt-12}}
"""


def parse(text: str) -> Rules:
    return parse_rules(text, orders=["predicted"])


def test_stages_read_in_plain_language():
    lines = [line for section in describe(parse(POLICY), []) for line in section.lines]
    assert (
        "A run is promoted to large, with at most 64 devices, if it has succeeded, it has reached medium, it has the "
        "certificate of canary and an admin other than its author has approved."
    ) in lines
    assert any(
        line.startswith("A run is promoted to medium, with at most 8 devices, if it has succeeded, its val_loss is")
        for line in lines
    )
    assert (
        "A model's version gets the stage production if it has succeeded and an admin other than its author has "
        "approved."
    ) in lines


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("promotion: {large: {after: medium}}", "promotion.large.after"),
        ("promotion: {large: {after: large}}", "promotion.large.after"),
        ("promotion: {a: {after: b}, b: {after: a}}", "promotion.a.after"),
        ("promotion: {a: {devices: 8}, b: {after: a, devices: 4}}", "at least 8, as a has"),
        ("promotion: {production: {devices: 8}}", "it is a stage of models"),
        ("promotion: {archived: {}}", "another name"),
        ("promotion: {large: {metric: val_loss}}", "a project that names its baseline"),
        ("promotion: {large: {metric: {name: x, better_than: gpt-1, seeds: 0}}}", "from 1 to 100"),
        ("promotion: {large: {reviewer: lead}}", "`member`, `admin`, or `none`"),
        ("promotion: {large: {certificate: gold}}", "promotion.large.certificate"),
        ("promotion: {large: {efficiency: {devices: 1}}}", "from 2 on"),
        ("promotion: {large: {cost_at_most: -1}}", "promotion.large.cost_at_most"),
        ("promotion: {large: {cost_at_most: nan}}", "promotion.large.cost_at_most"),
        ("promotion: {large: {stages: 1}}", "promotion.large.stages"),
    ],
)
def test_what_contradicts_itself_is_told_with_its_place(text: str, told: str):
    with pytest.raises(SpecError) as error:
        parse(text)
    assert told in str(error.value)
