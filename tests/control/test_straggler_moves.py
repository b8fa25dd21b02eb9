"""Stragglers in a whole controller: what is told, when it is over, and when a job is moved off a slow node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rig import Rig, nodes

from muster.control.stragglers import Stragglers
from muster.core.attempt_events import AttemptStraggler, CheckpointCommitted
from muster.core.entities.node_record import HISTORY, NODE_RECORDS, SLOW, follows_node
from muster.core.entities.rules_in_force import RulesSet
from muster.core.event import Event
from muster.core.reasons import reason
from muster.core.rules import PoolRules, Rules
from muster.monitor.straggler import WINDOW, WINDOWS
from muster.wire import Batch

STEP = 5.0  # seconds between two reports of a rank


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig(nodes(6), stragglers=Stragglers())
    yield made
    made.close()


def start(rig: Rig, **spec: object) -> str:
    """A gang of three nodes with a rank on each."""
    job = rig.submit(num_nodes=3, nproc=1, resources={"accelerators": "H100:4"}, **spec)
    rig.tick()
    assert rig.job(job).phase == "running"
    return job


def at(rig: Rig, job: str, worker: int) -> str:
    attempt = rig.job(job).attempt
    assert attempt is not None
    return attempt.workers[worker].node


def train(rig: Rig, job: str, slow: int | None, windows: int = WINDOWS + 1) -> None:
    """The ranks report how long they waited; the slow one hardly does."""
    assert rig.stragglers is not None
    number = rig.job(job).attempt.number
    for _ in range(int(windows * WINDOW / STEP)):
        rig.clock.time += STEP
        for rank in range(3):
            waited = 0.5 if slow is None or rank == slow else 2.5
            doc = {"type": "phase", "time": rig.clock.time, "name": "training", "spent": {"waiting": waited}}
            rig.stragglers.take(job, number, Batch(rank, "running"), (), [(rank, doc)])
        rig.controller.tick()


def save(rig: Rig, job: str, step: int) -> None:
    number = rig.job(job).attempt.number
    rig.tell(Event(CheckpointCommitted(step, f"/c/step-{step}", 1), rig.clock.now(), "", "default", job, number))
    rig.tick(2, seconds=2.0)


def moves(rig: Rig) -> None:
    rules = Rules(pools={"main": PoolRules(stragglers="move")})
    rig.tell(Event(RulesSet(rules.model_dump(mode="json", exclude_defaults=True)), rig.clock.now()))


def test_a_straggler_is_told_with_its_node_and_is_over_when_it_goes_away(rig: Rig) -> None:
    job = start(rig)
    train(rig, job, slow=1)
    told = rig.job(job).reason
    assert told is not None
    assert told.code == "straggler"
    assert told.message.startswith(f"rank 1 on {at(rig, job, 1)} works 80% longer in each step than the others")
    assert "which wait for it 40% of the time" in told.message
    record = NODE_RECORDS.all(rig.state)[at(rig, job, 1)]
    assert [entry["kind"] for entry in record.history] == ["straggler"]
    assert (record.count, list(record.slow)) == (0, ["default/ada/job"])
    train(rig, job, slow=None)
    assert rig.job(job).reason is None
    assert rig.kinds(job)[-2:] == ["attempt.straggler", "attempt.steady"]
    assert rig.job(job).phase == "running"


def test_a_server_that_starts_anew_ends_what_an_earlier_one_told(rig: Rig) -> None:
    job = start(rig)
    train(rig, job, slow=1)
    rig.stragglers = Stragglers()
    rig.restart()
    train(rig, job, slow=None)
    assert rig.job(job).reason is None


def test_one_slow_program_is_never_moved(rig: Rig) -> None:
    moves(rig)
    for name in ("gpt", "gpt"):  # runs of the same program are slow wherever they run
        job = start(rig, name=name)
        train(rig, job, slow=0)
        save(rig, job, 10)
        assert "job.stopping" not in rig.kinds(job)
        rig.end(job)
        rig.tick()


@pytest.mark.parametrize("policy", ["move", "report"])
def test_a_job_leaves_a_node_that_several_programs_are_slow_on_after_its_next_checkpoint(rig: Rig, policy: str) -> None:
    if policy == "move":
        moves(rig)
    first = start(rig, name="gpt")
    bad = at(rig, first, 2)
    train(rig, first, slow=2)
    rig.end(first)
    rig.tick()
    job = start(rig, name="vit")
    worker = [at(rig, job, one) for one in range(3)].index(bad)
    save(rig, job, 5)
    train(rig, job, slow=worker)
    assert rig.job(job).phase == "running", "it has not saved since"
    save(rig, job, 10)
    stops = [event.data for event in rig.events if event.kind == "job.stopping" and event.job == job]
    if policy == "report":
        assert stops == []
        return
    (stop,) = stops
    assert (stop.reason.code, stop.then) == ("straggler_node", "queued")
    assert bad in stop.reason.message
    assert rig.state.nodes[bad].health == "draining"
    assert rig.kinds(job).count("attempt.planned") == 2
    assert rig.job(job).charges == {"preempted": 1}, "not a restart of `retry`"
    assert bad not in [at(rig, job, one) for one in range(3)]


def test_a_program_that_is_slow_on_two_nodes_says_nothing_of_either(rig: Rig) -> None:
    for name, worker in (("gpt", 0), ("vit", 0), ("gpt", 1)):
        job = start(rig, name=name)
        train(rig, job, slow=worker)
        slow = at(rig, job, worker)
        rig.end(job)
        rig.tick()
        if worker == 0:
            first = slow
    assert len(NODE_RECORDS.all(rig.state)[first].slow) == 2
    assert follows_node(rig.state, first, 0.0) == ()


def test_a_record_keeps_the_newest(rig: Rig) -> None:
    for number in range(HISTORY + 5):
        job = rig.submit(name=f"j{number}", num_nodes=1, resources={"accelerators": "H100:4"})
        rig.tick(1)
        told = AttemptStraggler(reason("straggler", f"number {number}"), {"evidence": "waiting"}, ["n0"])
        rig.tell(Event(told, rig.clock.now(), "", "default", job, rig.job(job).attempt.number))
        rig.end(job)
        rig.tick(2)
    record = NODE_RECORDS.all(rig.state)["n0"]
    assert (len(record.history), len(record.slow)) == (HISTORY, SLOW)
    assert record.history[-1]["text"] == f"number {HISTORY + 4}"
    assert [entry["seq"] for entry in record.history] == sorted({entry["seq"] for entry in record.history})
