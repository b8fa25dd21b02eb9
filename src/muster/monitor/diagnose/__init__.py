"""Why a run is slow, idle, stuck or not learning: judges over evidence, each for one cause. Pure.

A judge returns a finding, or None where its cause is not there or not known. A wrong cause is worse than none: what is
below `SAID` of confidence is not told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from muster.api.diagnosis import Outcome
from muster.monitor.diagnose import (
    communication,
    devices,
    divergence,
    loader,
    saving,
    slow_rank,
    synchronisation,
    waits,
)
from muster.monitor.diagnose.evidence import LOOKS_LEAST, LOOP_LEAST, Evidence
from muster.monitor.diagnose.finding import SAID, Cause, Finding, Judge

JUDGES: Final[Mapping[Cause, Judge]] = {
    "hang": waits.hang,
    "divergence": divergence.judge,
    "slow_rank": slow_rank.judge,
    "loader": loader.judge,
    "saving": saving.judge,
    "synchronisation": synchronisation.judge,
    "communication": communication.judge,
    "thermal": devices.thermal,
    "precision": devices.precision,
    "small_batch": devices.small_batch,
    "waiting": waits.waiting,
}


def diagnose(evidence: Evidence) -> list[Finding]:
    """What was found, the cause that explains most of the time first."""
    found = [finding for judge in JUDGES.values() if (finding := judge(evidence)) is not None]
    # Programs may report figures that can't be: a share is one all the same.
    told = [replace(one, share=min(1.0, max(0.0, one.share))) for one in found if one.confidence >= SAID]
    return sorted(told, key=lambda one: -one.share)


def outcome(evidence: Evidence, findings: list[Finding]) -> Outcome:
    """Healthy only if enough is known to see a fault, no rank does what the others don't, and the devices work."""
    if findings:
        return "found"
    healthy = evidence.told and slow_rank.odd_rank(evidence) is None and not _idle(evidence)
    return "healthy" if healthy else "unknown"


def verdict(evidence: Evidence, findings: list[Finding]) -> str:
    """The first line of the page."""
    if findings:
        return findings[0].text
    if outcome(evidence, findings) == "healthy":
        return "Healthy: no cause of lost time stands out."
    if _idle(evidence):
        return (
            f"Don't know: its devices are in use {evidence.device_use:.0%} of the time, and no cause that is known "
            "explains the rest."
        )
    return "Don't know: too little is known of this run to say."


def _idle(evidence: Evidence) -> bool:
    """Whether devices are idle for a part of the time that has to have a cause."""
    return evidence.accelerators > 0 and evidence.device_use is not None and evidence.device_use < devices.IDLE


def looked_at(evidence: Evidence) -> list[str]:
    """What the verdict rests on."""
    lines = []
    if evidence.stated and evidence.loop:
        parts = {kind: evidence.share(kind) for kind in ("data", "saving", "evaluating")}
        told = ", ".join(f"{kind} {share:.0%}" for kind, share in parts.items() if share is not None)
        lines.append(f"phases that the program states, over {evidence.loop:,.0f} s: {told or 'too short to judge'}")
    if evidence.samples.looks:
        ranks = len(evidence.samples.seen)
        span = f"{evidence.samples.looks} looks in {evidence.samples.seconds:,.0f} s"
        lines.append(f"{span} at the stacks of {ranks} of {evidence.world} ranks")
    if (use := evidence.device_use) is not None:
        lines.append(f"devices in use {use:.0%} of the time")
    for series in (evidence.losses, evidence.norms):
        if series is not None and series.steps:
            lines.append(f"{len(series.steps):,} values of {series.name}")
    if evidence.saves:
        lines.append(f"{len(evidence.saves)} checkpoints")
    return lines


def missing(evidence: Evidence) -> list[str]:
    """What would have to be known to say more."""
    lines = []
    if "data" not in evidence.stated:
        lines.append('waits for data: state them with `runtime.phase("data")`, or use `muster.train`')
    elif evidence.loop < LOOP_LEAST:
        lines.append(f"shares of time: it has trained for less than {LOOP_LEAST:g} s")
    if not evidence.sampled:
        when = f"`muster diagnose {evidence.job}` takes them" if evidence.running else "they are taken while it runs"
        lines.append(f"stacks: {evidence.samples.looks} looks of at least {LOOKS_LEAST}; {when}")
    if evidence.accelerators and evidence.device_use is None:
        lines.append("use of its devices: no driver answered on its nodes, or the run was too short")
    if (rank := slow_rank.odd_rank(evidence)) is not None:
        place = f" in {evidence.samples.usual(rank)}"
        lines.append(f'rank {rank} is busy{place} and the others are not; state waits with `runtime.phase("waiting")`')
    if not evidence.norms:
        lines.append("the gradient norm: report it as `grad_norm`")
    return lines
