"""Placement decisions a second, and what one change costs: 10,000 nodes of 8, 100,000 queued gangs, one core.

Fair share over 50 queues with quotas, racks, and EASY backfill with a reservation for the first that does not fit. The
scheduler is called as the controller calls it; what it decides is applied to the state, which is not counted. Times are
of the processor, so that what else runs on the machine counts little.
"""

from __future__ import annotations

import argparse
import gc
import random
import time
from dataclasses import asdict

from _machine import machine, write
from muster.core.event import Event
from muster.core.payload import decode
from muster.core.plan import Plan
from muster.core.resources import Resources
from muster.core.rules import Backfill, Preemption, QueueRules, Rules
from muster.core.spec import JobSpec, WorkerResources
from muster.core.state import State, apply
from muster.sched.board import Board
from muster.sched.schedule import schedule

RACK = 32
SHAPES = [(1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (4, 8), (8, 8), (16, 8)]  # nodes, accelerators on each
WEIGHTS = [20, 10, 10, 25, 15, 10, 6, 4]
QUEUES, USERS = 50, 4


class World:
    """A state, and the events that carry out what the scheduler decides."""

    def __init__(self, nodes: int, jobs: int, backfill: Backfill, seed: int = 1) -> None:
        self.state, self.random, self.now, self._seq = State(), random.Random(seed), 1000.0, 0
        self.board = Board()
        self.add("pool.set", name="main", engine="sim")
        for project in range(5):
            self.add("project.set", name=f"p{project}")
        quota = 8 * nodes // QUEUES // 2  # half of the cluster is somebody's, the other half is there to be shared
        for queue in range(QUEUES):
            self.add("queue.set", name=f"q{queue}", project=f"p{queue % 5}")
        for node in range(nodes):
            labels = {"rack": f"r{node // RACK}", "zone": f"z{node * 4 // nodes}"}
            resources = asdict(Resources(128_000, 2 * 10**12, 8, "H100"))
            self.add("node.joined", name=f"n{node}", pool="main", resources=resources, labels=labels)
        rules = QueueRules(order="priority", backfill=backfill, quota={"main": quota})
        in_force = Rules(
            preemption=Preemption(enabled=False), between="fair", queues={f"q{queue}": rules for queue in range(QUEUES)}
        )
        self.add("rules.set", rules=in_force.model_dump(), text="")
        self.jobs = 0
        self._specs: dict[object, JobSpec] = {}
        for _ in range(jobs):
            self.submit()

    def add(self, kind: str, job: str = "", attempt: int = 0, project: str = "", **data: object) -> None:
        self._seq += 1
        apply(self.state, Event(decode(kind, data), self.now, "bench", project, job, attempt, seq=self._seq))

    def submit(self) -> None:
        self.jobs += 1
        queue = self.random.randrange(QUEUES)
        shape = self.random.choices(SHAPES, WEIGHTS)[0]
        minutes = self.random.choice([10, 30, 60, 240, 720, 1440])
        key = (queue, shape, minutes)
        spec = self._specs.get(key)
        if spec is None:
            resources = WorkerResources(accelerators=shape[1], accelerator="H100")
            spec = self._specs[key] = JobSpec(
                name="job", run="true", project=f"p{queue % 5}", queue=f"q{queue}", num_nodes=shape[0],
                resources=resources, max_duration=60.0 * minutes,
            )  # fmt: skip
        user = f"u{queue}-{self.random.randrange(USERS)}"
        number = self.jobs
        self.add("job.submitted", f"job-{number}", project=spec.project, number=number, name="job", queue=spec.queue,
                 user=user, spec=spec, key=None)  # fmt: skip

    def tick(self) -> tuple[Plan, float]:
        began = time.process_time()
        plan = schedule(self.state, self.now, self.board)
        return plan, time.process_time() - began

    def carry_out(self, plan: Plan) -> None:
        for start in plan.starts:
            job = self.state.jobs[start.job]
            number = (job.attempt.number if job.attempt else 0) + 1
            self.add("attempt.planned", job.id, number, seats=[seat.to_doc() for seat in start.seats])
            self.add("attempt.running", job.id, number)
        assert not plan.yields, "nobody was meant to give way here"

    def end(self, name: str) -> None:
        done = {"code": "completed", "message": ""}
        attempt = self.state.jobs[name].attempt
        assert attempt is not None
        self.add("attempt.ended", name, attempt.number, outcome="succeeded", reason=done)
        self.add("job.succeeded", name, reason=done)


def measure(nodes: int, jobs: int, backfill: Backfill, changes: int) -> dict[str, object]:
    world = World(nodes, jobs, backfill)
    gc.collect()
    gc.freeze()
    _, building = world.tick()  # makes the board, and decides nothing that is carried out
    world.board = Board()
    world.board.sync(world.state, world.now)
    plan, filling = world.tick()
    filled = len(plan.starts)
    world.carry_out(plan)
    world.tick()
    placed, ticks, small = 0, list[float](), list[float]()
    for _ in range(changes):
        world.now += 1.0
        if world.random.random() < 0.5:
            world.submit()
        else:
            world.end(world.random.choice(list(world.state.active)))
        plan, seconds = world.tick()
        ticks.append(seconds)
        if len(plan.starts) <= 1:
            small.append(seconds)
        placed += len(plan.starts)
        world.carry_out(plan)
    return {
        "nodes": nodes,
        "queued": jobs,
        "backfill": backfill,
        "board_built_s": round(building, 2),
        "gangs_placed_on_a_free_cluster": filled,
        "decisions_per_s": round(filled / filling),
        "tick_ms": _spread(ticks),
        "tick_ms_where_at_most_one_starts": _spread(small),
        "changes": changes,
        "placed_in_ticks": placed,
    }


def _spread(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    shares = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {name: round(1000 * ordered[min(int(len(ordered) * q), len(ordered) - 1)], 3) for name, q in shares.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--changes", type=int, default=2_000)
    given = parser.parse_args()
    runs = []
    modes: tuple[Backfill, ...] = ("easy", "greedy")
    for backfill in modes:
        found = measure(given.nodes, given.jobs, backfill, given.changes)
        print(found)
        runs.append(found)
    write("sched_rounds", {"machine": machine(), "runs": runs})


if __name__ == "__main__":
    main()
