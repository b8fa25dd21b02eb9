"""Real jobs through the real scheduler: is the replay faithful, are Muster's rules better, and is it fast?

Faithful: SenseTime's cluster Venus in September 2020 under rules that others have replayed it with, beside their
figures. Better: the same month under Muster's own rules, with each virtual cluster on its own nodes and with all in one
pool, and two traces of Microsoft's Philly, so that nothing is tuned to one file. Fast: seconds of each replay, beside a
first-come-first-served loop of sixty lines. Sources and licences stand in the JSON beside the traces.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from _machine import write
from _replay import Timed, Workload, bare_fifo, load, play, take_traces
from muster.core.rules import Rules
from muster.core.spec import JobSpec
from muster.sim.model import Costs, JobResult

VENUS = "helios_venus_sept2020.csv.gz"
PHILLY = ("philly_muri_trace1.csv.gz", "philly_muri_trace4.csv.gz")
REPLAYED = ("fifo", "sjf", "tiresias")
# The reference simulator sees in the next second of its loop that a job under Tiresias has ended: each lasts 1 s more.
LATER = {"tiresias": 1.0}
GRACE = JobSpec.model_fields["stop_grace"].default  # seconds that a job is given to save and leave
GOALS = {
    "faithful_within_percent": 0.5,
    "default_confined_completion_s": 13_000,
    "default_shared_completion_s": 11_900,
    "default_shared_queueing_p999_s": 15_000,
    "fifo_replay_s": 5,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    take_traces(parser)
    given = parser.parse_args()
    missing = [name for name in (VENUS, *PHILLY) if not (given.traces / name).is_file()]
    if missing:
        print(f"Not measured: no {', '.join(missing)} in {given.traces}. Give their folder with --traces.")
        return
    venus = load(given.traces / VENUS, given.first)
    reference = json.loads((given.traces / VENUS.replace(".csv.gz", ".json")).read_text())["reference_replay"]
    confined = {name: play(venus, name, "confined", LATER.get(name, 0.0)) for name in REPLAYED}
    confined["default"] = play(venus, "default", "confined")
    shared = {name: play(venus, name, "shared") for name in ("fifo", "default")}
    result = {
        "jobs": len(venus.jobs),
        "trace": venus.cluster.origin,
        "goals": GOALS,
        "faithful": faithful(confined, reference),
        "better": better(confined, shared, reference),
        "own_quota": own_quota(venus, shared),
        "virtual_clusters": virtual_clusters(confined, shared),
        "philly": {name.partition(".")[0]: philly(given.traces / name, given.first) for name in PHILLY},
        "fast": fast(venus, confined, shared),
    }
    write("sched_venus", result)


def faithful(confined: dict[str, Timed], reference: dict[str, Any]) -> dict[str, Any]:
    """The averages of completion and queueing, beside those of the reference."""
    found: dict[str, Any] = {"reference": reference["what"]}
    print(f"{'faithful':10} {'completion':>11} {'reference':>10} {'%':>7} {'queueing':>11} {'reference':>10} {'%':>7}")
    for name in REPLAYED:
        figures, theirs = confined[name].figures(), reference[name]
        ours = [confined[name].summary.completion.mean or 0.0, confined[name].summary.queueing.mean or 0.0]
        apart = [round(100 * (mine / other - 1), 3) for mine, other in zip(ours, theirs, strict=True)]
        found[name] = {**figures, "reference_s": theirs, "difference_percent": apart}
        if name in LATER:
            found[name]["note"] = f"each job lasts {LATER[name]:g} s longer, as in the reference simulator"
        row = "".join(f" {a:11,.1f} {b:10,} {c:7.3f}" for a, b, c in zip(ours, theirs, apart, strict=True))
        print(f"{name:10}{row}")
    return found


def better(confined: dict[str, Timed], shared: dict[str, Timed], reference: dict[str, Any]) -> dict[str, Any]:
    rows = [("default confined", confined["default"]), ("default shared", shared["default"])]
    rows.append(("fifo shared", shared["fifo"]))
    print(f"\n{'better':18} {'completion':>11} {'queueing':>9} {'p99':>9} {'p99.9':>9} {'preempted':>10}")
    for name, timed in rows:
        of = timed.summary
        print(
            f"{name:18} {of.completion.mean:11,.0f} {of.queueing.mean:9,.1f} {of.queueing.p99:9,.0f}"
            f" {of.queueing.p999:9,.0f} {of.preemptions:10,}"
        )
    published = {name: reference[name] for name in ("qssf_lgb", "tiresias", "srtf_other_tie_order")}
    print("others, confined:", ", ".join(f"{name} {figures[0]:,}" for name, figures in published.items()))
    return {"others_confined_s": published, **{name.replace(" ", "_"): timed.figures() for name, timed in rows}}


def own_quota(venus: Workload, shared: dict[str, Timed]) -> dict[str, Any]:
    """How long jobs waited for what was their queue's own, and whether they needed whole nodes."""
    limit = Rules().reclaim
    slow = play(venus, "default", "shared", costs=Costs(checkpoint_cost=GRACE))
    found: dict[str, Any] = {"reclaim_s": limit, "slow": f"every gang takes {GRACE:g} s to save and leave"}
    rows = {"default": shared["default"], "default, slow": slow, "fifo": shared["fifo"]}
    print(f"\nwaits within the own quota, which is to come back within {limit:g} s:")
    for name, timed in rows.items():
        waits = [job for job in timed.result.jobs if job.longest_in_quota > 0]
        over = [job for job in waits if job.longest_in_quota > limit]
        whole = sum(1 for job in over if _whole_nodes(job, venus))
        longest = max((job.longest_in_quota for job in waits), default=0.0)
        found[name] = {"waited": len(waits), "over": len(over), "over_and_whole_nodes": whole, "longest_s": longest}
        print(f"{name:14} {len(waits):6,} waited, {len(over):5,} longer, {whole:4,} of these needed whole nodes,"
              f" longest {longest:,.0f} s")  # fmt: skip
    return found


def _whole_nodes(result: JobResult, venus: Workload) -> bool:
    return result.job.accelerators == venus.cluster.per_node


def virtual_clusters(confined: dict[str, Timed], shared: dict[str, Timed]) -> dict[str, Any]:
    """Average completion of each: nobody should be worse off than first come first served on its own nodes."""
    columns = {"fifo confined": confined["fifo"], "default confined": confined["default"],
               "default shared": shared["default"]}  # fmt: skip
    means = {name: _by_queue(timed.result.jobs) for name, timed in columns.items()}
    print(f"\n{'cluster':8} {'jobs':>7}" + "".join(f" {name:>17}" for name in columns))
    counts = _counts(confined["fifo"].result.jobs)
    for queue, count in counts.items():
        print(f"{queue:8} {count:7,}" + "".join(f" {means[name][queue]:17,.0f}" for name in columns))
    worse = [q for q in counts if means["default shared"][q] > means["fifo confined"][q]]
    print(f"worse off in the shared pool than under first come first served on their own: {', '.join(worse) or 'none'}")
    table = {q: {"jobs": counts[q], **{name: round(means[name][q], 1) for name in columns}} for q in counts}
    return {"completion_s": table, "worse_off": worse}


def _by_queue(jobs: Iterable[JobResult]) -> dict[str, float]:
    times = defaultdict[str, list[float]](list)
    for job in jobs:
        times[job.job.queue].append(job.completion)
    return {queue: sum(found) / len(found) for queue, found in times.items()}


def _counts(jobs: Iterable[JobResult]) -> dict[str, int]:
    found = defaultdict[str, int](int)
    for job in jobs:
        found[job.job.queue] += 1
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def philly(path: Path, first: int | None) -> dict[str, Any]:
    work = load(path, first)
    found: dict[str, Any] = {"jobs": len(work.jobs), "trace": work.cluster.origin}
    print(f"\n{path.name.partition('.')[0]}: average completion and queueing in hours")
    for name in ("fifo", "tiresias", "default"):
        timed = play(work, name, "plain")
        found[name] = timed.figures()
        of = timed.summary
        print(f"{name:10} {(of.completion.mean or 0) / 3600:9,.1f} {(of.queueing.mean or 0) / 3600:9,.1f}")
    return found


def fast(venus: Workload, confined: dict[str, Timed], shared: dict[str, Timed]) -> dict[str, Any]:
    wall, cpu = time.perf_counter(), time.process_time()
    completion, queueing = bare_fifo(venus.jobs, venus.cluster.virtual, venus.cluster.per_node)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    fifo = confined["fifo"]
    bare = {
        "completion_s": round(sum(completion) / len(completion), 1),
        "queueing_s": round(sum(queueing) / len(queueing), 1),
        "wall_s": round(wall, 3),
        "cpu_s": round(cpu, 3),
    }
    timed = {f"{name}_confined": one for name, one in confined.items()}
    timed |= {f"{name}_shared": one for name, one in shared.items()}
    print("\nfast: " + "; ".join(f"{name} {one.wall:.1f} s ({one.cpu:.1f} CPU)" for name, one in timed.items()))
    print(f"a bare loop: {cpu:.2f} CPU s and the same averages ({bare['completion_s']:,}, {bare['queueing_s']:,});"
          f" the whole controller takes {fifo.cpu / cpu:.0f} times as long, {1e6 * fifo.cpu / len(venus.jobs):.0f} us"
          " a job")  # fmt: skip
    seconds = {name: {"wall_s": round(one.wall, 2), "cpu_s": round(one.cpu, 2)} for name, one in timed.items()}
    return {"replay": seconds, "bare_fifo": bare, "fifo_over_bare": round(fifo.cpu / cpu, 1)}


if __name__ == "__main__":
    main()
