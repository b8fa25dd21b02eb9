"""One rank behind: the others wait for it, by the verdict over reported times or by samples of stacks."""

from __future__ import annotations

from statistics import median
from typing import Final

from muster.monitor.diagnose.evidence import Evidence, bounds
from muster.monitor.diagnose.finding import Finding

APART: Final = 0.1  # of the looks: how far the others' waits are above those of the slow rank, beyond chance


def judge(evidence: Evidence) -> Finding | None:
    slow = evidence.slow
    if slow is not None:
        return _finding(evidence, tuple(slow.ranks), slow.lost, 0.9 if slow.sure else 0.4, [slow.message])
    return _by_samples(evidence)


def slowest(evidence: Evidence) -> int | None:
    """The rank that waits least in collectives while all others wait, beyond chance."""
    samples = evidence.samples
    if not evidence.sampled or len(samples.seen) < 2 or len(samples.seen) < evidence.world:
        return None
    waits = {rank: samples.of(rank, "communication") for rank in samples.seen}
    rank = min(waits, key=lambda one: (waits[one], one))
    others = min(waits[one] for one in waits if one != rank)
    least = bounds(others, min(samples.seen.values()))[0]
    return rank if least - bounds(waits[rank], samples.seen[rank])[1] >= APART else None


def _by_samples(evidence: Evidence) -> Finding | None:
    rank, samples = slowest(evidence), evidence.samples
    if rank is None:
        return None
    others = median(samples.of(one, "communication") for one in samples.seen if one != rank)
    own = samples.of(rank, "communication")
    lines = [f"in {others:.0%} of {samples.looks} looks the other ranks wait in a collective, rank {rank} in {own:.0%}"]
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
