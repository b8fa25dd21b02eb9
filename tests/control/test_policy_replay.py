"""Jobs of the past under proposed rules: counted against the rules in force, page by page, with who is affected."""

from __future__ import annotations

from typing import Any

from muster.control import policy_replay
from muster.control.policy_replay import jobs_to_judge, replay, world_of
from muster.core.event import Event
from muster.core.job import Job
from muster.core.rules import PoolRules, ProjectRules, QueueRules, Rules
from muster.store.memory import MemoryStore
from scheduler_kit import entities, job_event, node_event

PROPOSED = Rules(
    queues={"default": QueueRules(max_accelerators_per_user=8)},
    projects={"default": ProjectRules(require=("purpose",), missing="refuse")},
)


def stored(*jobs: dict[str, Any], rules: Rules | None = None) -> MemoryStore:
    store = MemoryStore()
    store.open()
    events: list[Event] = [*entities(), node_event("n0", 8, 64), node_event("n1", 8, 64)]
    events += [job_event(number, **spec) for number, spec in enumerate(jobs, 1)]
    store.append(events)
    return store


def judged(store: MemoryStore, proposed: Rules, since: float = 0.0) -> Any:
    jobs, _ = jobs_to_judge(store, since, None)
    return replay(jobs, proposed, world_of(store.state()), {})


def test_only_what_the_proposed_rules_change_counts() -> None:
    store = stored({"purpose": "a"}, {}, {"gpus": 16}, {"gpus": 8, "num_nodes": 2, "purpose": "b"})
    found = judged(store, PROPOSED)
    assert (found.judged, found.refused, found.refused_live) == (4, 3, 3)
    views = {one["code"]: one for one in found.views()}
    assert {code: one["jobs"] for code, one in views.items()} == {"required_missing": 2, "never_allowed": 2}
    assert views["required_missing"]["users"] == {"ada": 2}
    assert {one["job"] for one in views["never_allowed"]["examples"]} == {"job-3", "job-4"}
    assert judged(store, Rules()).refused == 0


def test_what_the_rules_in_force_refuse_today_is_no_difference() -> None:
    store = stored({}, {"purpose": "a"})
    state = world_of(store.state())
    state.in_force = type(state.in_force)(PROPOSED)
    jobs, _ = jobs_to_judge(store, 0.0, None)
    assert replay(jobs, PROPOSED, state, {}).refused == 0
    assert replay(jobs, Rules(), state, {}).freed == 1


def test_a_pool_that_is_closed_to_a_kind_of_work_refuses_it() -> None:
    found = judged(stored({"gpus": 1}, {"kind": "eval"}), Rules(pools={"main": PoolRules(kinds=("eval",))}))
    assert [(one["code"], one["jobs"]) for one in found.views()] == [("pool_not_allowed", 1)]


def test_pages_go_on_until_the_time_is_over_and_then_over_jobs_that_live(monkeypatch: Any) -> None:
    monkeypatch.setattr(policy_replay, "PAGE", 3)
    store = stored(*[{} for _ in range(10)])  # submitted at 3, 4, ... 12
    seen: list[str] = []
    cursor, pages = None, 0
    while True:
        jobs, cursor = jobs_to_judge(store, 9.0, cursor)
        seen += [job.id for job in jobs]
        pages += 1
        if cursor is None:
            break
    assert seen == [f"job-{number}" for number in range(10, 0, -1)], "older ones wait still"
    assert pages <= 6
    assert jobs_to_judge(stored(), 0.0, None) == ([], None)


def test_the_world_is_a_copy() -> None:
    store = stored({})
    world = world_of(store.state())
    store.append([node_event("n2", 8, 64)])
    assert world.kinds.total() == 2
    assert isinstance(store.jobs(policy_replay.JobFilter())[0], Job)
