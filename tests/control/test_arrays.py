"""Job arrays: one submission, a job for each index, at most so many at once, and one end for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rig import CRASHED, Rig, nodes

from muster.control.quota import Quota
from muster.control.reconcile import gang_of
from muster.control.submit import Submission, submit, submit_together
from muster.core.array import Array, format_array, parse_array, task_id
from muster.core.errors import Invalid, MusterError, Refused, SpecError
from muster.core.event import Event
from muster.core.parse import parse_job
from muster.core.units import InvalidValue
from muster.sched.explain import explain
from muster.sched.forecast import forecast
from muster.store.base import JobFilter
from muster.store.memory import MemoryStore
from muster.store.sql import SqlStore
from store_kit import check_against_log


@pytest.fixture(params=["memory", "sqlite"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    store = MemoryStore() if request.param == "memory" else SqlStore(f"sqlite:///{tmp_path}/log.db")
    made = Rig(nodes(4, gpus=4, cpus=8), store=store)
    yield made
    made.close()
    made.store.close()


def tasks(rig: Rig, array: str, phase: str | None = None) -> list[str]:
    found = rig.store.jobs(JobFilter(parent=array, phases=None if phase is None else (phase,), limit=1000))
    return [job.id for job in reversed(found)]


# --- what is written --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("written", "indexes", "limit"),
    [("1-4", (1, 2, 3, 4), None), ("0-9:3%2", (0, 3, 6, 9), 2), ([3, 5, 9], (3, 5, 9), None), (7, (7,), None),
     ("1, 5-7", (1, 5, 6, 7), None), (["1-3", "8"], (1, 2, 3, 8), None), ("9,1%1", (1, 9), 1)],
)  # fmt: skip
def test_indexes(written, indexes, limit):
    spec = parse_job({"run": "true", "array": written})
    assert spec.array is not None
    assert parse_array(spec.array) == Array(indexes, limit)


@pytest.mark.parametrize(
    ("written", "hint"),
    [("", ""), ("a", ""), ("1-", ""), ("-1", ""), ("4-1", "write `1-4`"), ("1-9:0", "at least 1"), ("1-4%0", "at once"),
     ("1,1", "each once"), ("1-3,2", "each once"), ("0-999999", "at most 100,000"), ("1000000", "0 to 999999"),
     ([], "")],
)  # fmt: skip
def test_mistakes(written, hint):
    with pytest.raises(SpecError) as caught:
        parse_job({"run": "true", "array": written})
    (problem,) = caught.value.problems
    assert problem.where == "array"
    assert hint in problem.hint


@given(st.sets(st.integers(0, 60), min_size=1), st.none() | st.integers(1, 9))
def test_what_is_written_is_read_back(indexes, limit):
    array = Array(tuple(sorted(indexes)), limit)
    assert parse_array(format_array(array)) == array


@given(st.text("0123456789-,:% ", max_size=12))
def test_any_text_is_an_array_or_a_mistake(text):
    try:
        array = parse_array(text)
    except InvalidValue:
        return
    assert parse_array(format_array(array)) == array


# --- what runs --------------------------------------------------------------------------------------------------------
def test_every_index_is_a_job_of_its_own(rig: Rig) -> None:
    array = rig.submit(name="sweep", array="3-9:3", envs={"SLURM_ARRAY_TASK_MAX": "mine"})
    rig.tick()
    found = [rig.job(task) for task in tasks(rig, array)]
    assert [(job.name, job.index, job.phase) for job in found] == [
        ("sweep[3]", 3, "running"), ("sweep[6]", 6, "running"), ("sweep[9]", 9, "running"),
    ]  # fmt: skip
    assert rig.job(array).phase == "running"
    assert [task_id(rig.job(array), index) for index in (3, 4, 9)] == [found[0].id, None, found[2].id]
    envs = gang_of(found[1], "token").envs
    assert envs == {
        "MUSTER_ARRAY_JOB": array, "MUSTER_ARRAY_INDEX": "6", "MUSTER_ARRAY_COUNT": "3", "MUSTER_ARRAY_MIN": "3",
        "MUSTER_ARRAY_MAX": "9", "SLURM_ARRAY_JOB_ID": array, "SLURM_ARRAY_TASK_ID": "6", "SLURM_ARRAY_TASK_COUNT": "3",
        "SLURM_ARRAY_TASK_MIN": "3", "SLURM_ARRAY_TASK_MAX": "mine",
    }  # fmt: skip
    for job in found:
        rig.end(job.id)
    rig.tick()
    over = rig.job(array)
    assert (over.phase, over.outcomes, over.reason and over.reason.message) == (
        "succeeded", {"succeeded": 3}, "all 3 tasks succeeded",
    )  # fmt: skip
    assert (rig.state.tasks, rig.state.live, rig.state.settled) == ({}, {}, {})
    check_against_log(rig.store)


def test_no_more_than_the_limit_run_at_once(rig: Rig) -> None:
    array = rig.submit(name="sweep", array="0-9%4")
    most, done = 0, 0
    rig.restart()
    while rig.state.jobs:
        rig.tick()
        running = tasks(rig, array, "running")
        most = max(most, len(running))
        assert len(running) == min(4, 10 - done)
        if len(running) == 4:
            waits = rig.state.jobs[tasks(rig, array, "queued")[0]] if done < 6 else None
            if waits is not None:
                assert [one.code for one in explain(rig.state, waits, rig.clock.now())] == ["array_limit"]
        rig.end(running[0])
        done += 1
        rig.tick(seconds=1)
        check_against_log(rig.store)
    assert (most, done, rig.job(array).phase) == (4, 10, "succeeded")


def test_tasks_are_started_in_the_order_of_their_indexes(rig: Rig) -> None:
    array = rig.submit(name="sweep", array=[1, 5, 9], num_nodes=4, cpus=8)
    order = []
    for _ in range(3):
        rig.tick()
        (running,) = tasks(rig, array, "running")
        order.append(rig.job(running).index)
        rig.end(running)
    assert order == [1, 5, 9]


def test_a_task_that_fails_fails_the_array_and_what_needs_it(rig: Rig) -> None:
    array = rig.submit(name="sweep", array="1-3")
    behind, anyway = rig.submit(name="join", needs=["sweep"]), rig.submit(name="tidy", needs={"sweep": "ended"})
    one = rig.submit(name="one", needs=["sweep[2]"])
    rig.tick()
    first, second, third = tasks(rig, array)
    assert rig.job(one).needs == ((second, "succeeded"),)
    rig.end(first, CRASHED)
    rig.end(second)
    rig.tick()
    assert [rig.job(job).phase for job in (behind, anyway, one)] == ["queued", "queued", "running"]
    rig.end(third)
    rig.tick(times=3)
    over = rig.job(array)
    assert (over.phase, over.reason and over.reason.code) == ("failed", "tasks_failed")
    assert "1 failed, 2 succeeded" in (over.reason.message if over.reason else "")
    assert [rig.job(job).phase for job in (behind, anyway)] == ["stopped", "running"]
    check_against_log(rig.store)


def test_the_tasks_of_an_array_wait_for_what_it_needs(rig: Rig) -> None:
    first = rig.submit(name="prepare")
    array = rig.submit(name="sweep", array="1-3%2", needs=["prepare"])
    rig.tick()
    assert len(tasks(rig, array, "queued")) == 3
    assert rig.state.jobs[tasks(rig, array)[0]].awaits == (first,)
    rig.end(first)
    rig.tick()
    assert len(tasks(rig, array, "running")) == 2


def test_those_of_an_array_whose_need_failed_all_end(rig: Rig) -> None:
    first = rig.submit(name="prepare")
    array = rig.submit(name="sweep", array="1-5%2", needs=["prepare"])
    rig.tick()
    rig.end(first, CRASHED)
    rig.tick(times=4)
    assert len(tasks(rig, array, "stopped")) == 5
    assert (rig.job(array).phase, rig.state.jobs) == ("stopped", {})
    check_against_log(rig.store)


def test_stop_and_resume_are_for_all_tasks_or_for_one(rig: Rig) -> None:
    array = rig.submit(name="sweep", array="1-5%2")
    rig.tick()
    first, second, *others = tasks(rig, array)
    rig.end(first)
    rig.tick()
    rig.stop(array, grace=0)
    for job in tasks(rig, array, "stopping"):
        rig.end(job, CRASHED)
    rig.tick(times=3)
    assert rig.job(first).phase == "succeeded"
    assert {rig.job(job).phase for job in (second, *others)} == {"stopped"}
    assert (rig.job(array).phase, rig.state.jobs) == ("stopped", {})
    rig.resume(others[0])
    rig.tick()
    assert (rig.job(array).phase, tasks(rig, array, "running")) == ("running", [others[0]])
    rig.resume(array)
    rig.tick()
    check_against_log(rig.store)
    assert len(tasks(rig, array, "running")) == 2
    assert rig.job(array).outcomes == {"succeeded": 1}
    with pytest.raises(Invalid, match="No task"):
        rig.resume(array)
    while running := tasks(rig, array, "running"):
        rig.end(running[0])
        rig.tick(times=3)
    assert (rig.job(array).phase, rig.job(array).outcomes) == ("succeeded", {"succeeded": 5})
    check_against_log(rig.store)


def test_a_server_that_is_killed_before_the_array_has_ended(rig: Rig) -> None:
    array = rig.submit(name="sweep", array="1-2")
    for job in tasks(rig, array):
        rig.stop(job)
    assert list(rig.state.settled) == [array]
    rig.restart()
    assert list(rig.state.settled) == [array]
    rig.tick()
    assert rig.job(array).phase == "stopped"
    check_against_log(rig.store)


def test_an_array_counts_as_many_jobs_against_the_limits(rig: Rig) -> None:
    def ask(spec: dict[str, object], quota: Quota) -> MusterError | None:
        one = Submission(parse_job({"name": "sweep", "run": "true", **spec}), "ada")
        try:
            rig._propose(submit(rig.store, one, rig.clock.now(), local=False, quota=quota))
        except Refused as error:
            return error
        return None

    refused = ask({"array": "1-6"}, Quota(jobs_per_user=5))
    assert refused is not None
    assert "asks for 6 more, and may have 5" in str(refused.to_dict())
    assert "may have 5" in str(ask({"array": "1-6"}, Quota(tasks_per_array=5)))
    assert ask({"array": "1-5"}, Quota(jobs_per_user=5, tasks_per_array=5)) is None
    assert ask({}, Quota(jobs_per_user=5)) is not None
    assert rig.state.live["user", "ada"] == 5


def test_an_array_and_what_needs_it_in_one_call(rig: Rig) -> None:
    specs = [{"name": "join", "needs": ["sweep", "sweep[2]"]}, {"name": "sweep", "array": "1-2"}, {"name": "more"}]
    accepted, refused = dict[int, Event](), dict[int, MusterError]()
    submissions = [Submission(parse_job({"run": "true", **spec}), "ada") for spec in specs]
    rig._propose(submit_together(rig.store, submissions, rig.clock.now(), False, accepted, refused))
    assert not refused
    array = accepted[1].job
    assert rig.job(accepted[0].job).awaits == (array, tasks(rig, array)[1])
    assert len({job.number for job in rig.store.jobs(JobFilter())}) == 5
    check_against_log(rig.store)


def test_the_forecast_goes_through_the_tasks_of_an_array(rig: Rig) -> None:
    array = rig.submit(name="sweep", array="1-6%2")
    job = rig.submit(name="join", needs=["sweep"])
    rig.tick()
    now = rig.clock.now()
    last = tasks(rig, array)[-1]
    found = forecast(rig.state, now, jobs=[job, last])
    assert found[last].p50 is not None
    assert found[job].p50 is not None
    assert now < found[last].p50 < found[job].p50


def test_arrays_are_listed_without_their_tasks(rig: Rig) -> None:
    array = rig.submit(name="sweep", array="1-3")
    rig.tick()
    assert [job.id for job in rig.store.jobs(JobFilter(tasks=False))] == [array]
    assert rig.store.task_phases([array]) == {array: {"running": 3}}
    assert [job.id for job in rig.store.jobs(JobFilter(name="sweep"))] == [array]
