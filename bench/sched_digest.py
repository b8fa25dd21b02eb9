"""Does a change to the scheduler keep its plans? A digest of every event of a replay, beside its CPU time per job.

Each trace is replayed under each preset as it is and under overload: submissions come `--press` times as fast, on
`--nodes` nodes. Give `--write FILE` before a change, and `--compare FILE` after it.
"""

from __future__ import annotations

import argparse
import cProfile
import hashlib
import json
import pstats
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from _replay import Workload, load, take_traces
from muster.core.event import Event
from muster.sim.cluster import Layout
from muster.sim.model import Costs, Setup, TraceJob
from muster.sim.presets import PRESETS
from muster.sim.run import Simulation, few_collections

FAILURES = 0.05  # of each node a day, in the replays with failures


class Logged(Simulation):
    """A replay that digests its events in the order of the log."""

    def __init__(self, trace: Sequence[TraceJob], setup: Setup) -> None:
        self.digest, self.count, self.spent = hashlib.sha256(), 0, 0.0
        super().__init__(trace, setup)

    def committed(self, events: Sequence[Event]) -> None:
        began = time.process_time()
        for event in events:
            said = (event.seq, event.time, event.kind, event.actor, event.project, event.job, event.attempt, event.data)
            self.digest.update(repr(said).encode())
        self.count += len(events)
        self.spent += time.process_time() - began  # no part of a replay
        super().committed(events)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    take_traces(parser)
    parser.add_argument("--trace", action="append", help="part of the name of a trace; all unless given")
    parser.add_argument("--policy", action="append", choices=list(PRESETS), help="all unless given")
    parser.add_argument("--press", type=float, action="append", help="1 unless given; more than once for several")
    parser.add_argument("--layout", choices=["plain", "shared", "confined"], default="plain")
    parser.add_argument("--failures", action="store_true", help="nodes fail, and gangs save every hour")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--compare", type=Path)
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    before = json.loads(given.compare.read_text()) if given.compare else {}
    found = json.loads(given.write.read_text()) if given.write and given.write.exists() else {}
    different = 0
    for path in sorted(given.traces.glob("*.csv.gz")):
        if given.trace and not any(part in path.name for part in given.trace):
            continue
        work = load(path, given.first)
        for press in given.press or [1.0]:
            for policy in given.policy or list(PRESETS):
                name = f"{path.name.split('.')[0]} x{press:g} {policy} {given.layout} {given.first or 'all'}"
                name += " failures" * given.failures
                one = measure(work, policy, given.layout, press, given.failures, given.profile)
                old = before.get(name)
                same = old is not None and str(one["digest"]).startswith(old["digest"])
                told = "" if old is None else "equal" if same else "DIFFERENT"
                was = f" (was {old['cpu_s']})" if old else ""
                different += told == "DIFFERENT"
                print(f"{name:60} {one['jobs']:6} jobs {one['cpu_s']:8.2f} s{was} {one['ms_per_job']:7.3f} ms a job"
                      f" {str(one['digest'])[:12]} {told}", flush=True)  # fmt: skip
                found[name] = one
                if given.write:
                    given.write.write_text(json.dumps(found, indent=1))
    return min(different, 1)


def measure(
    work: Workload, policy: str, layout: Layout, press: float, failures: bool, profile: bool
) -> dict[str, object]:
    chosen = PRESETS.get(policy)
    rules, cluster = work.cluster.with_quotas(chosen.rules, layout), work.cluster.lay_out(layout)
    costs = Costs(node_failures=FAILURES, checkpoint_every=3600.0) if failures else Costs()
    jobs = [replace(job, submit=round(job.submit / press)) for job in work.jobs]
    simulation = Logged(jobs, Setup("digest", rules, cluster, costs, chosen.exact))
    watch = cProfile.Profile(time.process_time) if profile else None
    began = time.process_time()
    with few_collections():
        if watch is not None:
            watch.enable()
        simulation.run()
        if watch is not None:
            watch.disable()
            pstats.Stats(watch).sort_stats("tottime").print_stats(40)
    cpu = time.process_time() - began - simulation.spent
    return {
        "jobs": len(jobs),
        "events": simulation.count,
        "cpu_s": round(cpu, 2),
        "ms_per_job": round(1e3 * cpu / len(jobs), 3),
        "digest": simulation.digest.hexdigest(),
    }


if __name__ == "__main__":
    sys.exit(main())
