"""What a job is expected to cost before it runs, as it is asked for and in other ways: pool, spot, hours, size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from muster.api.cost import ChoiceWord, CostChoice, CostEstimate
from muster.api.why import OfferView
from muster.control.node_health import is_spot
from muster.core.entities.price_book import prices_of
from muster.core.job import Job
from muster.core.prices import Prices, quantity
from muster.core.spec import JobSpec, ask, fewest_nodes
from muster.core.state import State
from muster.core.units import format_duration
from muster.core.windows import opens
from muster.cost.budgets import amount_of
from muster.cost.estimate import (
    RunTime,
    SpotRisk,
    at_size,
    cost_between,
    quiet_start,
    run_time,
    with_interruptions,
)
from muster.sched.forecast import forecast_snapshot
from muster.sched.offers import ROUNDS, SAMPLES, offers
from muster.sched.snapshot import Snapshot

AUTO: Final = 900.0  # seconds between saves of a job that chooses them itself, before anything is known
SIZES: Final = 2  # smaller sizes that are forecast


@dataclass(frozen=True, slots=True)
class CostFacts:
    """What the state says of a job's cost; taken between two commits."""

    prices: Prices
    time: RunTime
    sizes: Mapping[int, RunTime]  # number of nodes, smaller than the job's → run time
    smaller: bool  # whether the job could be smaller at all
    spot: frozenset[str]  # pools whose machines can be taken away
    fits: tuple[str, ...]  # pools with a node that can hold a worker
    quiet: Mapping[str, float]  # pool → when its quiet hours of the policy begin
    risks: Mapping[str, SpotRisk]
    now: float

    def seconds(self, time: RunTime, pool: str, spec: JobSpec, nodes: int) -> tuple[float, float | None]:
        """P50 and P90 of the seconds that the job holds its nodes; in a spot pool with work that is done again."""
        risk = self.risks.get(pool)
        if pool not in self.spot or risk is None or not risk.known:
            return time.p50, time.p90
        every = spec.checkpoint.every
        every = AUTO if isinstance(every, str) else every
        p90 = None if time.p90 is None else with_interruptions(risk, nodes, time.p90, every)
        return with_interruptions(risk, nodes, time.p50, every), p90


def cost_facts(state: State, job: Job, risks: Mapping[str, SpotRisk], now: float) -> CostFacts | None:
    """None where nothing has a price, or the job holds no nodes."""
    prices = prices_of(state)
    if not prices.any or not job.spec.num_nodes:
        return None
    spec, history = job.spec, state.history
    fewer = sorted({*(2**n for n in range(14)), fewest_nodes(spec), spec.num_nodes // 2}, reverse=True)
    tried = [nodes for nodes in fewer if 0 < nodes < spec.num_nodes]
    sizes = {nodes: time for nodes in tried if (time := at_size(history, job.user, spec, nodes)) is not None}
    fits = sorted({pool for (pool, total), count in state.kinds.items() if count and total.holds(job.ask)})
    quiet = {
        pool: opens(rule.off_peak, now) for pool in fits if (rule := state.rules.pool(pool)).off_peak
    }  # fmt: skip
    return CostFacts(
        prices, run_time(history, job.user, spec, prices.book.assumed_run), sizes, spec.num_nodes > 1,
        frozenset(pool for pool in state.pools if is_spot(state, pool)), tuple(fits), quiet, risks, now,
    )  # fmt: skip


def cost_before(
    facts: CostFacts,
    job: Job,
    pool: str,
    start: float | None,
    offered: Sequence[OfferView] = (),
    snapshot: Snapshot | None = None,
    tasks: int = 1,
) -> CostEstimate:
    """`pool` and `start`: where and when the job would run as it is asked for. Without a snapshot, only that."""
    pool = pool or job.pool or _first(facts, offered)
    this = _choice(facts, job, "this", "as it is asked for", pool, start, facts.time)
    choices, unknown = [this], list[str]()
    if snapshot is not None:
        choices += _pools(facts, job, pool, offered)
        choices += _spot(facts, job, snapshot, unknown)
        choices += _off_peak(facts, job, this)
        choices += _smaller(facts, job, pool, snapshot, unknown)
    p50, p90, source = facts.time
    return {
        "currency": facts.prices.book.currency,
        "seconds_p50": p50,
        "seconds_p90": p90,
        "source": source,
        "tasks": tasks,
        "choices": choices,
        "unknown": unknown,
    }


def _first(facts: CostFacts, offered: Sequence[OfferView]) -> str:
    """Where the job would start first; else the cheapest pool that it fits."""
    open_ = [one["pool"] for one in offered if not one["why_not"]]
    if open_:
        return open_[0]
    steady = [pool for pool in facts.fits if pool not in facts.spot] or list(facts.fits)
    return min(steady, key=lambda pool: _price(facts, pool), default="")


def _price(facts: CostFacts, pool: str) -> float:
    price = facts.prices.at(pool, facts.now)
    return float("inf") if price is None else price.accelerator or price.worker or 0


def _choice(
    facts: CostFacts, job: Job, what: ChoiceWord, differs: str, pool: str, start: float | None, time: RunTime,
    changed: dict[str, object] | None = None,
) -> CostChoice:  # fmt: skip
    held, at = quantity(job.ask, job.spec.num_nodes), facts.now if start is None else max(start, facts.now)
    p50, p90 = facts.seconds(time, pool, job.spec, job.spec.num_nodes)
    notes = list(_risk(facts, job, pool, time))
    if facts.prices.at(pool, at) is None:
        notes.append(f"no price for pool {pool!r}" if pool else "no pool fits it now")
    dear = None if p90 is None else cost_between(facts.prices, pool, held, at, p90)
    return {
        "what": what,
        "differs": differs,
        "pool": pool,
        "start": start,
        "per_hour": facts.prices.hourly(pool, held, at),
        "p50": _within(job.spec, cost_between(facts.prices, pool, held, at, p50)),
        "p90": _within(job.spec, dear, limited=facts.prices.at(pool, at) is not None),
        "notes": notes,
        "set": changed or {},
    }


def _risk(facts: CostFacts, job: Job, pool: str, time: RunTime) -> Iterator[str]:
    if pool not in facts.spot:
        return
    risk = facts.risks.get(pool, SpotRisk())
    if not risk.known:
        yield f"the risk of interruption is not known: {risk.hours:.0f} node-hours were used there in 30 days"
        return
    chance = risk.chance(job.spec.num_nodes, time.p50)
    seen = f"{risk.interruptions} in {risk.hours:,.0f} node-hours"
    yield f"{chance:.0%} risk of an interruption ({seen}); work done again is included"


def _pools(facts: CostFacts, job: Job, mine: str, offered: Sequence[OfferView]) -> Iterator[CostChoice]:
    for one in offered:
        if one["pool"] != mine and not one["why_not"]:
            start = one["forecast"]["p50"] if one["forecast"] is not None else None
            changed: dict[str, object] = {"pool": one["pool"]}
            yield _choice(facts, job, "pool", f"pool {one['pool']}", one["pool"], start, facts.time, changed)


def _spot(facts: CostFacts, job: Job, snapshot: Snapshot, unknown: list[str]) -> Iterator[CostChoice]:
    pools = facts.spot.intersection(facts.fits)
    if job.spec.use_spot or not pools:
        return
    there = replace(job, spec=job.spec.model_copy(update={"use_spot": True, "pool": None}))
    for one in offers(snapshot, there, pools):
        if one.why_not:
            unknown.append(f"spot in pool {one.pool}: {one.why_not}")
            continue
        start = one.forecast.p50 if one.forecast is not None else None
        changed: dict[str, object] = {"use_spot": True, "pool": one.pool}
        yield _choice(facts, there, "spot", f"spot, pool {one.pool}", one.pool, start, facts.time, changed)


def _off_peak(facts: CostFacts, job: Job, this: CostChoice) -> Iterator[CostChoice]:
    start = max(this["start"] or facts.now, facts.now)
    at = quiet_start(facts.prices, this["pool"], start)
    if at is None:
        return
    by_policy = facts.quiet.get(this["pool"]) == at
    changed: dict[str, object] = {"off_peak": True} if by_policy else {}
    found = _choice(facts, job, "off_peak", "in hours with a lower price", this["pool"], at, facts.time, changed)
    if found["p50"] is None or this["p50"] is None or found["p50"] >= this["p50"]:
        return
    found["notes"].append(f"waits {format_duration(round(at - start))} longer")
    if not by_policy:
        found["notes"].append("the policy has no quiet hours of this pool: submit it then")
    yield found


def _smaller(facts: CostFacts, job: Job, pool: str, snapshot: Snapshot, unknown: list[str]) -> Iterator[CostChoice]:
    if not facts.smaller:
        return
    if not facts.sizes:
        unknown.append(f"fewer nodes: no job named {job.spec.name!r} of {job.user} has run on fewer")
    for nodes in list(facts.sizes)[:SIZES]:
        spec = job.spec.model_copy(update={"num_nodes": nodes, "min_nodes": None})
        there = replace(job, spec=spec, ask=ask(spec))
        others = [one for one in snapshot.jobs if one.id != job.id]
        shot = replace(snapshot, jobs=[*others, there])
        start = forecast_snapshot(shot, [job.id], SAMPLES, rounds=ROUNDS)[job.id].p50
        time = facts.sizes[nodes]
        found = _choice(facts, there, "fewer_nodes", f"{nodes} of {job.spec.num_nodes} nodes", pool, start, time,
                        {"num_nodes": nodes})  # fmt: skip
        found["notes"].append(f"ran {format_duration(round(time.p50))} before (P50)")
        yield found


def _within(spec: JobSpec, cost: int | None, limited: bool = False) -> int | None:
    """The cost, at most the job's own `budget`. `limited`: a cost that nothing else limits is the budget."""
    most = amount_of(spec.budget)
    if most is None:
        return cost
    return min(cost, most) if cost is not None else most if limited else None
