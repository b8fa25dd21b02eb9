"""Judges whether a run may be promoted to a stage: what the policy asks for, what was found, and how to get the rest.

A function of the stage's rules and of evidence that others gathered; it looks at nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from muster.api.words import Role
from muster.core.entities.project import at_least
from muster.core.money import format_amount
from muster.core.reasons import Reason, reason
from muster.core.rules import EfficiencyNeed, MetricNeed, StageRules
from muster.core.scaling import Scaling
from muster.core.significance import estimate, welch

LEVEL: Final = 0.05  # the chance of taking noise for a difference
_NAMED: Final = 3  # runs that a text names


@dataclass(frozen=True, slots=True)
class Need:
    """One thing that the stage asks for. `command`: what gets it, if it does not hold."""

    name: str
    holds: bool
    expected: str
    found: str
    command: str = ""


@dataclass(frozen=True, slots=True)
class SeedValue:
    """The metric of a run that differs from the others in its seed alone; None if it reported none."""

    run: str
    value: float | None


@dataclass(frozen=True, slots=True)
class Approval:
    user: str
    role: Role | None  # that the user has in the project now
    time: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of a run. `certificate`: whether it has the one that the stage asks for, and what was found."""

    run: str
    author: str
    phase: str
    valid: bool = True
    stages: frozenset[str] = frozenset()  # that it was promoted to
    certificate: tuple[bool, str] = (False, "none")
    baseline: str = ""  # the run that it is compared with
    values: tuple[SeedValue, ...] = ()
    against: tuple[SeedValue, ...] = ()  # of the baseline
    failed: int = 0  # runs with other seeds, of both, that did not succeed and are not among the values
    costs: Mapping[str, int] = field(default_factory=dict)  # currency → millionths
    priced: bool = True  # whether all of it has a price
    currency: str = ""  # of the price book
    scaling: Scaling | None = None
    approvals: tuple[Approval, ...] = ()


def judge(stage: str, rules: StageRules, evidence: Evidence) -> list[Need]:
    """Everything that the stage asks for, in the order in which one gets it."""
    needs = [_finished(evidence)]
    if rules.after is not None:
        needs.append(_after(rules.after, evidence))
    if rules.certificate is not None:
        needs.append(_certificate(rules.certificate, evidence))
    if rules.metric is not None:
        needs.append(_metric(rules.metric, evidence))
    if rules.cost_at_most is not None:
        needs.append(_cost(rules.cost_at_most, evidence))
    if rules.efficiency is not None:
        needs.append(_efficiency(rules.efficiency, evidence))
    if rules.reviewer is not None:
        needs.append(_reviewer(stage, rules.reviewer, evidence))
    return needs


def _finished(evidence: Evidence) -> Need:
    holds = evidence.phase == "succeeded" and evidence.valid
    found = evidence.phase if evidence.valid else f"{evidence.phase}, and marked invalid"
    return Need("run", holds, "succeeded and valid", found, "" if holds else f"muster why {evidence.run}")


def _after(stage: str, evidence: Evidence) -> Need:
    holds = stage in evidence.stages
    found = ", ".join(sorted(evidence.stages)) or "no stage"
    command = f"muster promote {evidence.run} --to {stage}  # then promote the run that this makes"
    return Need("stage", holds, f"reached {stage}", found, "" if holds else command)


def _certificate(rung: str, evidence: Evidence) -> Need:
    holds, found = evidence.certificate
    return Need("certificate", holds, rung, found, "" if holds else f"muster preflight JOB_FILE --level {rung}")


def _metric(need: MetricNeed, evidence: Evidence) -> Need:
    way = "lower" if need.goal == "min" else "higher"
    seeds = f" over {need.seeds} seeds" if need.seeds > 1 else ""
    expected = f"{need.name} {way} than {need.better_than}{seeds}"

    def no(found: str, command: str) -> Need:
        return Need("metric", False, expected, found, command)

    if not evidence.baseline:
        return no("no baseline is named", "muster queue apply POLICY  # projects: {NAME: {baseline: RUN}}")
    if any(one.run == evidence.run for one in evidence.against):
        return no("it is the baseline itself", f"muster compare {evidence.run} OTHER")
    for side in (evidence.values, evidence.against):
        bad = [one.run for one in side if one.value is None or not math.isfinite(one.value)]
        if bad:
            more = f" and {len(bad) - _NAMED} more" if len(bad) > _NAMED else ""
            named = f"{', '.join(bad[:_NAMED])}{more}"
            return no(f"{named}: no finite {need.name}", f"muster runs show {bad[0]}")
        if len(side) < need.seeds:
            which = evidence.run if side is evidence.values else f"the baseline {evidence.baseline}"
            again = evidence.run if side is evidence.values else evidence.baseline
            command = f"muster runs reproduce {again}  # with another seed"
            return no(f"{which} ran with {len(side)} of {need.seeds} seeds", command)
    return _compared(need, evidence, expected)


def _compared(need: MetricNeed, evidence: Evidence, expected: str) -> Need:
    mine, theirs = (
        [one.value for one in side if one.value is not None] for side in (evidence.values, evidence.against)
    )
    first, second, test = estimate(mine), estimate(theirs), welch(mine, theirs)
    assert first.mean is not None
    assert second.mean is not None
    better = first.mean < second.mean if need.goal == "min" else first.mean > second.mean
    # One seed, or values that never vary, leave nothing to test: then the values themselves count.
    sure = test.p is None or test.p <= LEVEL
    chance = f", p = {test.p:.2g}" if test.p is not None else ", no test: the values do not vary or there is one"
    found = f"{_spread(first.mean, first.deviation)} against {_spread(second.mean, second.deviation)}{chance}"
    found += f"; {evidence.failed} more did not succeed" if evidence.failed else ""
    command = f"muster compare {evidence.run} {evidence.baseline} --metric {need.name}"
    return Need("metric", better and sure, expected, found, "" if better and sure else command)


def _cost(limit: float, evidence: Evidence) -> Need:
    expected = f"at most {limit:g} {evidence.currency}".rstrip()
    others = sorted(set(evidence.costs) - {evidence.currency})
    command = f"muster cost explain --run {evidence.run}"
    if not evidence.priced or others:
        found = f"a part is in {', '.join(others)}" if others else "not known: there were no prices"
        return Need("cost", False, expected, found, "muster cost prices" if not others else command)
    spent = evidence.costs.get(evidence.currency, 0)
    holds = spent <= round(limit * 1_000_000)
    return Need("cost", holds, expected, format_amount(spent, evidence.currency), "" if holds else command)


def _efficiency(need: EfficiencyNeed, evidence: Evidence) -> Need:
    expected = f"{need.at_least:.0%} at {need.devices} devices or more"
    command = f"muster submit JOB_FILE -o num_nodes={need.devices}  # the same job at another scale"
    found = evidence.scaling
    point = found.at(need.devices) if found is not None else None
    if found is None or point is None or point is found.points[0]:
        told = found.text() if found is not None else "no throughput was reported"
        return Need("efficiency", False, expected, told, command)
    holds = point.efficiency >= need.at_least
    return Need("efficiency", holds, expected, f"{point.efficiency:.0%} ({found.text()})", "" if holds else command)


def _reviewer(stage: str, role: Role, evidence: Evidence) -> Need:
    good = [one for one in evidence.approvals if one.user != evidence.author and at_least(one.role, role)]
    others = [one.user for one in evidence.approvals if one not in good]
    found = f"{good[-1].user}" if good else f"not counted: {', '.join(others)}" if others else "nobody yet"
    command = f"muster promote ask {evidence.run} --to {stage} --why ..."
    return Need("reviewer", bool(good), f"a {role} other than {evidence.author}", found, "" if good else command)


def _spread(mean: float, deviation: float | None) -> str:
    return f"{mean:.5g} ± {deviation:.2g}" if deviation is not None else f"{mean:.5g}"


def missing(needs: Sequence[Need]) -> list[Need]:
    """Those that do not hold."""
    return [need for need in needs if not need.holds]


def against(need: Need) -> Reason:
    """The refusal for a need that does not hold."""
    hint = f"`{need.command}`" if need.command else ""
    return reason("not_ready", f"{need.name}: {need.expected} is asked for, and found is: {need.found}", hint)
