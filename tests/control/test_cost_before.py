"""What a job is expected to cost, beside a cheaper pool, spot, hours with a lower price and fewer nodes."""

from __future__ import annotations

from typing import Any

from muster.api.cost import CostChoice, CostEstimate
from muster.control.cost_before import cost_before, cost_facts
from muster.core.history import groups_of
from muster.core.parse import parse_job
from muster.core.rules import PoolRules, Rules
from muster.cost.estimate import SpotRisk
from muster.sched.snapshot import take
from muster.sched.whatif import unsubmitted_job, what_if
from scheduler_kit import SchedulerLoop

HOUR = 3600.0
DAY = {"days": ["mon", "tue", "wed", "thu", "fri", "sat", "sun"], "start": 20 * 3600, "end": 6 * 3600}
PRICES = {
    "version": 1,
    "currency": "EUR",
    "pools": {
        "big": [{"accelerator": 4 * 10**9, "off_peak": [DAY], "off_peak_share": 500}],
        "small": [{"accelerator": 3 * 10**9}],
        "cheap-spot": [{"kind": "spot", "accelerator": 10**9}],
    },
}


def cluster(rules: Rules | None = None, prices: dict[str, Any] | None = None) -> SchedulerLoop:
    pools = {"big": False, "small": False, "free": False, "cheap-spot": True}
    loop = SchedulerLoop(rules or Rules(), pools=pools, now=10 * HOUR)
    for pool in pools:
        loop.nodes(4, gpus=1, pool=pool, prefix=f"{pool}-")
    loop.event("prices.set", book=PRICES if prices is None else prices)
    return loop


def estimate(loop: SchedulerLoop, risks: dict[str, SpotRisk] | None = None, **fields: Any) -> CostEstimate:
    spec = parse_job({"name": "gpt", "run": "x", "resources": {"accelerators": 1}, "pool": "big", **fields})
    job = unsubmitted_job(loop.state, spec, "ada", loop.now)
    facts = cost_facts(loop.state, job, risks or {}, loop.now)
    assert facts is not None
    snapshot = take(loop.state, loop.board, loop.now, users=[job])
    answer = what_if(snapshot, job).to_dict()
    return cost_before(facts, job, answer["pool"], answer["forecast"]["p50"], answer["offers"], snapshot)


def by_what(found: CostEstimate) -> dict[tuple[str, str], CostChoice]:
    return {(one["what"], one["pool"]): one for one in found["choices"]}


def test_the_choice_comes_first_then_spot_and_the_quiet_hours_with_what_to_change() -> None:
    found = estimate(cluster(), {"cheap-spot": SpotRisk(2, 100.0)}, max_duration="2h", checkpoint={"every": "30m"})
    assert (found["currency"], found["source"], found["seconds_p50"]) == ("EUR", "max_duration", HOUR)
    first, *_ = found["choices"]
    assert (first["what"], first["pool"]) == ("this", "big")
    assert (first["per_hour"], first["p50"], first["p90"]) == (4_000_000, 4_000_000, 8_000_000)
    spot = by_what(found)["spot", "cheap-spot"]
    assert spot["set"] == {"use_spot": True, "pool": "cheap-spot"}
    assert spot["p50"] is not None
    assert 1_000_000 < spot["p50"] < 1_010_000, "an hour, and the work that is done again"
    assert spot["notes"] == ["2% risk of an interruption (2 in 100 node-hours); work done again is included"]
    night = by_what(found)["off_peak", "big"]
    assert (night["start"], night["p50"], night["set"]) == (20 * HOUR, 2_000_000, {})
    assert night["notes"] == ["waits 10h longer", "the policy has no quiet hours of this pool: submit it then"]


def test_other_pools_are_compared_and_a_missing_price_is_said() -> None:
    found = by_what(estimate(cluster(), pool=None))
    mine = next(one for (what, _), one in found.items() if what == "this")
    assert mine["pool"] == "free", "a pool without a price goes first, as before"
    assert (mine["per_hour"], mine["p50"], mine["p90"]) == (None, None, None)
    assert mine["notes"] == ["no price for pool 'free'"]
    assert (found["pool", "small"]["p50"], found["pool", "small"]["set"]) == (3_000_000, {"pool": "small"})
    unseen = found["spot", "cheap-spot"]["notes"]
    assert unseen == ["the risk of interruption is not known: 0 node-hours were used there in 30 days"]


def test_quiet_hours_of_the_policy_are_a_field_of_the_job_file() -> None:
    window = {"off_peak": [DAY]}
    found = estimate(cluster(Rules.model_validate({"pools": {"big": window}})))
    assert by_what(found)["off_peak", "big"]["set"] == {"off_peak": True}


def test_fewer_nodes_are_compared_only_if_such_jobs_have_run_on_as_many() -> None:
    loop = cluster()
    assert estimate(loop, num_nodes=4)["unknown"] == ["fewer nodes: no job named 'gpt' of ada has run on fewer"]
    known = parse_job({"name": "gpt-7", "run": "x", "resources": {"accelerators": 1}, "num_nodes": 2, "pool": "big"})
    for _ in range(40):
        loop.state.history.observe(groups_of("ada", known), 3000.0)
    found = estimate(loop, num_nodes=4)
    assert found["source"] == "learnt"
    fewer = by_what(found)["fewer_nodes", "big"]
    assert (fewer["differs"], fewer["set"], fewer["per_hour"]) == ("2 of 4 nodes", {"num_nodes": 2}, 8_000_000)
    assert found["unknown"] == []


def test_nothing_is_said_where_nothing_has_a_price() -> None:
    loop = SchedulerLoop(Rules(pools={"main": PoolRules()}))
    loop.nodes(1)
    job = unsubmitted_job(loop.state, parse_job({"name": "gpt", "run": "x"}), "ada", loop.now)
    assert cost_facts(loop.state, job, {}, loop.now) is None
