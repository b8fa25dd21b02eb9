"""What the live state says to Prometheus: jobs, reasons to wait, capacity, nodes and faults, as plain counts.

It is taken between two commits, which wait for it, so it costs little: queued jobs are counted and not visited, except
for a few hundred whose reasons to wait are found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from typing import Final

from muster.control.node_samples import Blind, NodeSamples
from muster.core.entities.alert import ALERTS
from muster.core.entities.node_record import NODE_RECORDS
from muster.core.job import Job
from muster.core.state import State
from muster.monitor.families import OTHER, VALUES_MAX
from muster.monitor.sample import Sampler
from muster.sched.board import Board
from muster.sched.explain import Explainer

EXPLAINED: Final = 500  # queued jobs whose reason to wait is found, the same number of each queue first
UNEXAMINED: Final = "unexamined"
Counts = Mapping[tuple[str, ...], int]  # by the values of labels


@dataclass(frozen=True, slots=True)
class Snapshot:
    version: int
    jobs: Counts  # by queue and phase
    waiting: Counts  # by reason
    nodes: Counts  # by pool and health
    pools: Mapping[str, Mapping[str, int]]  # see `monitor.sample`
    blind: Blind
    faults: dict[tuple[str, str, str], int]  # by node, device and code
    alerts: Counts  # by rule and severity


def take(state: State, board: Board, sampler: Sampler, samples: NodeSamples, now: float) -> Snapshot:
    """`sampler` keeps its counts from one snapshot to the next."""
    return Snapshot(
        state.version,
        bounded(_jobs(state)),
        _waiting(state, board, now),
        bounded(_nodes(state)),
        sampler.sample(state),
        samples.blind(state, now),
        _faults(state),
        bounded(Counter((one.rule, one.severity) for one in ALERTS.all(state).values() if one.resolved_at is None)),
    )


def bounded(counts: Counter[tuple[str, ...]]) -> Counts:
    """The largest ones as they are, and the others together."""
    if len(counts) <= VALUES_MAX:
        return counts
    kept = dict(counts.most_common(VALUES_MAX))
    rest = (OTHER,) * len(next(iter(kept)))
    return {**kept, rest: counts.total() - sum(kept.values())}


def _jobs(state: State) -> Counter[tuple[str, ...]]:
    """An array is not counted beside its tasks."""
    found: Counter[tuple[str, ...]] = Counter()
    for queue, line in state.lines.items():
        if line:
            found[queue, "queued"] = len(line)
    for job_id in chain(state.active, state.seatless):
        job = state.jobs[job_id]
        found[job.queue, job.phase] += 1
    return found


def _waiting(state: State, board: Board, now: float) -> Counts:
    explainer = Explainer.of(state, now, board)
    found: Counter[tuple[str, ...]] = Counter()
    for job in islice(_in_turn(state), EXPLAINED):
        reasons = explainer.explain(job, brief=True)
        found[(reasons[0].code if reasons else UNEXAMINED,)] += 1
    rest = sum(map(len, state.lines.values())) - found.total()
    if rest > 0:
        found[(UNEXAMINED,)] += rest
    return found


def _in_turn(state: State) -> Iterator[Job]:
    """Queued jobs: the first of each queue, then the second of each, and so on."""
    for row in zip_longest(*state.lines.values()):
        yield from (state.jobs[job_id] for job_id in row if job_id is not None)


def _nodes(state: State) -> Counter[tuple[str, ...]]:
    """Without the slots of engines that choose the machines themselves."""
    nodes = (node for node in state.nodes.values() if node.role != "slot")
    return Counter((node.pool, node.health) for node in chain(nodes, state.machines.values()))


def _faults(state: State) -> dict[tuple[str, str, str], int]:
    return {
        (name, *key.split("/", 1)): count  # type: ignore[misc]
        for name, record in NODE_RECORDS.all(state).items()
        for key, count in record.faults.items()
    }
