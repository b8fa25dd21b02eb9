"""The ledgers hold exactly what the attempts used, whatever happened and however often the server was killed."""

from __future__ import annotations

import random
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster.core.entities.ledger import Use
from muster.core.event import Event
from muster.core.payload import decode
from muster.core.reasons import reason
from muster.core.state import State
from muster.store.memory import MemoryStore
from muster.store.registry import open_store
from scheduler_kit import fold, job_event, node_event
from store_kit import History, check_against_log, used_by_attempts

WHY = reason("completed").to_dict()


def uses(state: State) -> dict[str, Use]:
    return {name: ledger.use for name, ledger in state.ledgers.items()}


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.lists(st.sampled_from(["entry", "entry", "entry", "kill"]), max_size=120))
def test_a_ledger_is_the_sum_over_the_attempts(seed: int, steps: list[str]) -> None:
    store, history = MemoryStore(), History(random.Random(seed))
    store.open()
    for step in steps:
        if step == "kill":
            store.reload()
        else:
            store.append(history.entry(store))
    assert uses(store.state()) == used_by_attempts(store)


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_it_is_stored(tmp_path: Path, seed: int) -> None:
    url, history = f"sqlite:///{tmp_path}/{seed}.db", History(random.Random(seed))
    for _ in range(3):
        store = open_store(url)
        for _ in range(40):
            store.append(history.entry(store))
        store.close()  # the next one loads from the tables
    store = open_store(url)
    assert uses(store.state()) == used_by_attempts(store)
    check_against_log(store)
    store.close()


def seats(*nodes: str, devices: tuple[int, ...] = (0, 1), share: int = 1000) -> dict[str, object]:
    return {"seats": [{"node": node, "devices": list(devices), "share": share} for node in nodes]}


def test_a_resized_gang_counts_with_the_nodes_that_it_had() -> None:
    """Three nodes for 10 s, then two for 5 s, and now three for 2 s."""
    state = fold(
        [
            *(node_event(f"n{i}", 2, 8, pool="big") for i in range(3)),
            job_event(1, num_nodes={"min": 2, "max": 3}, gpus=2, cpus=1.5),
            Event(decode("attempt.planned", seats("n0", "n1", "n2")), 10.0, job="job-1", attempt=1),
            Event(decode("attempt.ended", {"outcome": "stopped", "reason": WHY}), 20.0, job="job-1", attempt=1),
            Event(decode("job.requeued", {"reason": WHY, "charge": "preempted", "not_before": 0.0}), 20.0, job="job-1"),
            Event(decode("attempt.planned", seats("n0", "n1")), 30.0, job="job-1", attempt=2),
            Event(decode("attempt.ended", {"outcome": "stopped", "reason": WHY}), 35.0005, job="job-1", attempt=2),
            Event(decode("job.requeued", {"reason": WHY, "charge": "preempted", "not_before": 0.0}), 36.0, job="job-1"),
            Event(decode("attempt.planned", seats("n0", "n1", "n2")), 40.0, job="job-1", attempt=3),
        ]
    )
    ended, held = state.ledgers["default/big"].use, state.used("default", 42.0)
    assert (ended.node_seconds, ended.accelerator_seconds, ended.cpu_seconds) == (40.0, 80.0, 60.0)
    assert (held.node_seconds, held.accelerator_seconds, held.cpu_seconds) == (46.0, 92.0, 69.0)
    assert state.used("default", 42.0, "big") == held
    assert state.used("default", 42.0, "small") == state.used("other", 42.0) == Use()


def test_a_part_of_an_accelerator_counts_as_that_part() -> None:
    state = fold(
        [
            node_event("n0", 2, 8),
            job_event(1, gpus=0.25),
            Event(decode("attempt.planned", seats("n0", devices=(0,), share=250)), 10.0, job="job-1", attempt=1),
            Event(decode("attempt.ended", {"outcome": "succeeded", "reason": WHY}), 20.0, job="job-1", attempt=1),
            Event(decode("attempt.ended", {"outcome": "succeeded", "reason": WHY}), 90.0, job="job-1", attempt=1),
        ]
    )
    assert state.used("default", 99.0).accelerator_seconds == 2.5
