"""Generated worlds: clusters, queues and jobs as events, for the contract suites of policies and placements."""

from __future__ import annotations

from dataclasses import asdict

from hypothesis import strategies as st

from muster.core.event import Event
from muster.core.parse import parse_job
from muster.core.resources import Resources
from muster.core.state import State, apply


def fold(events: list[Event]) -> State:
    state = State()
    for seq, event in enumerate(events, 1):
        apply(state, event.stamped(seq))
    return state


def node_event(name: str, gpus: int, cpus: int, pool: str = "main") -> Event:
    resources = Resources(cpus * 1000, cpus * 4 * 10**9, gpus, "H100" if gpus else "")
    data = {"name": name, "pool": pool, "resources": asdict(resources), "labels": {}}
    return Event("node.joined", 1.0, data=data)


def job_event(number: int, **spec: object) -> Event:
    parsed = parse_job({"name": "job", "run": "true", **spec})
    data = {
        "number": number,
        "name": "job",
        "queue": parsed.queue,
        "user": "ada",
        "spec": parsed.model_dump(mode="json"),
        "key": None,
    }
    return Event("job.submitted", 2.0 + number, "ada", parsed.project, f"job-{number}", data=data)


def estate(queues: int = 1) -> list[Event]:
    names = ["default", *(f"q{i}" for i in range(1, queues))]
    return [Event("project.set", 0.0, data={"name": "default"})] + [
        Event("queue.set", 0.0, data={"name": name}) for name in names
    ]


@st.composite
def worlds(draw: st.DrawFn) -> State:
    """A cluster of some nodes and some queued gangs, a few of them larger than the cluster."""
    queues = draw(st.integers(1, 3))
    events = estate(queues)
    for i in range(draw(st.integers(1, 6))):
        events.append(node_event(f"n{i}", draw(st.integers(0, 4)), draw(st.integers(1, 8))))
    for number in range(1, draw(st.integers(1, 12)) + 1):
        queue = draw(st.integers(0, queues - 1))
        events.append(
            job_event(
                number,
                num_nodes=draw(st.integers(1, 4)),
                gpus=draw(st.integers(0, 4)),
                cpus=draw(st.integers(1, 4)),
                priority=draw(st.sampled_from([20, 50, 75])),
                placement=draw(st.sampled_from(["pack", "spread"])),
                queue="default" if not queue else f"q{queue}",
            )
        )
    return fold(events)
