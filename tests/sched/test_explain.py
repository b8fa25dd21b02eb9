"""Every wait has a named reason, with who is behind it and what would change it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.core.history import KNOWN
from muster.core.rules import Maintenance, PoolRules, Preemption, QueueRules, Rules, Window
from muster.sched.board import Board
from muster.sched.explain import Explainer, explain
from muster.sched.position import QueuePositions, ahead_of
from muster.sched.schedule import schedule
from muster.sched.unblock import Suggestion, unblock
from strategy_kit import pick
from wait_kit import ClusterState, ruled


def advice(cluster_state: ClusterState, job: str) -> dict[str, Suggestion]:
    explainer = Explainer.of(cluster_state.state, cluster_state.now)
    return {found.code: found for found in unblock(explainer, explainer.board.waiting.queued[job])}


def test_a_job_with_room_is_about_to_start() -> None:
    cluster_state = ClusterState()
    assert cluster_state.codes(cluster_state.job(gpus=1)) == ["about_to_start"]


def test_a_full_cluster_names_who_holds_it_and_until_when() -> None:
    cluster_state = ClusterState()
    running = cluster_state.run("n0", "n1", max_duration="1h")
    why = cluster_state.why(cluster_state.job(gpus=1))
    assert (why.code, why.data["holders"], why.data["free"]) == ("no_capacity", [running], 0)
    end = {"ends_at": cluster_state.now + 3600, "evidence": "max_duration"}
    assert why.data["ends"] == [{"job": running, **end, "accelerators": 4.0, "leaving": False}]
    assert "0 of 2 nodes" in why.message


def ended(cluster_state: ClusterState, seconds: float, **spec: object) -> None:
    """A job that ran so long and succeeded."""
    name = cluster_state.run("n0", "n1", **spec)
    cluster_state.now += seconds
    done = {"code": "completed", "message": "", "hint": "", "data": {}}
    cluster_state.tell("attempt.ended", name, outcome="succeeded", reason=done)
    cluster_state.tell("job.succeeded", name, reason=done)


def awaited(cluster_state: ClusterState, ends: dict[str, float]) -> Suggestion:
    """What a job that waits for the whole cluster is told to wait for."""
    waits = cluster_state.job(gpus=2, num_nodes=2)
    explainer = Explainer.of(cluster_state.state, cluster_state.now, ends=ends)
    (found,) = [one for one in unblock(explainer, explainer.board.waiting.queued[waits]) if one.code == "wait_for"]
    why = next(one for one in explainer.explain(cluster_state.state.jobs[waits]) if one.code == "no_capacity")
    holder = next(one for one in why.data["ends"] if one["job"] == found.data["job"])
    assert (holder["ends_at"], holder["evidence"]) == (found.data["at"], found.data["evidence"])
    return found


def test_the_end_of_a_holder_is_told_by_the_best_evidence() -> None:
    cluster_state = ClusterState()
    for _ in range(KNOWN):
        ended(cluster_state, 300.0, name="often")
    known = cluster_state.run("n0", "n1", name="often", max_duration="30m")
    cluster_state.now += 40.0
    found = awaited(cluster_state, {known: cluster_state.now + 75.0})
    assert (found.data["evidence"], found.data["at"]) == ("progress", cluster_state.now + 75.0)
    assert found.message == f"{known} to end, expected in about 75 s by its own progress"
    found = awaited(cluster_state, {})
    assert found.data["evidence"] == "history"
    assert 100 < found.data["at"] - cluster_state.now < 600
    assert found.message.endswith("by how long such jobs ran before")
    other = ClusterState()
    new = other.run("n0", "n1", name="new", max_duration="30m")
    other.now += 60.0
    found = awaited(other, {})
    assert (found.data["evidence"], found.data["at"]) == ("max_duration", other.now + 29 * 60)
    assert found.message.startswith(f"{new} to end, in 29 min at the latest: that is its `max_duration`")
    assert awaited(other, {new: other.now + 90_000.0}).data["at"] == other.now + 29 * 60, "it is stopped then"
    blank = ClusterState()
    blank.run("n0", "n1")
    assert awaited(blank, {}).message.endswith("to end, it is not known when")


def test_names_of_other_projects_are_not_told() -> None:
    cluster_state = ClusterState()
    running = cluster_state.run("n0", "n1")
    waits = cluster_state.job(gpus=1)
    explainer = Explainer.of(cluster_state.state, cluster_state.now, sees=lambda job: job.id == waits)
    (why,) = explainer.explain(cluster_state.state.jobs[waits])
    assert running not in str(why.to_dict())
    assert why.data["holders"] == ["a job of another project"]


def test_those_behind_say_who_goes_first() -> None:
    cluster_state = ClusterState()
    cluster_state.run("n0", "n1")
    first, second = cluster_state.job(gpus=2, num_nodes=2), cluster_state.job(gpus=1)
    assert cluster_state.codes(first) == ["no_capacity"]
    assert cluster_state.codes(second) == ["behind_in_queue", "no_capacity"]
    (brief,) = explain(cluster_state.state, cluster_state.state.jobs[second], cluster_state.now, brief=True)
    assert (brief.data["ahead"], brief.data["first"]) == (1, [first])
    assert brief.data["asks"] == [{"job": first, "num_nodes": 2, "each": "H100:2, 2 CPUs".replace("H100", "GPU")}]


def test_where_nobody_may_pass_a_job_that_fits_waits_for_its_turn() -> None:
    cluster_state = ClusterState(rules=ruled(backfill="none"))
    cluster_state.run("n0")
    first, second = cluster_state.job(gpus=2, num_nodes=2), cluster_state.job(gpus=1)
    assert cluster_state.codes(first) == ["no_capacity"]
    assert cluster_state.codes(second) == ["behind_in_queue"]


def test_a_reservation_says_for_whom_and_a_shorter_run_is_proposed() -> None:
    cluster_state = ClusterState(rules=ruled(backfill="easy", rules={"estimates": "declared"}))
    cluster_state.run("n0", max_duration="30m")
    first, second = (
        cluster_state.job(gpus=2, num_nodes=2, max_duration="1h"),
        cluster_state.job(gpus=1, max_duration="2h"),
    )
    why = cluster_state.why(second)
    assert (why.code, why.data["job"], why.data["start"]) == ("reserved", first, cluster_state.now + 1800)
    assert advice(cluster_state, second)["shorter"].data["set"] == {"max_duration": 1800.0}
    assert cluster_state.codes(cluster_state.job(gpus=1, max_duration="10m")) == ["about_to_start"]


def test_a_backing_off_job_says_until_when() -> None:
    cluster_state = ClusterState()
    name = cluster_state.job(gpus=1)
    cluster_state.state.jobs[name].not_before = cluster_state.now + 30
    why = cluster_state.why(name)
    assert (why.code, why.data["until"]) == ("backing_off", cluster_state.now + 30)


def test_quiet_hours_say_when_they_begin() -> None:
    pools = {"main": PoolRules(off_peak=(Window(start=3600, end=7200),))}
    cluster_state = ClusterState(rules=ruled(pools))
    name = cluster_state.job(gpus=2, off_peak=True)
    why = cluster_state.why(name)
    assert (why.code, why.data["until"]) == ("off_peak", 3600)
    (only,) = advice(cluster_state, name).values()  # to ask for less would not let it start
    assert (only.code, only.data["set"]) == ("off_peak", {"off_peak": False})


def test_where_turns_are_taken_the_next_one_is_told() -> None:
    cluster_state = ClusterState(rules=ruled(slice=600.0, rules={"preemption": Preemption(min_run=0.0)}))
    first = cluster_state.run("n0")
    cluster_state.run("n1")
    found = advice(cluster_state, cluster_state.job(gpus=2))["next_turn"]
    assert (found.data["job"], found.data["at"]) == (first, cluster_state.now + 600)


def test_one_who_is_left_alone_for_a_while_yet_is_told() -> None:
    cluster_state = ClusterState(
        rules=Rules(defaults=QueueRules(order="priority"), preemption=Preemption(min_run=300.0))
    )
    low = cluster_state.run("n0", "n1", priority=20)
    name = cluster_state.job(gpus=2, priority=90)
    found = advice(cluster_state, name)["least_run"]
    assert (found.data["preempts"], found.data["at"]) == ([low], cluster_state.now + 300)
    cluster_state.now += 300
    assert "least_run" not in advice(cluster_state, name)


def test_nodes_that_are_not_used_are_told_beside_those_that_are_full() -> None:
    cluster_state = ClusterState()
    cluster_state.run("n0")
    cluster_state.state.nodes["n1"].health = "draining"
    why = cluster_state.why(cluster_state.job(gpus=1))
    assert why.code == "no_capacity"
    assert "0 of 1 nodes have it free, and there would be n1 (draining)" in why.message


def test_unhealthy_nodes_are_named() -> None:
    cluster_state = ClusterState()
    name = cluster_state.job(gpus=1, num_nodes=2)
    cluster_state.state.nodes["n1"].health = "quarantined"
    why = cluster_state.why(name)
    assert (why.code, why.data["healthy"]) == ("nodes_unhealthy", 1)
    assert "n1 (quarantined)" in why.message
    assert advice(cluster_state, name)["fewer_nodes"].data["set"] == {"num_nodes": 1}


def test_maintenance_that_comes_too_soon_is_told() -> None:
    pools = {"main": PoolRules(maintenance=(Maintenance(start=1000.0, end=2000.0, why="new switches"),))}
    cluster_state = ClusterState(rules=ruled(pools, rules={"estimates": "declared"}))
    name = cluster_state.job(gpus=1, max_duration="1h")
    why = cluster_state.why(name)
    assert (why.code, why.data["begins"]) == ("maintenance", 1000.0)
    assert "new switches" in why.message
    assert advice(cluster_state, name)["shorter"].data["set"] == {"max_duration": 900.0}


def test_limits_and_quotas_are_told_with_how_much_is_missing() -> None:
    cluster_state = ClusterState(rules=ruled(max_running=1))
    cluster_state.run("n0")
    assert cluster_state.codes(cluster_state.job(gpus=1)) == ["limit_reached"]
    cluster_state = ClusterState(rules=ruled(quota={"main": 2}, borrow={"main": 1}))
    cluster_state.run("n0")
    name = cluster_state.job(gpus=2)
    assert cluster_state.codes(name) == ["quota_reached"]
    found = advice(cluster_state, name)
    assert found["more_quota"].data == {"queue": "default", "pool": "main", "accelerators": 1.0}
    assert found["fewer_accelerators"].data["set"] == {"resources": {"accelerators": "GPU:1"}}


def test_what_an_owner_keeps_is_told() -> None:
    own = QueueRules(order="fifo", quota={"main": 4}, lend=False)
    cluster_state = ClusterState(rules=Rules(queues={"q1": own}), queues=2)
    assert cluster_state.codes(cluster_state.job(gpus=1)) == ["kept_by_owner"]


def test_seats_that_are_being_cleared_say_who_leaves() -> None:
    cluster_state = ClusterState()
    running = cluster_state.run("n0", "n1")
    name = cluster_state.job(gpus=2, priority=95)
    cluster_state.tell("job.claimed", name, seats=[{"node": "n0", "devices": [0, 1]}])
    stop = {"code": "preempted", "message": "x", "hint": "", "data": {}}
    cluster_state.tell("job.stopping", running, reason=stop, then="queued", grace=60.0)
    why = cluster_state.why(name)
    assert (why.code, why.data["leaving"], why.data["by"]) == ("waits_for_seats", [running], cluster_state.now + 60)
    assert why.data["nodes"] == ["n0"]


def test_a_job_that_the_rules_shut_out_says_so() -> None:
    cluster_state = ClusterState(rules=ruled(pools={"main": PoolRules(kinds=("eval",))}))
    assert cluster_state.codes(cluster_state.job(gpus=1)) == ["no_pool"]


def test_an_overdue_job_says_that_it_goes_first() -> None:
    cluster_state = ClusterState(rules=ruled(overdue=50.0))
    cluster_state.run("n0", "n1")
    name = cluster_state.job(gpus=1)
    cluster_state.now += 60
    assert cluster_state.codes(name) == ["no_capacity", "overdue"]


def test_less_of_something_and_another_pool_are_proposed() -> None:
    cluster_state = ClusterState(pools={"spot": ("s0",)})
    cluster_state.run("n0")
    holder = cluster_state.run("n1", devices=(0,), memory="10GB", max_duration="10m")
    name = cluster_state.job(gpus=2, pool="main")
    found = advice(cluster_state, name)
    assert found["fewer_accelerators"].data["set"] == {"resources": {"accelerators": "GPU:1"}}
    assert found["other_pool"].data == {"pool": "spot", "set": {"pool": "spot", "use_spot": True}}
    assert found["wait_for"].data["job"] == holder
    heavy = advice(cluster_state, cluster_state.job(memory="30GB", pool="main"))
    assert heavy["less_memory"].data["set"] == {"resources": {"memory": "15000000000B"}}


def test_a_priority_that_would_take_a_place_is_proposed() -> None:
    cluster_state = ClusterState(rules=Rules(defaults=QueueRules(order="priority"), preemption=Preemption(min_run=0.0)))
    running = cluster_state.run("n0", "n1")
    name = cluster_state.job(gpus=2)
    assert cluster_state.codes(name) == ["no_capacity"]
    found = advice(cluster_state, name)["raise_priority"].data
    assert found == {"set": {"priority": 75}, "preempts": [running]}


orders = st.sampled_from(["fifo", "priority", "predicted", "shortest", "attained"])


@st.composite
def waiting(draw: st.DrawFn) -> ClusterState:
    """More jobs than there is room for, in two queues, under any order."""
    rule = QueueRules(order=draw(orders), backfill=draw(pick("greedy", "easy", "conservative", "none")))
    between = draw(pick("rank", "fair"))
    cluster_state = ClusterState(
        rules=Rules(defaults=rule, between=between, preemption=Preemption(enabled=False)), queues=2
    )
    for _ in range(draw(st.integers(1, 12))):
        cluster_state.now += draw(st.integers(0, 5))
        cluster_state.job(
            gpus=draw(st.integers(1, 2)), num_nodes=draw(st.integers(1, 2)), priority=draw(pick(20, 50)),
            queue=draw(pick("default", "q1")), name=draw(pick("a", "b")),
        )  # fmt: skip
    return cluster_state


@settings(max_examples=60, deadline=None)
@given(waiting())
def test_the_place_in_line_is_the_place_in_the_order(cluster_state: ClusterState) -> None:
    board = Board()
    board.sync(cluster_state.state, cluster_state.now)
    for queue in ("default", "q1"):
        order = [
            queued.job.id for queued in QueuePositions(cluster_state.state, board, cluster_state.now).in_order(queue)
        ]
        assert sorted(order) == sorted(cluster_state.state.lines.get(queue, {}))
        for place, name in enumerate(order):
            assert ahead_of(cluster_state.state, board, cluster_state.state.jobs[name], cluster_state.now) == place


@settings(max_examples=60, deadline=None)
@given(waiting())
def test_the_order_goes_on_after_any_job_as_if_it_was_read_from_its_start(cluster_state: ClusterState) -> None:
    for job in list(cluster_state.state.jobs.values())[::4]:
        job.not_before = cluster_state.now + 60  # those go last
    board = Board()
    board.sync(cluster_state.state, cluster_state.now)
    positions = QueuePositions(cluster_state.state, board, cluster_state.now)
    for queue in (None, "default", "q1"):
        order = [queued.job.id for queued in positions.in_order(queue, include_held=True)]
        for at, name in enumerate(order):
            rest = [queued.job.id for queued in positions.in_order(queue, include_held=True, after=name)]
            assert rest == order[at + 1 :]


@settings(max_examples=60, deadline=None)
@given(waiting())
def test_who_is_about_to_start_starts_and_nobody_else_does_and_the_board_stays(cluster_state: ClusterState) -> None:
    state, now, board = cluster_state.state, cluster_state.now, Board()
    alone = schedule(state, now)
    said = {}
    for name in [name for line in state.lines.values() for name in line]:
        full, fresh = explain(state, state.jobs[name], now, board), explain(state, state.jobs[name], now)
        assert full == fresh
        assert explain(state, state.jobs[name], now, board, brief=True)[0].code == full[0].code
        said[name] = full[0].code
    plan = schedule(state, now, board)
    assert plan == alone
    starts = {start.job for start in plan.starts}
    assert starts <= {name for name, code in said.items() if code in ("about_to_start", "behind_in_queue")}


@settings(max_examples=60, deadline=None)
@given(waiting())
def test_once_a_round_is_over_nobody_is_about_to_start(cluster_state: ClusterState) -> None:
    board = Board()
    for start in schedule(cluster_state.state, cluster_state.now, board).starts:
        cluster_state.tell("attempt.planned", start.job, seats=[seat.to_doc() for seat in start.seats])
    for line in list(cluster_state.state.lines.values()):
        for name in line:
            found = explain(cluster_state.state, cluster_state.state.jobs[name], cluster_state.now, board)
            assert found[0].code != "about_to_start", found


@pytest.mark.parametrize("brief", [False, True])
def test_a_job_that_does_not_wait_has_only_the_reason_that_it_has(brief: bool) -> None:
    cluster_state = ClusterState()
    job = cluster_state.state.jobs[cluster_state.run("n0")]
    assert explain(cluster_state.state, job, cluster_state.now, brief=brief) == []
