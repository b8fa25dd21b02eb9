"""The tick, end to end on the engine without processes: golden event sequences and what must hold after a restart."""

from __future__ import annotations

import pytest
from rig import CRASHED, KILLED, LOST, OK, TIMED_OUT, Rig, nodes

from muster.core.entities.node import NodeHealth
from muster.core.errors import EngineError, Invalid, Refused
from muster.core.event import Event


@pytest.fixture(params=[False, True], ids=["telling", "polled"])
def rig(request):
    made = Rig(polled=request.param)
    yield made
    made.close()


def test_a_job_from_submit_to_success(rig: Rig) -> None:
    job = rig.submit(num_nodes=2, gpus=2)
    rig.tick()
    assert rig.job(job).phase == "running"
    rig.end(job)
    rig.tick()
    assert rig.kinds(job) == [
        "job.submitted", "attempt.planned", "attempt.running",
        "worker.ended", "worker.ended", "attempt.ended", "job.succeeded",
    ]  # fmt: skip
    assert rig.job(job).reason.code == "completed"
    assert rig.state.jobs == {}
    assert all(node.free == node.total and node.free_devices == 0b1111 for node in rig.state.nodes.values())
    assert rig.engine.poll() == []


def test_a_gang_starts_whole_or_not_at_all(rig: Rig) -> None:
    first = rig.submit(num_nodes=2, gpus=3)
    rig.tick()
    second = rig.submit(num_nodes=2, gpus=2)
    rig.tick()
    assert (rig.job(first).phase, rig.job(second).phase) == ("running", "queued")
    rig.end(first)
    rig.tick()
    assert rig.job(second).phase == "running"


def test_a_killed_worker_takes_the_gang_down_and_the_gang_comes_back(rig: Rig) -> None:
    job = rig.submit(num_nodes=2, gpus=1, retry={"max_restarts": 1, "backoff": "10s"})
    rig.tick()
    rig.end(job, KILLED, worker=1)
    rig.tick()
    waiting = rig.job(job)
    assert waiting.phase == "queued"
    assert waiting.reason.code == "killed_by_signal"
    assert waiting.reason.message == "rank 1 (pid 7) was killed by SIGKILL on n1"
    assert waiting.charges == {"worker": 1}
    rig.tick(seconds=9)
    assert rig.job(job).phase == "queued"
    rig.tick(seconds=2)
    assert rig.job(job).attempt.number == 2
    rig.end(job, KILLED, worker=0)
    rig.tick()
    assert rig.job(job).phase == "failed"
    assert rig.job(job).reason.code == "restarts_spent"
    assert rig.engine.launches == [(job, 1), (job, 2)]


def test_a_program_error_is_not_tried_again_unless_asked(rig: Rig) -> None:
    job = rig.submit()
    stubborn = rig.submit(retry={"on": ["error"], "max_restarts": 2, "backoff": 0})
    rig.tick()
    rig.end(job, CRASHED)
    rig.end(stubborn, CRASHED)
    rig.tick()
    assert (rig.job(job).phase, rig.job(job).reason.code) == ("failed", "user_error")
    assert rig.job(stubborn).attempt.number == 2


def test_a_lost_node_spends_its_own_budget(rig: Rig) -> None:
    job = rig.submit(retry={"max_restarts": 0, "backoff": 0})
    rig.tick()
    rig.end(job, LOST)
    rig.tick()
    assert rig.job(job).charges == {"node": 1}
    assert rig.job(job).attempt.number == 2


def test_max_duration_stops_the_job(rig: Rig) -> None:
    job = rig.submit(max_duration="1h")
    rig.tick()
    rig.end(job, TIMED_OUT)
    rig.tick()
    assert (rig.job(job).phase, rig.job(job).reason.code) == ("stopped", "max_duration")


def test_a_node_that_leaves_takes_its_workers_along(rig: Rig) -> None:
    job = rig.submit(num_nodes=2, gpus=1, retry={"backoff": 0})
    rig.tick()
    rig.engine.lose("n1")
    rig.tick(3, seconds=16)
    assert rig.job(job).phase == "queued"
    assert rig.job(job).attempt.reason.code == "node_lost"
    assert rig.job(job).charges == {"node": 1}


def test_stop_and_resume_keep_the_run(rig: Rig) -> None:
    job = rig.submit()
    rig.tick()
    rig.stop(job)
    rig.tick()
    stopped = rig.job(job)
    assert (stopped.phase, stopped.reason.code) == ("stopped", "user_stop")
    rig.resume(job)
    rig.tick()
    assert rig.job(job).phase == "running"
    assert rig.job(job).attempt.number == 2
    rig.end(job)
    rig.tick()
    assert rig.job(job).phase == "succeeded"
    with pytest.raises(Invalid, match="has succeeded"):
        rig.resume(job)


def test_a_queued_job_stops_at_once_and_a_finished_one_says_so(rig: Rig) -> None:
    running = rig.submit(num_nodes=2, gpus=4)
    waiting = rig.submit(num_nodes=2, gpus=4)
    rig.tick()
    rig.stop(waiting)
    assert rig.job(waiting).phase == "stopped"
    with pytest.raises(Invalid, match="ended already"):
        rig.stop(waiting)
    rig.end(running)
    rig.tick()
    assert rig.job(waiting).phase == "stopped"


def test_a_job_stopped_before_its_launch_is_not_left_behind(rig: Rig) -> None:
    def refuse(gang):
        raise OSError("disk full")

    rig.engine.refuse = refuse
    job = rig.submit()
    rig.tick(1)
    assert rig.job(job).phase == "starting"
    rig.stop(job)
    rig.tick()
    assert rig.job(job).phase == "stopped"


def test_a_launch_that_can_never_work_is_told_and_tried_elsewhere(rig: Rig) -> None:
    def refuse(gang):
        raise EngineError("no such image")

    rig.engine.refuse = refuse
    job = rig.submit(retry={"backoff": "1h"})
    rig.tick(3)
    assert rig.job(job).phase == "queued"
    assert rig.job(job).attempt.reason.code == "launch_failed"
    assert "no such image" in rig.job(job).attempt.reason.message


def test_a_full_disk_at_launch_is_waited_out(rig: Rig) -> None:
    failures = [OSError("disk full"), OSError("disk full")]

    def refuse(gang):
        if failures:
            raise failures.pop()

    rig.engine.refuse = refuse
    job = rig.submit()
    rig.tick(4)
    assert rig.job(job).phase == "running"
    assert rig.job(job).attempt.number == 1


def test_a_job_that_can_never_fit_is_refused_with_the_nearest_shape(rig: Rig) -> None:
    with pytest.raises(Refused, match="only 2 such exist") as caught:
        rig.submit(num_nodes=3, gpus=1)
    assert "num_nodes: 2" in caught.value.hint
    with pytest.raises(Refused, match="9 GPU wanted, 4 there"):
        rig.submit(gpus=9)
    with pytest.raises(Refused, match="no A100"):
        rig.submit(gpus="A100:1")


def test_a_higher_priority_goes_first(rig: Rig) -> None:
    rig.submit(num_nodes=2, gpus=4)
    rig.tick()
    low, high = rig.submit(gpus=4, num_nodes=2, priority="low"), rig.submit(gpus=4, num_nodes=2, priority="high")
    rig.end("job-1")
    rig.tick()
    assert (rig.job(low).phase, rig.job(high).phase) == ("queued", "running")


def test_nothing_starts_on_a_draining_node() -> None:
    rig = Rig(nodes(1))
    rig.tell(Event(NodeHealth(name="n0", health="draining", reason="a test"), rig.clock.now()))
    job = rig.submit()
    rig.tick()
    assert rig.job(job).phase == "queued"
    rig.close()


def test_a_restarted_server_adopts_what_runs_and_starts_nothing_twice(rig: Rig) -> None:
    running, waiting = rig.submit(num_nodes=2, gpus=4), rig.submit(num_nodes=2, gpus=4)
    rig.tick()
    rig.restart()
    rig.tick()
    assert rig.engine.launches == [(running, 1)]
    rig.end(running)
    rig.restart()
    rig.tick()
    assert rig.job(running).phase == "succeeded"
    assert rig.job(waiting).phase == "running"


def test_a_plan_that_was_committed_but_not_launched_is_launched_after_the_restart(rig: Rig) -> None:
    down = [True]

    def refuse(gang):
        if down[0]:
            raise OSError("killed before the launch")

    rig.engine.refuse = refuse
    job = rig.submit()
    rig.tick(1)
    rig.restart()
    down[0] = False
    rig.tick()
    assert rig.job(job).phase == "running"
    assert rig.engine.launches == [(job, 1)]


def test_a_gang_that_the_state_does_not_know_is_stopped_and_forgotten(rig: Rig) -> None:
    job = rig.submit()
    rig.tick()
    gang = rig.engine._gangs[(job, 1)].launch
    rig.end(job, OK)
    rig.tick()
    rig.engine._forgotten.clear()
    rig.engine.launch(gang)
    rig.tick(3)
    assert rig.engine.poll() == []
