"""What benchmarks over traces share: where traces are, a replay with its time, and a first-come-first-served loop."""

from __future__ import annotations

import heapq
import time
from argparse import ArgumentParser
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from muster.sim.cluster import ClusterFile, Layout, cluster_file_of, read_cluster
from muster.sim.model import Costs, Result, Setup, TraceJob
from muster.sim.presets import PRESETS
from muster.sim.run import replay
from muster.sim.summary import Summary, summarise
from muster.sim.traces import read_trace
from muster.sim.traces.base import Options

TRACES = Path(__file__).parent.parent.parent / "shared" / "traces"


@dataclass(frozen=True)
class Workload:
    jobs: list[TraceJob]
    cluster: ClusterFile


@dataclass(frozen=True)
class Timed:
    result: Result
    summary: Summary
    wall: float  # seconds
    cpu: float

    def figures(self) -> dict[str, object]:
        """What every replay says of itself."""
        found, queueing = self.summary, self.summary.queueing
        return {
            "completion_s": rounded(found.completion.mean),
            "queueing_s": rounded(queueing.mean),
            "queueing_p99_s": rounded(queueing.p99),
            "queueing_p999_s": rounded(queueing.p999),
            "preemptions": found.preemptions,
            "unfinished": found.unfinished + found.refused,
            "ticks": found.rounds,
            "wall_s": round(self.wall, 2),
            "cpu_s": round(self.cpu, 2),
        }


def take_traces(parser: ArgumentParser) -> None:
    parser.add_argument("--traces", type=Path, default=TRACES, help="the folder of the traces")
    parser.add_argument("--first", type=int, help="replay so many jobs of each trace alone, for a quick look")


def load(path: Path, first: int | None = None) -> Workload:
    where = cluster_file_of(path)
    assert where is not None, f"there is no cluster file beside {path}"
    cluster = read_cluster(where)
    return Workload(read_trace(path, Options(per_node=cluster.per_node)).jobs[:first], cluster)


def play(work: Workload, preset: str, layout: Layout, more: float = 0.0, costs: Costs | None = None) -> Timed:
    """One preset on one layout; every job lasts `more` seconds longer than the trace says."""
    chosen = PRESETS.get(preset)
    rules, cluster = work.cluster.with_quotas(chosen.rules, layout), work.cluster.lay_out(layout)
    jobs = [replace(job, duration=job.duration + more) for job in work.jobs] if more else work.jobs
    setup = Setup(f"{preset}, {layout}", rules, cluster, costs or Costs(), chosen.exact)
    wall, cpu = time.perf_counter(), time.process_time()
    result = replay(jobs, setup)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return Timed(result, summarise(result), wall, cpu)


def bare_fifo(jobs: Sequence[TraceJob], nodes: dict[str, int], per_node: int) -> tuple[list[float], list[float]]:
    """Completion and queueing times in seconds of first come first served, and nothing else: each queue on its own
    nodes, nobody passes a job that does not fit, a gang goes where it leaves least free."""
    free = {queue: [per_node] * count for queue, count in nodes.items()}
    line: dict[str, deque[TraceJob]] = {queue: deque() for queue in nodes}
    ends: list[tuple[float, int, str, list[int], int]] = []  # when, which, queue, nodes, accelerators on each
    coming = deque(sorted(jobs, key=lambda job: job.submit))
    started, completion, queueing = 0, list[float](), list[float]()
    while coming or ends:
        now = min(coming[0].submit if coming else ends[0][0], ends[0][0] if ends else coming[0].submit)
        changed: dict[str, None] = {}
        while ends and ends[0][0] <= now:
            _, _, queue, seats, each = heapq.heappop(ends)
            for seat in seats:
                free[queue][seat] += each
            changed[queue] = None
        while coming and coming[0].submit <= now:
            job = coming.popleft()
            line[job.queue].append(job)
            changed[job.queue] = None
        for queue in changed:
            there, waiting = free[queue], line[queue]
            while waiting:
                job = waiting[0]
                found = best_fit(there, job.nodes, job.accelerators)
                if found is None:
                    break
                waiting.popleft()
                for seat in found:
                    there[seat] -= job.accelerators
                started += 1
                heapq.heappush(ends, (now + job.duration, started, queue, found, job.accelerators))
                completion.append(now + job.duration - job.submit)
                queueing.append(now - job.submit)
    return completion, queueing


def best_fit(free: list[int], nodes: int, each: int) -> list[int] | None:
    if nodes == 1:
        found, least = -1, 1_000_000
        for place, left in enumerate(free):
            if each <= left < least:
                found, least = place, left
        return [found] if found >= 0 else None
    able = sorted((left, place) for place, left in enumerate(free) if left >= each)
    return [place for _, place in able[:nodes]] if len(able) >= nodes else None


def rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
