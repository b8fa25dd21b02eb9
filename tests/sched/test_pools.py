"""Which pool a job that names none goes to: one's own first, those for bursts after a wait, the cheapest first."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.core.reasons import reason
from muster.core.resources import Resources
from muster.core.rules import PoolRules, Preemption, QueueRules, Rules
from muster.sched.describe import describe
from muster.sched.explain import explain
from muster.sched.offers import Offer, offers
from muster.sched.snapshot import take
from muster.sched.wanted import wanted
from muster.sched.whatif import unsubmitted_job, what_if
from scheduler_kit import SchedulerLoop
from streams import board_agrees, plan_is_sound

CALM = Preemption(enabled=False)


def clouds(**pools: PoolRules) -> SchedulerLoop:
    """Two nodes of one's own, and one in each of the other pools."""
    rules = Rules(pools=pools, preemption=CALM, defaults=QueueRules(overdue=None))
    loop = SchedulerLoop(
        rules, pools={"own": False, **dict.fromkeys(pools, False)}, checks=[plan_is_sound, board_agrees]
    )
    loop.nodes(2, gpus=2, pool="own")
    for name in pools:
        if name != "own":
            loop.node(f"{name}-0", gpus=2, pool=name)
    return loop


def codes(loop: SchedulerLoop, job: str) -> list[str]:
    return [one.code for one in explain(loop.state, loop.job(job), loop.now, loop.board)]


def found(loop: SchedulerLoop, job: str) -> dict[str, Offer]:
    shot = take(loop.state, loop.board, loop.now, [job])
    return {one.pool: one for one in offers(shot, next(one for one in shot.jobs if one.id == job))}


def test_a_pool_for_bursts_opens_after_a_wait_and_not_to_the_second():
    loop = clouds(cloud=PoolRules(burst=600.0, price=4.1))
    for name in ("a", "b", "late"):
        loop.submit(name, 10_000, gpus=2)
    loop.run(until=599.0)
    assert loop.running() == {"a", "b"}
    cause = next(one for one in explain(loop.state, loop.job("late"), loop.now) if one.code == "opens_later")
    assert cause.message == "pool 'cloud' opens to it in 1 s; it would cost about 8.20 an hour there"
    assert cause.data == {"pool": "cloud", "opens_at": 600.0, "per_hour": 8.2}
    loop.run(until=600.0)
    assert loop.sits("late") == ("cloud-0",)
    assert loop.times("starts", "late") == [600.0]


def test_who_names_the_pool_does_not_wait_and_one_that_opens_at_once_is_still_the_last():
    loop = clouds(cloud=PoolRules(burst=600.0), dear=PoolRules(burst=0.0, price=9.0))
    loop.submit("named", 10_000, gpus=2, pool="cloud")
    for name in ("a", "b", "c"):
        loop.submit(name, 10_000, gpus=2)
    loop.tick()
    assert loop.sits("named") == ("cloud-0",)
    assert {loop.sits("a")[0], loop.sits("b")[0]} == {"n0", "n1"}
    assert loop.sits("c") == ("dear-0",)


def test_of_pools_that_are_open_the_cheapest_is_taken_first():
    loop = clouds(b=PoolRules(burst=0.0, price=2.0), c=PoolRules(burst=0.0, price=1.0), own=PoolRules(price=3.0))
    for number in range(4):
        loop.submit(f"j{number}", 10_000, gpus=2)
    loop.tick()
    assert [loop.sits(f"j{number}")[0] for number in (2, 3)] == ["c-0", "b-0"]
    assert {loop.sits("j0")[0], loop.sits("j1")[0]} == {"n0", "n1"}


def test_where_the_rules_leave_a_queue_only_pools_for_bursts_they_are_open_at_once():
    loop = clouds(cloud=PoolRules(burst=600.0))
    loop.set_rules(loop.rules.model_copy(update={"queues": {"default": QueueRules(pools=("cloud",))}}))
    loop.submit("only", 100, gpus=2)
    loop.tick()
    assert loop.sits("only") == ("cloud-0",)


def test_what_was_waited_before_counts():
    """A job that was stopped does not wait anew for the pool that it had waited for."""
    loop = clouds(cloud=PoolRules(burst=100.0))
    for name in ("a", "b", "late"):
        loop.submit(name, 10_000, gpus=2, retry={"backoff": 0})
    loop.run(until=100.0)
    assert loop.sits("late") == ("cloud-0",)
    loop.run(until=150.0)
    loop.fail("late")
    loop.tick()
    assert loop.sits("late") == ("cloud-0",)
    assert loop.times("starts", "late") == [100.0, 150.0]


def test_a_pool_whose_engine_is_away_gets_nobody():
    loop = clouds(cloud=PoolRules())
    loop.away("cloud", "no route to it")
    loop.submit("named", 100, gpus=2, pool="cloud")
    for name in ("a", "b", "c"):
        loop.submit(name, 100, gpus=2)
    loop.tick()
    assert loop.running() == {"a", "b"}
    (cause,) = explain(loop.state, loop.job("named"), loop.now)
    assert cause.code == "engine_away"
    assert cause.message == "the engine 'sim' of pool 'cloud' can't be reached: no route to it"
    assert codes(loop, "c") == ["behind_in_queue", "no_capacity", "engine_away"]
    assert found(loop, "c")["cloud"].why_not == "its engine can't be reached: no route to it"
    loop.away("cloud", "")
    loop.tick()
    assert loop.running() == {"a", "b", "named"}


def test_what_each_pool_offers():
    loop = clouds(cloud=PoolRules(burst=600.0, price=4.0), small=PoolRules(), own=PoolRules(price=1.0))
    loop.state.drop_node("small-0")
    loop.node("small-0", gpus=1, pool="small")
    for name in ("a", "b", "late"):
        loop.submit(name, 10_000, gpus=2, max_duration=10_000)
    loop.run(until=100.0)
    told = found(loop, "late")
    assert list(told) == ["cloud", "own", "small"]
    assert told["cloud"].forecast is not None
    assert told["own"].forecast is not None
    assert (told["cloud"].opens_at, told["cloud"].forecast.p50, told["cloud"].per_hour) == (600.0, 600.0, 8.0)
    assert (told["own"].opens_at, told["own"].per_hour) == (None, 2.0)
    assert told["own"].forecast.p50 is None or told["own"].forecast.p50 > 600.0
    assert told["small"].why_not == "1 such nodes are needed, and it has 0"
    shot = take(loop.state, loop.board, loop.now)
    answer = what_if(shot, unsubmitted_job(loop.state, loop.specs["late"], "ada", loop.now))
    assert [one.pool for one in answer.offers] == ["cloud", "own", "small"]
    assert answer.offers[0].opens_at == 700.0


def test_an_engine_that_queues_by_itself_says_when():
    loop = clouds(own=PoolRules())
    loop.event("pool.set", name="far", engine="slurm", delegated=True)
    for slot in range(3):
        loop.node(f"far/{slot}", gpus=2, pool="far")
    loop.startup = 1e9
    loop.submit("there", 100, gpus=2, pool="far")
    loop.tick()
    why = {"code": "engine_queue", "message": "others go first", "hint": "", "data": {"starts_at": 5000.0}}
    loop.event("attempt.waits", "there", 1, reason=why)
    for name in ("a", "b", "c"):
        loop.submit(name, 100, gpus=2)
    offer = found(loop, "c")["far"]
    assert offer.forecast is not None
    assert (offer.waiting, offer.forecast.p50) == (1, 5000.0)
    loop.tick()
    assert loop.sits("c")[0].startswith("far/")  # after one's own, which need no queue of another's


def test_one_pool_has_nothing_to_compare():
    loop = SchedulerLoop(Rules(preemption=CALM))
    loop.node("n0", gpus=1)
    loop.submit("a", 100, gpus=1)
    loop.submit("b", 100, gpus=1)
    loop.tick()
    assert found(loop, "b") == {}


def test_who_waits_for_room_is_counted_once_and_who_may_not_run_is_not():
    loop = clouds(cloud=PoolRules(), more=PoolRules())
    loop.set_rules(loop.rules.model_copy(update={"defaults": QueueRules(overdue=None, max_per_user=6)}))
    for number in range(4):
        loop.submit(f"r{number}", 100, gpus=2)
    for number in range(3):
        loop.submit(f"w{number}", 100, gpus=2, num_nodes=2)
    loop.submit("x", 100, gpus=2, pool="more")
    loop.tick()
    each = Resources(2000, 0, 2, "GPU")
    growing = {"cloud", "more"}
    assert wanted(loop.board, loop.rules, loop.now, growing) == [("cloud", each, 6), ("more", each, 1)]
    assert wanted(loop.board, loop.rules, loop.now, {"more"}) == [("more", each, 7)]
    assert wanted(loop.board, loop.rules, loop.now, ()) == []
    tight = loop.rules.model_copy(update={"defaults": QueueRules(overdue=None, max_per_user=4)})
    loop.set_rules(tight)
    loop.tick()
    assert wanted(loop.board, tight, loop.now, growing) == []


def test_the_rules_say_it_in_words():
    rules = Rules(pools={"cloud": PoolRules(burst=600.0, price=4.1), "near": PoolRules(burst=0.0)})
    said = {section.title: section.lines for section in describe(rules, [])}
    assert "A job that names no pool goes to the cheapest that is open to it and has room." in said["The whole cluster"]
    assert said["Pool cloud"][-1] == (
        "It is for bursts: jobs that name no pool come here only when no other pool has room and they have waited "
        "10 min."
    )
    assert (
        said["Pool near"][-1] == "It is for bursts: jobs that name no pool come here only when no other pool has room."
    )


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 40), st.booleans()), min_size=1, max_size=12),
    st.sampled_from([0.0, 15.0, 60.0]),
    st.sampled_from([0.0, 30.0]),
)
def test_nobody_is_in_a_burst_who_did_not_wait_or_had_room_elsewhere(stream, first, second):
    loop = clouds(cloud=PoolRules(burst=first, price=1.0), dear=PoolRules(burst=second, price=5.0))
    for number, (at, lasts, named) in enumerate(stream):
        pool = {"pool": "cloud"} if named else {}
        loop.after(5.0 * at, lambda n=f"j{number}", s=5.0 * lasts, p=pool: loop.submit(n, s, gpus=2, **p))

    def check(loop: SchedulerLoop, plan) -> None:
        taken = {seat.node for start in plan.starts for seat in start.seats}
        free = {name for name in ("n0", "n1") if not loop.state.nodes[name].jobs} - taken
        for start in plan.starts:
            pool, job = loop.state.nodes[start.seats[0].node].pool, loop.job(start.job)
            if pool == "own" or job.spec.pool is not None:
                continue
            assert loop.now - job.submitted_at >= {"cloud": first, "dear": second}[pool]
            assert not free, f"{job.id} goes to {pool} while {free} are free"

    loop.checks.append(check)
    loop.run()
    assert not loop.state.jobs


def queueing(**pools: PoolRules) -> SchedulerLoop:
    """Clusters with queues of their own, with four slots each."""
    rules = Rules(pools=pools, preemption=CALM)
    loop = SchedulerLoop(rules, pools={}, startup=1e6, checks=[plan_is_sound, board_agrees])
    for name in pools:
        loop.event("pool.set", name=name, engine=name, delegated=True)
        for number in range(4):
            data = {"milli_cpus": 64_000, "memory": 1 << 40, "accelerators": 2, "accelerator": "H100"}
            loop.event("node.joined", name=f"{name}/{number}", pool=name, resources=data, labels={}, role="slot")
    return loop


def waits(loop: SchedulerLoop, job: str, at: float | None) -> None:
    """What its engine says of a gang in its queue."""
    told = reason("engine_queue", "in its queue", starts_at=at).to_dict()
    attempt = loop.job(job).attempt
    assert attempt is not None
    loop.event("attempt.waits", job, attempt.number, reason=told)


def test_between_clusters_of_one_price_the_one_that_starts_it_first_is_taken():
    loop = queueing(a=PoolRules(price=1.0), b=PoolRules(price=1.0), dear=PoolRules(price=2.0))
    loop.submit("first", 100, gpus=2)
    loop.submit("second", 100, gpus=2)
    loop.tick()
    assert [loop.sits(name)[0].partition("/")[0] for name in ("first", "second")] == ["a", "b"]
    waits(loop, "first", at=loop.now + 60)
    waits(loop, "second", at=loop.now + 3600)
    for name in ("third", "fourth"):
        loop.submit(name, 100, gpus=2)
    loop.tick()
    assert [loop.sits(name)[0].partition("/")[0] for name in ("third", "fourth")] == ["a", "a"]


def test_a_round_that_chooses_anew_knows_pools_for_which_nobody_waits_any_more():
    """The start in the first pool is of the last job that waited for the second one too."""
    pools = {"main": False, "more": False}
    loop = SchedulerLoop(Rules(reselect=True, round=10.0), pools=pools, checks=[plan_is_sound])
    for pool in pools:
        loop.node(pool, pool=pool)
    loop.submit("either", 100.0, gpus=8)
    loop.tick()
    assert loop.sits("either") == ("main",)
