"""One rank behind: the others wait for it, by the verdict over reported times or by samples of stacks."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Final

from muster.monitor.diagnose.evidence import Evidence, bounds
from muster.monitor.diagnose.finding import Finding
from muster.monitor.diagnose.samples import OWN

APART: Final = 0.1  # of the looks: how far the others' waits are above those of the slow rank, beyond chance


def judge(evidence: Evidence) -> Finding | None:
    slow = evidence.slow
    if slow is not None:
        return _finding(evidence, tuple(slow.ranks), slow.lost, 0.9 if slow.sure else 0.4, [slow.message])
    return _by_samples(evidence)


def slowest(evidence: Evidence) -> int | None:
    """The rank that waits least for the others while all others wait, beyond chance."""
    waits = {rank: _waits(evidence, rank) for rank in evidence.samples.seen}
    return _apart(evidence, {rank: -share for rank, share in waits.items()})


def odd_rank(evidence: Evidence) -> int | None:
    """A rank that is busy outside of its framework while no other is: the others wait for it, or have other work."""
    return _apart(evidence, {rank: evidence.samples.of(rank, *OWN) for rank in evidence.samples.seen})


def _apart(evidence: Evidence, shares: Mapping[int, float]) -> int | None:
    """The rank whose share is above those of all others by more than chance; all ranks must have been seen."""
    if not evidence.sampled or len(shares) < 2 or len(shares) < evidence.world:
        return None
    rank = max(shares, key=lambda one: (shares[one], -one))
    next_one = max(shares[one] for one in shares if one != rank)
    looks = min(evidence.samples.seen.values())
    low, high = sorted((abs(shares[rank]), abs(next_one)))
    return rank if shares[rank] > next_one and bounds(high, looks)[0] - bounds(low, looks)[1] >= APART else None


def _waits(evidence: Evidence, rank: int) -> float:
    """The share of the looks in which a rank waits for others. With devices, a backward pass is asleep anyway."""
    if evidence.has_devices:
        return evidence.samples.of(rank, "communication")
    return evidence.samples.of(rank, "communication", "backward_wait")


def _by_samples(evidence: Evidence) -> Finding | None:
    rank, samples = slowest(evidence), evidence.samples
    if rank is None:
        return None
    others = median(_waits(evidence, one) for one in samples.seen if one != rank)
    own = _waits(evidence, rank)
    lines = [f"in {others:.0%} of {samples.looks} looks the other ranks wait for another one, rank {rank} in {own:.0%}"]
    if (place := samples.usual(rank)) is not None:
        lines.append(f"rank {rank} is most often in {place}")
    return _finding(evidence, (rank,), max(0.0, others - own), 0.8, lines)


def _finding(evidence: Evidence, ranks: tuple[int, ...], lost: float, confidence: float, lines: list[str]) -> Finding:
    named = f"Rank {ranks[0]} is" if len(ranks) == 1 else f"Ranks {', '.join(map(str, ranks[:8]))} are"
    lines += [f"its nodes: {one}" for one in evidence.node_findings]
    changes = (
        f"Look at what rank {ranks[0]} does that the others do not: more data, other work, logging, a shared disk.",
        "If it is the node and not the program, another program is slow there too: drain the node.",
    )
    commands = (f"muster stacks {evidence.job} --rank {ranks[0]}", "muster nodes history NODE")
    text = f"{named} behind: the other ranks wait {lost:.0%} of the time."
    return Finding("slow_rank", confidence, lost, text, tuple(lines), changes, commands)
