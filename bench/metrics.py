"""A scrape of `/metrics` with 10,000 nodes of 8 accelerators and 1,000 running jobs, and what sampling costs a node.

The state, the scheduler's board and the samples are real, on a store in memory; the workers are not. The devices are
also written by prometheus-client, to compare. `--nvml` adds the accelerators of this machine to the cost of sampling.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from prometheus_client import generate_latest
from prometheus_client.core import GaugeMetricFamily

from _machine import write
from muster.control.counters import Counters
from muster.control.loop import Controller
from muster.control.node_samples import NodeSamples
from muster.control.submit import Submission, peek, submit
from muster.core.entities.project import ProjectSet
from muster.core.entities.queue import QueueSet
from muster.core.event import Event
from muster.core.parse import parse_job
from muster.core.resources import Resources
from muster.core.state import State
from muster.engines.base import NodeInfo
from muster.engines.sim import SimEngine
from muster.monitor import families
from muster.monitor.exposition import ShownDevice
from muster.monitor.sample import Sampler
from muster.runtime.hardware import open_sources, take
from muster.server.leader import Leader
from muster.server.prometheus.collect import Families
from muster.server.prometheus.page import page
from muster.server.prometheus.requests import Requests
from muster.server.routes.prometheus import PARTS
from muster.store.base import Entry
from muster.store.commit import GroupCommit
from muster.store.memory import MemoryStore
from muster.wire import DeviceSample, NodeSample

DEVICES = 8
ROUNDS = 5
QUEUED = 2000  # jobs that wait
PERIOD = 10.0  # seconds between two samples of a node


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=1_000)
    parser.add_argument("--nvml", action="store_true", help="measure the sampling alone, with this machine's devices")
    given = parser.parse_args()
    sampling = sampling_cost()
    if given.nvml:
        write("metrics_sampling", {"sampling": sampling})
        return
    leader, close = cluster(given.nodes, given.jobs)
    scrapes = {name: scrape(leader, parts) for name, parts in (("everything", PARTS), ("server", ("server",)))}
    _, devices = leader.samples.fresh(leader.clock.now())
    peer = measure(lambda: [by_prometheus_client(devices)], rounds=1)
    own = scrape(leader, ("devices",))
    result = {
        "nodes": given.nodes, "devices": given.nodes * DEVICES, "running_jobs": given.jobs, "queued_jobs": QUEUED,
        "scrape": scrapes, "devices_alone": own, "devices_by_prometheus_client": peer,
        "times_faster": round(peer["cpu_s"] / own["cpu_s"], 1), "a_sample_arrives_us": arrival(leader.samples),
        "commits_wait_ms": waits(leader), "sampling": sampling,
    }  # fmt: skip
    close()
    write("metrics", result)


def cluster(nodes: int, jobs: int) -> tuple[Leader, Callable[[], None]]:
    """A leading server as far as a scrape sees it, with jobs of equal size on all nodes."""
    clock, store, counters = SimpleNamespace(now=lambda: 1000.0), MemoryStore(), Counters()
    resources = Resources(64_000, 512 << 30, DEVICES, "H100")
    engine = SimEngine([NodeInfo(f"node-{number:05}", "h100", resources) for number in range(nodes)], clock.now)
    store.open()
    commit = GroupCommit(store, lambda events: controller.on_commit(events))
    controller = Controller(commit, engine, clock, lambda job, attempt: "token", lambda: True)
    commit.start()
    controller.adopt()
    first = [Event(ProjectSet(name="default"), 1.0), Event(QueueSet(name="default"), 1.0)]
    commit.submit(lambda state: Entry(first)).result()
    controller.tick()  # the nodes join
    spec = {"name": "job", "run": "true", "num_nodes": max(1, nodes // jobs), "resources": {"accelerators": "H100:8"}}
    for _ in range(jobs + QUEUED):
        commit.submit(submit(store, Submission(parse_job(spec), "ada"), 1000.0, local=False)).result()
    for _ in range(3):
        controller.tick()
    samples = NodeSamples()
    for number in range(nodes):
        samples.take(f"node-{number:05}", "h100", sample_of(number), 1000.0, DEVICES)

    def look(look_: Callable[[State], Any]) -> Any:
        found: list[Any] = []
        commit.submit(peek(found, look_)).result()
        return found[0]

    running = len(store.state().active)
    assert running == jobs, f"{running} jobs run"
    made = SimpleNamespace(
        clock=clock, store=store, followers=[], outbox=None, controller=controller, sampler=Sampler(), samples=samples,
        counters=counters, look=look,
    )  # fmt: skip
    return cast(Leader, made), commit.close


def sample_of(number: int) -> NodeSample:
    devices = tuple(
        DeviceSample(
            index, f"GPU-{number:08x}-1111-2222-3333-{index:012x}", "NVIDIA H100 80GB HBM3", "", -1,
            (number + index) % 101 / 100, (number << 20) + index, 80 << 30, 70 + number % 630 + 0.125 * index,
            30 + number % 50, 1_980_000_000,
        )
        for index in range(DEVICES)
    )  # fmt: skip
    return NodeSample(
        PERIOD, 64, 1e6 + number, 512 << 30, (256 << 30) + number, 10**12, 10**12, 10**12, 10**12, devices
    )


def scrape(leader: Leader, parts: tuple[str, ...]) -> dict[str, Any]:
    return measure(lambda: page(leader, Requests(), parts))


def measure(work: Callable[[], list[bytes]], rounds: int = ROUNDS) -> dict[str, Any]:
    """The median of some rounds, after one that loads what is needed."""
    times, pieces = [], work() if rounds > 1 else []
    for _ in range(rounds):
        pieces, cpu, wall = [], time.process_time(), time.perf_counter()
        pieces = work()
        times.append((time.process_time() - cpu, time.perf_counter() - wall))
    series = sum(piece.count(b"\n") - piece.count(b"\n#") - piece.startswith(b"#") for piece in pieces)
    cpu_s, wall_s = (sorted(column)[rounds // 2] for column in zip(*times, strict=True))
    return {"cpu_s": round(cpu_s, 4), "wall_s": round(wall_s, 4), "mb": round(sum(map(len, pieces)) / 1e6, 2),
            "series": series}  # fmt: skip


def by_prometheus_client(devices: list[ShownDevice]) -> bytes:
    """The six metrics of every device as prometheus-client writes them."""
    made = []
    fields = ("use", "memory_used", "memory", "power", "temperature", "clock")
    for family, field in zip(families.DEVICE, fields, strict=True):
        metric = GaugeMetricFamily(family.name, family.help, labels=("node", "pool", "gpu", "model"))
        for one in devices:
            labels = ("node-00000", "h100", str(one.sample.gpu), one.sample.name)
            metric.add_metric(labels, getattr(one.sample, field))
        made.append(metric)
    return bytes(generate_latest(Families(made)))


def arrival(samples: NodeSamples) -> float:
    """Microseconds that a node's new sample takes, of those that it takes in the leading server."""
    texts = [json.loads(json.dumps(sample_of(number))) for number in range(1000)]
    began = time.process_time()
    for number, text in enumerate(texts):
        samples.take(f"node-{number:05}", "h100", NodeSample.from_list(text), 1001.0, DEVICES)
    return round((time.process_time() - began) / len(texts) * 1e6, 1)


def waits(leader: Leader) -> float:
    """Milliseconds that the state is held for a scrape."""
    from muster.server.prometheus import snapshot

    def look(state: State) -> float:
        began = time.perf_counter()
        snapshot.take(state, leader.controller.board, leader.sampler, leader.samples, leader.clock.now())
        return time.perf_counter() - began

    return round(sorted(leader.look(look) for _ in range(ROUNDS))[ROUNDS // 2] * 1000, 2)


def sampling_cost() -> dict[str, Any]:
    """CPU time of one sample of this machine and of one rank, and what that is of a core."""
    source, read = open_sources()
    devices = source.devices() if source is not None else []
    rounds = 50

    def once() -> None:
        read()
        take(os.getpid())
        for one in devices:
            assert source is not None
            source.sample(one)

    once()
    began = time.process_time()
    for _ in range(rounds):
        once()
    seconds = (time.process_time() - began) / rounds
    return {
        "ms": round(seconds * 1000, 3),
        "percent_of_a_core": round(100 * seconds / PERIOD, 4),
        "devices": len(devices),
    }


if __name__ == "__main__":
    main()
