"""Communication: all ranks alike spend a large part of the time in collectives."""

from __future__ import annotations

from math import isfinite
from typing import Final

from muster.monitor.diagnose.evidence import Evidence, bounds
from muster.monitor.diagnose.finding import Finding
from muster.monitor.diagnose.slow_rank import slowest

LEAST: Final = 0.25  # of the time
SETTLED: Final = 90.0  # seconds after which a slow rank would have been told


def judge(evidence: Evidence) -> Finding | None:
    if evidence.world < 2 or evidence.slow is not None or slowest(evidence) is not None:  # then it is that rank
        return None
    share, line = _reported(evidence) or _seen(evidence) or (0.0, "")
    if not line:
        return None
    lines = [line, *(f"its nodes: {one}" for one in evidence.node_findings if "link" in one or "bandwidth" in one)]
    changes = (
        "If the work differs from step to step (long and short samples), make batches of equal work.",
        "Communicate less often: more micro-batches for each step, or larger ones.",
        "Overlap it with the backward pass (DDP and FSDP do so unless the graph is cut), and send gradients as bf16.",
        "Place the gang closer together: `placement: group`, or fewer and larger nodes.",
    )
    text = f"The ranks wait for each other {share:.0%} of the time, and none of them is the slow one: communication."
    return Finding(
        "communication", 0.75, share, text, tuple(lines), changes, ("muster nodes", "muster nodes check NODE")
    )


def _reported(evidence: Evidence) -> tuple[float, str] | None:
    step, wait = evidence.step_seconds, evidence.wait_seconds
    if evidence.loop < SETTLED or not step or wait is None or not isfinite(step) or not isfinite(wait) or step <= 0:
        return None
    share = min(1.0, wait / step)
    return (
        (share, f"a step takes {step:.3g} s, of which it waits {wait:.3g} s for the other ranks")
        if share >= LEAST
        else None
    )


def _seen(evidence: Evidence) -> tuple[float, str] | None:
    samples = evidence.samples
    share = samples.share("communication")
    if not evidence.sampled or len(samples.seen) < evidence.world or bounds(share, samples.looks)[0] < LEAST:
        return None
    where = "; ".join(str(place) for place, _ in samples.places("communication"))
    return share, f"in {share:.0%} of {samples.looks} looks the ranks are in a collective: {where}"
