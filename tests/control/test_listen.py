"""What the controller hears of workers and when it acts on it, by an engine that tells and by one that is asked."""

from __future__ import annotations

import pytest
from rig import OK, Rig, nodes

from muster.core.errors import Unavailable
from muster.core.event import Event
from muster.core.payload import decode
from muster.store.memory import MemoryStore


@pytest.fixture(params=[False, True], ids=["telling", "polled"])
def rig(request):
    made = Rig(polled=request.param)
    yield made
    made.close()


def restarted(rig: Rig, patience: float) -> Rig:
    rig.engine.patience = patience
    rig.restart()
    rig.tick()
    return rig


def test_a_tick_without_news_writes_nothing_and_wants_no_other(rig: Rig) -> None:
    rig.submit()
    rig.tick(3)
    before = rig.state.version
    rig.tick(3, seconds=1)
    assert rig.state.version == before
    assert not rig.controller.pending


def test_the_workers_own_word_is_waited_for(rig: Rig) -> None:
    restarted(rig, patience=10.0)
    job = rig.submit()
    rig.tick()
    rig.end(job)
    rig.tick()
    assert rig.job(job).phase == "running"
    assert 10.0 <= rig.controller.next_wake() - rig.clock.now() < 10.1
    rig.tick(seconds=9)
    assert rig.job(job).phase == "running"
    rig.tick(seconds=1.1)
    assert rig.job(job).phase == "succeeded"


def test_a_gang_runs_when_the_last_of_its_workers_does(rig: Rig) -> None:
    rig.engine.slow = True
    job = rig.submit(num_nodes=2)
    rig.tick(3)
    assert rig.job(job).phase == "starting"
    rig.engine.come_up(job, 1)
    rig.tick()
    assert rig.job(job).phase == "running"
    assert [worker.state for worker in rig.job(job).attempt.workers] == ["running", "running"]
    assert rig.kinds(job) == ["job.submitted", "attempt.planned", "attempt.running"]


def test_a_gang_without_a_sign_of_life_is_launched_once_more(rig: Rig) -> None:
    restarted(rig, patience=60.0)
    rig.engine.slow = True
    job = rig.submit()
    rig.tick()
    rig.engine._gangs.clear()  # it has no idea of it any more
    rig.tick(seconds=31)
    assert rig.engine.launches == [(job, 1)]
    rig.tick(seconds=6)
    assert rig.engine.launches == [(job, 1), (job, 1)]


def test_a_gang_that_vanished_without_a_word_is_noticed_in_the_end(rig: Rig) -> None:
    job = rig.submit(retry={"backoff": 0})
    rig.tick()
    rig.engine._gangs.clear()
    rig.tick(4, seconds=31)
    assert rig.job(job).charges == {"node": 1}
    assert rig.job(job).attempt.number == 2
    (ended,) = [event for event in rig.events if event.kind == "attempt.ended"]
    assert ended.data.reason.code == "launcher_lost"


def test_a_stop_before_the_gang_came_up_is_believed_after_a_while(rig: Rig) -> None:
    restarted(rig, patience=60.0)
    rig.engine.slow = True
    rig.engine.player = Deaf()
    job = rig.submit()
    rig.tick()
    rig.stop(job)
    rig.tick()
    assert rig.job(job).phase == "stopping"
    rig.tick(seconds=6)
    assert rig.job(job).phase == "stopped"


def test_news_that_could_not_be_written_are_not_lost() -> None:
    store = Forgetful()
    rig = Rig(store=store)
    job = rig.submit()
    rig.tick()
    rig.end(job)
    store.failures = 2
    for _ in range(2):
        with pytest.raises(Unavailable):
            rig.tick(1)
        assert rig.controller.pending
    rig.tick()
    assert rig.job(job).phase == "succeeded"
    rig.close()


def test_nodes_that_could_not_be_written_are_looked_at_again() -> None:
    store = Forgetful()
    rig = Rig(store=store)
    rig.engine.join(nodes(3)[2])
    store.failures = 1
    with pytest.raises(Unavailable):
        rig.tick(1)
    rig.tick()
    assert set(rig.state.nodes) == {"n0", "n1", "n2"}
    rig.close()


def test_what_others_write_during_a_tick_wakes_the_loop(rig: Rig) -> None:
    job = rig.submit()
    rig.tick(3)
    assert not rig.controller.pending
    attempt = rig.state.jobs[job].attempt.number
    data = {"worker": 0, "exit": OK.to_dict()}
    rig.tell(Event(decode("worker.ended", data), rig.clock.now(), project="default", job=job, attempt=attempt))
    assert rig.controller.pending
    rig.tick()
    assert rig.job(job).phase == "succeeded"


class Deaf:
    """Gangs that don't hear that they should stop."""

    def launched(self, gang) -> None:
        """It works."""

    def stopping(self, job: str, attempt: int, grace: float, reason: str) -> bool:
        return True


class Forgetful(MemoryStore):
    """A disk that is full for a while."""

    failures = 0

    def _write(self, batch) -> None:
        if self.failures:
            self.failures -= 1
            raise Unavailable("The disk is full.", "Make room.")
        super()._write(batch)
