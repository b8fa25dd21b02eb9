"""Every wait has a named reason, with what would change it."""

from __future__ import annotations

from muster.core.event import Event
from muster.core.state import State, apply
from muster.sched.explain import explain
from worlds import estate, fold, job_event, node_event


def world(*jobs: Event) -> State:
    return fold([*estate(), node_event("n0", 2, 8), node_event("n1", 2, 8), *jobs])


def occupy(state: State, job: str, *nodes: str) -> None:
    seats = [{"node": node, "devices": [0, 1]} for node in nodes]
    apply(state, Event("attempt.planned", 50.0, job=job, attempt=1, data={"seats": seats}, seq=state.version + 1))


def codes(state: State, job: str, now: float = 60.0) -> list[str]:
    return [found.code for found in explain(state, state.jobs[job], now)]


def test_the_head_of_the_line_is_about_to_start() -> None:
    assert codes(world(job_event(1, gpus=1)), "job-1") == ["about_to_start"]


def test_a_full_cluster_names_who_holds_it() -> None:
    state = world(job_event(1, gpus=2, num_nodes=2), job_event(2, gpus=1))
    occupy(state, "job-1", "n0", "n1")
    (found,) = explain(state, state.jobs["job-2"], 60.0)
    assert found.code == "no_capacity"
    assert found.data["holders"] == ["job-1"]
    assert "0 of 2 nodes" in found.message


def test_those_behind_say_who_goes_first_and_brief_is_cheaper() -> None:
    state = world(job_event(1, gpus=2, num_nodes=2), job_event(2, gpus=2, num_nodes=2), job_event(3, gpus=1))
    occupy(state, "job-1", "n0", "n1")
    assert codes(state, "job-3") == ["behind_in_queue", "no_capacity"]
    (brief,) = explain(state, state.jobs["job-3"], 60.0, brief=True)
    assert brief.data == {"ahead": 1, "first": ["job-2"]}


def test_a_backing_off_job_says_until_when() -> None:
    state = world(job_event(1, gpus=1))
    state.jobs["job-1"].not_before = 90.0
    (found,) = explain(state, state.jobs["job-1"], 60.0)
    assert (found.code, found.data["until"]) == ("backing_off", 90.0)


def test_unhealthy_nodes_are_named() -> None:
    state = world(job_event(1, gpus=1, num_nodes=2))
    state.nodes["n1"].health = "quarantined"
    (found,) = explain(state, state.jobs["job-1"], 60.0)
    assert found.code == "nodes_unhealthy"
    assert "n1 (quarantined)" in found.message
