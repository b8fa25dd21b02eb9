"""Jobs that need others: when they start, what ends them, what a name means, and what a killed server makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rig import CRASHED, KILLED, Rig

from muster.control.needs import in_order
from muster.control.reconcile import gang_of
from muster.control.submit import Submission, submit, submit_together
from muster.core.attempt_events import AttemptEnded
from muster.core.entities.project import ProjectSet
from muster.core.entities.queue import QueueSet
from muster.core.errors import MusterError, Refused
from muster.core.event import Event
from muster.core.job_events import JobSucceeded
from muster.core.parse import parse_job
from muster.core.reasons import reason
from muster.sched.board import Board
from muster.sched.explain import explain
from muster.sched.forecast import forecast
from muster.sched.snapshot import take
from muster.sched.whatif import unsubmitted_job, what_if
from muster.store.memory import MemoryStore
from muster.store.sql import SqlStore
from store_kit import check_against_log


@pytest.fixture(params=["memory", "sqlite"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    made = Rig(store=MemoryStore() if request.param == "memory" else SqlStore(f"sqlite:///{tmp_path}/log.db"))
    yield made
    made.close()
    made.store.close()


def codes(error: MusterError) -> list[str]:
    assert isinstance(error, Refused)
    return [one.code for one in error.reasons]


def together(rig: Rig, *specs: dict[str, object]) -> tuple[dict[int, Event], dict[int, MusterError]]:
    submissions = [Submission(parse_job({"run": "true", **spec}), "ada") for spec in specs]
    accepted, refused = dict[int, Event](), dict[int, MusterError]()
    rig._propose(submit_together(rig.store, submissions, rig.clock.now(), False, accepted, refused))
    return accepted, refused


def reason_of(rig: Rig, job: str) -> str:
    found = rig.job(job).reason
    return found.code if found else ""


def test_it_starts_when_what_it_needs_has_succeeded(rig: Rig) -> None:
    first = rig.submit(name="prepare")
    job = rig.submit(name="train", needs=["prepare"])
    assert rig.job(job).needs == ((first, "succeeded"),)
    rig.tick()
    assert (rig.job(first).phase, rig.job(job).phase) == ("running", "queued")
    (why,) = explain(rig.state, rig.state.jobs[job], rig.clock.now())
    assert (why.code, why.data["jobs"]) == ("waits_for_jobs", [first])
    assert f"until {first} (running) succeeds" in why.message
    rig.tick(seconds=60)
    rig.end(first)
    rig.tick()
    found = rig.job(job)
    assert (rig.job(first).phase, found.phase, found.waited) == ("succeeded", "running", 0.0)
    gang = gang_of(found, "token")
    assert gang.envs["MUSTER_NEEDS_PREPARE"] == first
    check_against_log(rig.store)


def test_a_restart_of_what_it_needs_is_not_its_end(rig: Rig) -> None:
    first = rig.submit(name="prepare", retry={"backoff": 0})
    job = rig.submit(name="train", needs=["prepare"])
    rig.tick()
    rig.end(first, KILLED)
    rig.tick()
    assert (rig.job(first).phase, rig.job(job).phase) == ("running", "queued")
    rig.end(first)
    rig.tick()
    assert rig.job(job).phase == "running"


@pytest.mark.parametrize(
    ("wanted", "exit_", "phase"),
    [("failed", CRASHED, "running"), ("ended", CRASHED, "running"), ("succeeded", CRASHED, "stopped")],
)
def test_how_it_has_to_end(rig: Rig, wanted, exit_, phase) -> None:
    first = rig.submit(name="prepare")
    job = rig.submit(name="clean", needs={"prepare": wanted})
    rig.tick()
    rig.end(first, exit_)
    rig.tick()
    assert (rig.job(first).phase, rig.job(job).phase) == ("failed", phase)
    check_against_log(rig.store)


def test_those_behind_a_failure_end_all_along_the_chain(rig: Rig) -> None:
    first = rig.submit(name="prepare")
    train = rig.submit(name="train", needs=["prepare"])
    test = rig.submit(name="test", needs=[train])
    tidy = rig.submit(name="tidy", needs={"test": "ended"})
    rig.tick()
    rig.end(first, CRASHED)
    rig.tick(times=4)
    assert [rig.job(one).phase for one in (first, train, test)] == ["failed", "stopped", "stopped"]
    assert (reason_of(rig, train), reason_of(rig, test)) == ("needed_job_failed", "needed_job_failed")
    why = rig.job(test).reason
    assert why is not None
    assert (why.data["job"], why.data["phase"]) == (train, "stopped")
    assert f"muster resume {train} {test}" in why.hint
    assert rig.job(tidy).phase == "running"
    assert not rig.state.dependents
    check_against_log(rig.store)


def test_both_go_on_when_both_are_resumed_in_their_order(rig: Rig) -> None:
    first, other = rig.submit(name="prepare"), rig.submit(name="fetch")
    job = rig.submit(name="train", needs=["prepare", "fetch"])
    rig.tick()
    rig.stop(first, grace=0)
    rig.end(first, CRASHED)
    rig.tick(times=3)
    assert (rig.job(first).phase, rig.job(job).phase, rig.job(other).phase) == ("stopped", "stopped", "running")
    with pytest.raises(Refused) as caught:
        rig.resume(job)
    assert codes(caught.value) == ["need_not_met"]
    assert f"muster resume {first}" in str(caught.value.reasons[0].hint)
    rig.resume(first)
    rig.resume(job)
    rig.tick()
    assert rig.state.jobs[job].awaits == (first, other)
    rig.end(first)
    rig.end(other)
    rig.tick()
    assert rig.job(job).phase == "running"
    check_against_log(rig.store)


def test_a_server_that_is_killed_between_the_end_and_the_start(rig: Rig) -> None:
    first = rig.submit(name="prepare")
    job, doomed = rig.submit(name="train", needs=["prepare"]), rig.submit(name="mourn", needs={"prepare": "failed"})
    rig.tick()
    rig.restart()
    rig.tick()
    assert (rig.job(job).phase, rig.state.dependents) == ("queued", {first: {job: None, doomed: None}})
    rig.end(first)
    events = _ends(rig, first)
    rig.tell(*events)
    assert (list(rig.state.settled), rig.state.jobs[job].awaits) == ([doomed], ())
    rig.restart()
    assert (list(rig.state.settled), rig.state.jobs[job].awaits) == ([doomed], ())
    rig.tick()
    assert (rig.job(job).phase, rig.job(doomed).phase) == ("running", "stopped")
    check_against_log(rig.store)


def _ends(rig: Rig, job: str) -> list[Event]:
    """What a tick commits when the job's gang has ended, without what follows from it."""
    done = reason("completed")
    return [
        Event(AttemptEnded("succeeded", done), rig.clock.now(), job=job, project="default", attempt=1),
        Event(JobSucceeded(done), rig.clock.now(), job=job, project="default", attempt=1),
    ]


def test_a_job_that_is_over_already(rig: Rig) -> None:
    first = rig.submit(name="prepare")
    rig.tick()
    rig.end(first)
    rig.tick()
    job = rig.submit(name="train", needs=["prepare"])
    assert (rig.job(job).needs, rig.job(job).awaits) == (((first, "succeeded"),), ())
    with pytest.raises(Refused) as caught:
        rig.submit(name="mourn", needs={"prepare": "failed"})
    assert codes(caught.value) == ["need_not_met"]


def test_a_name_means_the_one_that_lives_else_the_newest(rig: Rig) -> None:
    old = rig.submit(name="prepare")
    new = rig.submit(name="prepare")
    with pytest.raises(Refused) as caught:
        rig.submit(name="train", needs=["prepare"])
    assert codes(caught.value) == ["unknown_need"]
    assert f"{new}, {old}" in caught.value.reasons[0].message
    assert rig.job(rig.submit(name="train", needs=[new])).awaits == (new,)
    rig.tick()
    rig.end(new)
    rig.tick()
    assert rig.job(rig.submit(name="train", needs=["prepare"])).awaits == (old,)
    rig.end(old)
    rig.tick()
    assert rig.job(rig.submit(name="train", needs=["prepare"])).needs == ((new, "succeeded"),)


def test_every_need_that_there_is_not_is_told_at_once_and_other_projects_are_not_seen(rig: Rig) -> None:
    rig.tell(Event(ProjectSet(name="other"), 1.0), Event(QueueSet(name="theirs", project="other"), 1.0))
    theirs = rig.submit(name="secret", project="other", queue="theirs")
    with pytest.raises(Refused) as caught:
        rig.submit(name="train", needs=["nothing", theirs, "secret"], queue="nowhere")
    assert codes(caught.value) == ["unknown_queue", "unknown_need", "unknown_need", "unknown_need"]
    assert len({one.message.replace(one.data.get("need", ""), "") for one in caught.value.reasons[1:]}) == 1


def test_jobs_of_one_call_are_submitted_in_the_order_of_their_needs_or_not_at_all(rig: Rig) -> None:
    accepted, refused = together(
        rig, {"name": "test", "needs": ["train"]}, {"name": "train", "needs": {"prepare": "ended"}}, {"name": "prepare"}
    )
    assert not refused
    test, train, prepare = (accepted[i].job for i in range(3))
    assert [rig.job(one).awaits for one in (prepare, train, test)] == [(), (prepare,), (train,)]
    before = rig.state.version
    _, refused = together(
        rig,
        {"name": "a", "needs": ["b"]},
        {"name": "b", "needs": ["a"]},
        {"name": "c", "needs": ["none"]},
        {"name": "d"},
    )
    told = [codes(refused[i]) for i in range(4)]
    assert told == [["needs_circle"], ["needs_circle"], ["unknown_need"], ["submitted_together"]]
    assert rig.state.version == before
    check_against_log(rig.store)


def test_a_long_chain_is_put_in_order(rig: Rig) -> None:
    specs = [parse_job({"name": f"j{i}", "run": "true", "needs": [f"j{i + 1}"] if i < 499 else []}) for i in range(500)]
    assert in_order(specs) == (list(range(499, -1, -1)), [])


def test_a_long_chain_ends_in_one_tick(rig: Rig) -> None:
    chain = [rig.submit(name="j0")]
    for i in range(1, 50):
        chain.append(rig.submit(name=f"j{i}", needs=[chain[-1]]))
    rig.tick()
    rig.end(chain[0], CRASHED)
    rig.tick(times=1)
    assert {rig.job(job).phase for job in chain[1:]} == {"stopped"}
    why = rig.job(chain[-1]).reason
    assert why is not None
    assert why.data["job"] == chain[-2]
    check_against_log(rig.store)


def test_more_needs_than_a_job_may_have() -> None:
    with pytest.raises(MusterError, match="at most 100"):
        parse_job({"run": "true", "needs": [f"j{i}" for i in range(101)]})


def test_stopping_one_that_waits_leaves_nothing_behind(rig: Rig) -> None:
    first = rig.submit(name="prepare")
    job = rig.submit(name="train", needs=["prepare"])
    rig.stop(job)
    assert (rig.job(job).phase, rig.state.dependents) == ("stopped", {})
    rig.tick()
    rig.end(first)
    rig.tick()
    check_against_log(rig.store)


def test_the_forecast_goes_through_what_it_needs(rig: Rig) -> None:
    for _ in range(40):  # so that the history knows how long jobs run
        name = rig.submit(name="prepare")
        rig.tick()
        rig.tick(seconds=100)
        rig.end(name)
        rig.tick()
    first = rig.submit(name="prepare")
    job = rig.submit(name="train", needs=["prepare"])
    rig.tick()
    now = rig.clock.now()
    found = forecast(rig.state, now, jobs=[job])[job]
    assert found.p50 is not None
    assert found.p50 > now
    spec = parse_job({"name": "more", "run": "true", "needs": [first]})
    made = unsubmitted_job(rig.state, spec, "ada", now, {first: "succeeded"})
    answer = what_if(take(rig.state, Board(), now, made.awaits, users=[made]), made)
    assert (answer.starts_now, [one.code for one in answer.reasons]) == (False, ["waits_for_jobs"])
    assert answer.forecast.p50 is not None
    assert answer.forecast.p50 > now


def test_needs_of_a_job_without_nodes_are_refused() -> None:
    with pytest.raises(MusterError, match="without nodes"):
        parse_job({"name": "sweep", "kind": "sweep", "num_nodes": 0, "needs": ["prepare"]})


def test_a_key_gives_the_same_job_although_the_name_means_another_by_now(rig: Rig) -> None:
    rig.submit(name="prepare")
    spec = parse_job({"name": "train", "run": "true", "needs": ["prepare"]})
    one = Submission(spec, "ada", key="once")
    (event,) = rig._propose(submit(rig.store, one, rig.clock.now(), local=False))
    rig.submit(name="prepare")
    assert rig._propose(submit(rig.store, one, rig.clock.now(), local=False)) == []
    assert rig.job(event.job).spec == spec
