"""The priority of a job that is not over: who may have which, what follows, and that it stays."""

from __future__ import annotations

from pathlib import Path

import pytest
from rig import Rig, nodes

from muster.control.set_priority import set_priority
from muster.core.entities.queue import QueueSet
from muster.core.errors import Invalid, Refused
from muster.core.event import Event
from muster.store.registry import open_store


@pytest.fixture
def rig(tmp_path: Path):
    made = Rig(nodes(1), store=open_store(f"sqlite:///{tmp_path}/m.db"))
    made.tell(Event(QueueSet("default", "default", 10, 60), 1.0))
    yield made
    made.close()
    made.store.close()


def change(rig: Rig, job: str, priority: int) -> None:
    rig._propose(set_priority(job, priority, "eve", rig.clock.now()))


def test_a_queued_job_goes_before_others_and_keeps_its_priority_over_a_restart(rig: Rig) -> None:
    rig.submit(gpus=4)
    rig.tick()
    first, second = rig.submit(gpus=4), rig.submit(gpus=4)
    rig.tick()
    change(rig, second, 60)
    rig.restart()
    assert (rig.job(second).priority, rig.job(second).spec.priority) == (60, 50), "the spec is as it was given"
    rig.stop(rig.state.by_number[1], grace=0.0)
    rig.end(rig.state.by_number[1])
    rig.tick(4)
    assert (rig.job(first).phase, rig.job(second).active) == ("queued", True)
    (event,) = [one for one in rig.events if one.kind == "job.priority"]
    assert (event.actor, event.data.to_doc()) == ("eve", {"priority": 60, "reason": "set by eve"})


def test_it_is_raised_within_the_range_of_the_queue_and_lowered_as_one_likes(rig: Rig) -> None:
    job = rig.submit(gpus=4, priority=40)
    with pytest.raises(Refused, match="admits priorities 10 to 60, the job asks for 61"):
        change(rig, job, 61)
    change(rig, job, 0)
    with pytest.raises(Refused, match="asks for 9"):
        change(rig, job, 9)  # what it could not be submitted with
    change(rig, job, 60)
    before = len(rig.events)
    change(rig, job, 60)
    assert len(rig.events) == before, "nothing has changed, and nothing is written"


def test_all_tasks_of_an_array_that_are_not_over(rig: Rig) -> None:
    array = rig.submit(gpus=4, array="0-2")
    rig.tick()
    rig.end(rig.state.by_number[2])
    rig.tick(3)
    change(rig, array, 20)
    assert [rig.job(name).priority for name in ("job-1", "job-2", "job-3", "job-4")] == [20, 50, 20, 20]


def test_a_job_that_is_over_has_none_and_one_that_is_resumed_keeps_it(rig: Rig) -> None:
    job = rig.submit(gpus=4)
    change(rig, job, 60)
    rig.stop(job)
    with pytest.raises(Invalid, match="has ended already"):
        change(rig, job, 20)
    rig.tell(Event(QueueSet("default", "default", 10, 55), 2.0))
    with pytest.raises(Refused, match="asks for 60"):
        rig.resume(job)
    rig.tell(Event(QueueSet("default", "default", 10, 60), 3.0))
    rig.resume(job)
    assert rig.job(job).priority == 60
