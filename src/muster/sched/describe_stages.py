"""The stages of promotion in plain language."""

from __future__ import annotations

from collections.abc import Iterator

from muster.api.words import STAGES
from muster.core.rules import BASELINE, StageRules
from muster.core.units import format_number


def stage_line(name: str, rule: StageRules) -> str:
    """`A run is promoted to large, with at most 64 devices, if it has succeeded, ... and an admin has approved.`"""
    what = f"A model's version gets the stage {name}" if name in STAGES else f"A run is promoted to {name}"
    scale = f", with at most {rule.devices} devices," if rule.devices is not None else ""
    *before, last = ["it has succeeded", *_needs(rule)]
    return f"{what}{scale} if {', '.join(before)}{' and ' if before else ''}{last}."


def _needs(rule: StageRules) -> Iterator[str]:
    if rule.after is not None:
        yield f"it has reached {rule.after}"
    if rule.certificate is not None:
        yield f"it has the certificate of {rule.certificate}"
    if rule.metric is not None:
        metric = rule.metric
        other = "the project's baseline" if metric.better_than == BASELINE else metric.better_than
        seeds = f" over {metric.seeds} seeds" if metric.seeds > 1 else ""
        yield f"its {metric.name} is {'lower' if metric.goal == 'min' else 'higher'} than that of {other}{seeds}"
    if rule.cost_at_most is not None:
        yield f"it has cost at most {format_number(rule.cost_at_most)}"
    if rule.efficiency is not None:
        need = rule.efficiency
        share = format_number(100 * need.at_least)
        by = f" by {need.metric}" if need.metric is not None else ""
        yield f"each of {need.devices} devices does {share} % of what one does at the smallest scale{by}"
    if rule.reviewer is not None:
        yield f"{'an admin' if rule.reviewer == 'admin' else 'a member'} other than its author has approved"
