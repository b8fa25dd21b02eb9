"""Generated clusters and jobs for the scheduler, and what has to hold of every plan.

A case is plain data, drawn in one go, so that what fails is made small and can be printed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from random import Random
from typing import Any

from hypothesis import strategies as st

from muster.core.job import Job
from muster.core.needs import is_met
from muster.core.plan import Plan
from muster.core.resources import WHOLE
from muster.core.rules import (
    Escalation,
    Maintenance,
    PoolRules,
    Preemption,
    ProjectRules,
    QueueRules,
    Rules,
    Window,
)
from muster.core.spec import fewest_nodes
from muster.sched.capacity.slot import round_to_slice
from muster.sched.policies import POLICIES
from muster.sched.schedule import schedule
from scheduler_kit import SchedulerLoop

USERS = ("ada", "bob", "eve")
ORDERS = sorted(set(POLICIES) - {"turns"})
BACKFILLS = ("none", "easy", "conservative", "greedy")
EPSILON = 1e-6

Spec = dict[str, Any]


@dataclass
class Case:
    rules: Rules
    queues: dict[str, str]
    pools: dict[str, bool]
    nodes: list[tuple[str, int, int, str, dict[str, str]]]  # name, accelerators, CPUs, pool, labels
    jobs: list[tuple[float, float, str, dict[str, Any]]]  # submitted at, seconds of work, user, spec
    trouble: list[tuple[float, str, int]] = field(default_factory=list)  # when, what, to whom

    def loop(self) -> SchedulerLoop:
        """Everything is in the diary; nothing has happened yet."""
        loop = SchedulerLoop(self.rules, self.queues, self.pools)
        for name, gpus, cpus, pool, labels in self.nodes:
            loop.node(name, gpus, cpus, pool, **labels)
        for number, (at, seconds, user, spec) in enumerate(self.jobs, 1):
            loop.after(at, _submission(loop, f"j{number}", seconds, user, spec))
        for at, what, whom in self.trouble:
            loop.after(at, self._trouble(loop, what, whom))
        return loop

    def _trouble(self, loop: SchedulerLoop, what: str, whom: int):
        name, gpus, cpus, pool, labels = self.nodes[whom % len(self.nodes)]
        job = f"j{whom % len(self.jobs) + 1}" if self.jobs else ""
        return {
            "lose": lambda: loop.lose(name, noticed=float(whom % 3)),
            "join": lambda: loop.node(name, gpus, cpus, pool, **labels),
            "drain": lambda: loop.health(name, "draining"),
            "heal": lambda: loop.health(name, "healthy"),
            "fail": lambda: loop.fail(job),
            "stop": lambda: loop.stop(job),
            "save": lambda: loop.checkpoint(job),
            "priority": lambda: loop.set_priority(job, 5 * whom),
            "rules": lambda: loop.set_rules(self.rules),
            "away": lambda: loop.away(pool),
            "back": lambda: loop.away(pool, ""),
        }[what]


def _submission(loop: SchedulerLoop, name: str, seconds: float, user: str, spec: dict[str, Any]):
    given = {**spec}
    after = {f"j{number}": wanted for number, wanted in given.pop("after", {}).items()}
    return lambda: loop.submit(name, seconds, user, after=after, **given)


# --- drawing ----------------------------------------------------------------------------------------------------------
class Dice(Random):
    """Choices from a seed. What is drawn one by one by a search for small cases is nearly always an idle cluster."""

    def often(self) -> bool:
        return self.random() < 0.5

    def seldom(self, chance: float = 0.15) -> bool:
        return self.random() < chance

    def time(self) -> float:
        return 5.0 * self.randrange(40)


def cases(
    order: str | None = None, backfill: str | None = None, troubled: bool = True, plain: bool = False,
    needs: bool = False,
) -> st.SearchStrategy[Case]:  # fmt: skip
    """`plain`: whole accelerators, fixed gangs, no deadlines and hours; everyone can run some day.

    `needs`: some jobs need others that were submitted before them."""

    def make(seed: int, jobs: int) -> Case:
        return _case(Dice(seed), jobs, order, backfill, troubled, plain, needs)

    return st.builds(make, st.integers(0, 2**32), st.integers(2, 16))


def case_of(seed: int, jobs: int, order: str | None = None) -> Case:
    return _case(Dice(seed), jobs, order, None, troubled=True, plain=False)


def _case(
    dice: Dice, jobs: int, order: str | None, backfill: str | None, troubled: bool, plain: bool, needs: bool = False
) -> Case:
    pools = {"main": False}
    if not plain:
        pools |= {"spot": True} if dice.seldom(0.3) else {}
        pools |= {"other": False} if dice.seldom(0.3) else {}
    queues = {"a": "p1", **({"b": "p1", "c": "p2"} if dice.often() else {})}
    nodes = []
    for i in range(dice.randint(1, 4)):
        labels = {"rack": dice.choice(["r0", "r1"])}
        pool = dice.choice(sorted(pools)) if i > 1 else "main"
        nodes.append((f"n{i}", dice.choice([2, 4, 4]), dice.choice([8, 16]), pool, labels))
    if not plain and dice.seldom(0.3):
        nodes.append(("cpu", 0, 8, "main", {}))
    there = sum(pool == "main" and gpus > 0 for _, gpus, _, pool, _ in nodes)
    most = min(gpus for _, gpus, _, pool, _ in nodes if pool == "main" and gpus)
    stream = [
        (dice.time(), 5.0 * dice.randint(1, 30), dice.choice(USERS), _spec(dice, pools, queues, there, most, plain))
        for _ in range(jobs)
    ]
    for *_, spec in stream if needs else ():  # those that are not submitted yet are left out
        if dice.often():
            wanted = dice.choice(["succeeded", "succeeded", "ended", "failed"])
            spec["after"] = {dice.randint(1, jobs): wanted for _ in range(dice.randint(1, 2))}
    kinds = ["lose", "join", "drain", "heal", "fail", "stop", "save", "save", "save", "rules", "away", "back", "back"]
    kinds += ["priority", "priority"]
    trouble = [(dice.time(), dice.choice(kinds), dice.randrange(20)) for _ in range(dice.randrange(10))]
    rules = _rules(dice, pools, queues, order, backfill, plain)
    return Case(rules, queues, pools, nodes, stream, trouble if troubled else [])


def _spec(dice: Dice, pools: dict[str, bool], queues: dict[str, str], there: int, most: int, plain: bool) -> Spec:
    nodes = min(dice.choice([1, 1, 1, 2, 3]), there)
    spec: Spec = {
        "queue": dice.choice(sorted(queues)),
        "num_nodes": nodes,
        "gpus": min(dice.choice([1, 1, 2, 4]), most),
        "cpus": dice.choice([1, 1, 2, 4]),
        "priority": dice.choice([20, 50, 50, 75, 95]),
        "stop_grace": 10,
    }
    if dice.seldom(0.4):
        spec["max_duration"] = dice.choice([300.0, 1000.0])
    if dice.seldom():
        spec["placement"] = dice.choice(["spread", "balanced"])
    if plain:
        return spec
    if nodes > 1 and dice.often():
        spec["num_nodes"] = {"min": 1, "max": nodes}
    elif nodes == 1 and dice.seldom(0.25):
        spec["gpus"] = dice.choice([0.5, 0.5, 0.25, 0])
    if dice.seldom():
        spec |= {"use_spot": True, "deadline": dice.choice([100.0, 1000.0])}
    if dice.seldom():
        spec["off_peak"] = True
    if dice.seldom():
        spec["pool"] = dice.choice(sorted(pools))
    if dice.seldom():
        spec |= {"placement": dice.choice(["locality", "group"]), "group": "g"}
    if dice.seldom():
        spec["topology"] = {dice.choice(["require", "prefer"]): "rack"}
    return spec


def _rules(
    dice: Dice, pools: dict[str, bool], queues: dict[str, str], order: str | None, backfill: str | None, plain: bool
) -> Rules:
    named = {name: _queue_rules(dice, pools, order, backfill, plain) for name in queues if dice.often()}
    for name in list(named)[1:]:
        if dice.seldom(0.3):
            named[name] = named[name].model_copy(update={"parent": next(iter(named))})
    windows = (Window(start=0, end=100), Window(start=150, end=86_400))
    away = Maintenance(start=dice.time() + 5.0, end=dice.time() + 210.0, nodes=dice.choice([(), ("n0",)]))
    of_pools = {
        name: PoolRules(
            off_peak=windows if dice.often() else (),
            maintenance=(away,) if dice.seldom(0.3) else (),
            slices=dice.choice([1000, 2]),
            burst=dice.choice([None, 0.0, 20.0, 60.0]),
            price=dice.choice([0.0, 1.0, 2.0]),
        )
        for name in pools
        if dice.seldom(0.0 if plain else 0.3)
    }
    return Rules(
        between=dice.choice(["rank", "rank", "fair"]),
        half_life=dice.choice([100.0, 604_800.0]),
        estimates=dice.choice(["learnt", "declared"]),
        depth=dice.choice([1, 3]),
        preemption=Preemption(
            enabled=not dice.seldom(),
            grace=dice.choice([0.0, 10.0]),
            min_run=dice.choice([0.0, 20.0]),
            restart_cost=dice.choice([0.0, 1.0]),
            margin=dice.choice([1.0, 2.0]),
        ),
        defaults=_queue_rules(dice, pools, order, backfill, plain),
        queues=named,
        pools=of_pools,
        projects={"p1": ProjectRules(max_running=2, weight=2.0)} if dice.seldom() else {},
    )


def _queue_rules(
    dice: Dice, pools: dict[str, bool], order: str | None, backfill: str | None, plain: bool
) -> QueueRules:
    def amounts() -> dict[str, int]:
        return {name: dice.randint(0, 6) for name in pools if dice.often()}

    return QueueRules(
        weight=dice.choice([1.0, 2.0]),
        users=dice.choice([{}, {}, {"ada": 3.0}]),
        order=order if order is not None and order != "turns" else dice.choice(ORDERS),
        ageing=dice.choice([None, 100.0]),
        levels=dice.choice([(50.0,), (20.0, 200.0)]),
        overdue=dice.choice([None, None, 60.0, 150.0]),
        backfill=backfill or dice.choice(BACKFILLS),
        quota=amounts() if dice.often() else {},
        borrow=amounts() if not plain and dice.seldom() else None,
        lend=plain or not dice.seldom(),
        max_running=2 if dice.seldom() else None,
        max_per_user=1 if dice.seldom() else None,
        max_accelerators_per_user=12 if dice.seldom() else None,
        preempts=not dice.seldom(),
        preemptible=not dice.seldom(),
        slice=30.0 if order == "turns" or (not plain and dice.seldom()) else None,
        escalation=Escalation(after=50.0, to=90) if dice.seldom() else None,
    )


# --- what has to hold -------------------------------------------------------------------------------------------------
Decisions = tuple[set[Any], set[Any], set[Any]]


def decisions(plan: Plan) -> Decisions:
    yields = {(one.job, one.reason.code, one.reason.message, one.grace) for one in plan.yields}
    return set(plan.starts), yields, set(plan.claims)


def board_agrees(loop: SchedulerLoop, plan: Plan) -> None:
    """What is kept between rounds makes no difference, and a plan that nobody carries out leaves no trace."""
    fresh = schedule(loop.state, loop.now)
    assert decisions(plan) == decisions(fresh), f"at {loop.now}: kept {plan}, anew {fresh}"
    if loop.plans % 3 == 0:
        again = schedule(loop.state, loop.now, loop.board)
        assert decisions(again) == decisions(fresh), f"at {loop.now}, the second time: {again}, anew {fresh}"


def needs_hold(loop: SchedulerLoop, plan: Plan) -> None:
    """Nobody starts before all that it needs has ended as it should, and nobody waits for one that can't any more."""
    for start in plan.starts:
        for name, wanted in loop.needs[start.job].items():
            assert name in loop.ended, f"{start.job} before {name}"
            assert is_met(wanted, loop.ended[name]), f"{start.job} although {name} {loop.ended[name]}"
    for job in loop.state.jobs.values():
        over = [name for name in loop.needs[job.id] if name in loop.ended]
        assert not any(name in job.awaits for name in over), f"{job.id} still waits for {over}"


def plan_is_sound(loop: SchedulerLoop, plan: Plan) -> None:
    """All that starts is whole, on its own nodes, healthy and allowed; nobody starts, or leaves, twice."""
    state = loop.state
    assert len({one.job for one in plan.starts}) == len(plan.starts)
    assert len({one.job for one in plan.yields}) == len(plan.yields)
    let_go = {claim.job for claim in plan.claims if not claim.seats}
    for start in plan.starts:
        job = state.jobs[start.job]
        assert job.phase == "queued"
        assert job.not_before <= loop.now
        assert job.id in let_go or job.claim in ((), start.seats), f"{job.id} has a claim and starts elsewhere"
        names = [seat.node for seat in start.seats]
        assert len(set(names)) == len(names)
        assert fewest_nodes(job.spec) <= len(names) <= job.spec.num_nodes
        assert all(state.nodes[name].health == "healthy" for name in names)
        (pool,) = {state.nodes[name].pool for name in names}
        assert pool in allowed(loop, job)
        if job.spec.topology.require:
            assert len({state.nodes[name].labels[job.spec.topology.require] for name in names}) == 1
        for seat in start.seats:
            assert len(set(seat.devices)) == len(seat.devices) == job.ask.accelerators
            assert seat.share == (
                round_to_slice(job.ask.share, state.rules.pool(pool).slices) if job.ask.share < WHOLE else WHOLE
            )
    for leave in plan.yields:
        job = state.jobs[leave.job]
        assert job.phase in ("starting", "running")
        assert job.attempt is not None
        pending = leave.reason.code == "resizing" and state.pools[job.attempt.pool].delegated  # in the cluster's queue
        if leave.reason.code != "quota_reclaimed" and not pending:
            assert job.attempt.running_at is not None
        if "for_job" in leave.reason.data:
            assert state.rules.queue(job.queue).preemptible
            if leave.reason.code in ("preempted", "turn_over"):
                assert loop.now - (job.attempt.running_at or 0.0) >= state.rules.preemption.min_run - EPSILON
        assert leave.grace <= state.rules.preemption.grace
    nothing_shared_twice(loop, plan)


def nothing_shared_twice(loop: SchedulerLoop, plan: Plan) -> None:
    """Counted from the seats alone: those who run, those who start, and nobody on what is kept for another."""
    state = loop.state
    parts: Counter[tuple[str, int]] = Counter()
    cpus: Counter[str] = Counter()
    memory: Counter[str] = Counter()
    holders: list[tuple[Job, Any]] = [
        (job, worker.seat) for job in loop.active() if job.attempt for worker in job.attempt.workers
    ]
    holders += [(state.jobs[start.job], seat) for start in plan.starts for seat in start.seats]
    for job, seat in holders:
        cpus[seat.node] += job.ask.milli_cpus
        memory[seat.node] += job.ask.memory
        for device in seat.devices:
            parts[seat.node, device] += seat.share
    for (name, device), taken in parts.items():
        if name in state.nodes:
            assert taken <= WHOLE, f"accelerator {device} of {name} is given away {taken / WHOLE:g} times"
            assert device < state.nodes[name].total.accelerators
    for name, taken in cpus.items():
        if name in state.nodes:
            total = state.nodes[name].total
            assert taken <= total.milli_cpus, f"{taken} of {total.milli_cpus} milli-CPUs of {name} are given away"
            assert memory[name] <= total.memory
    kept = defaultdict(set)
    for job in state.jobs.values():
        for seat in job.claim if job.phase == "queued" else ():
            for device in seat.devices if seat.share == WHOLE else ():
                kept[seat.node, device].add(job.id)
    let_go = {claim.job for claim in plan.claims if not claim.seats}
    for start in plan.starts:
        for seat in start.seats:
            for device in seat.devices:
                others = kept[seat.node, device] - {start.job} - let_go
                assert not others, f"{start.job} takes what is kept for {others}"


def allowed(loop: SchedulerLoop, job: Job) -> set[str]:
    """Pools that the job may be in, from the rules alone."""
    rules, spec = loop.state.rules, job.spec
    found = set()
    for pool in loop.state.pools.values():
        rule = rules.pool(pool.name)
        spot = pool.spot if rule.spot is None else rule.spot
        if spec.pool in (None, pool.name) and not (spot and not spec.use_spot):
            only = rules.queue(job.queue).pools
            if (not only or pool.name in only) and (not rule.kinds or spec.kind in rule.kinds):
                found.add(pool.name)
    bursts = {name for name in found if spec.pool is None and rules.pool(name).burst is not None}
    waited = job.waited + loop.now - job.since
    shut = {name for name in bursts if waited < (rules.pool(name).burst or 0.0) - EPSILON}
    away = {pool.name for pool in loop.state.pools.values() if pool.away}
    return found - away - (shut if found - bursts else set())


def limits_hold(loop: SchedulerLoop, plan: Plan) -> None:
    """Limits on how many run, and on borrowing, after the plan: what is asked to leave no longer counts."""
    state, rules = loop.state, loop.state.rules
    leaving = {one.job for one in plan.yields}
    counts: Counter[tuple[str, ...]] = Counter()
    used: Counter[tuple[str, ...]] = Counter()
    held = [
        (job, tuple(worker.seat for worker in job.attempt.workers))
        for job in loop.active()
        if job.attempt and job.stop is None and job.id not in leaving
    ]
    started = {start.job for start in plan.starts}
    held += [(state.jobs[start.job], start.seats) for start in plan.starts]
    for job, seats in held:
        weight = sum(len(seat.devices) * seat.share for seat in seats) / WHOLE
        node = state.nodes.get(seats[0].node)
        for name in rules.lineage(job.queue):
            used["borrow", name, node.pool if node else ""] += weight
        used["user", job.queue, job.user] += weight
        counts["queue", job.queue] += 1
        counts["user", job.queue, job.user] += 1
        counts["project", job.project] += 1
    for start in plan.starts:
        job = state.jobs[start.job]
        queue, project = rules.queue(job.queue), rules.project(job.project)
        assert counts["queue", job.queue] <= (queue.max_running or 10**9)
        assert counts["user", job.queue, job.user] <= (queue.max_per_user or 10**9)
        assert counts["project", job.project] <= (project.max_running or 10**9)
        if queue.max_accelerators_per_user is not None and job.ask.accelerators:
            assert used["user", job.queue, job.user] <= queue.max_accelerators_per_user + EPSILON
        pool = state.nodes[start.seats[0].node].pool
        for name in rules.lineage(job.queue):
            rule = rules.queue(name)
            if rule.borrow is not None and job.ask.accelerators:
                most = rule.quota.get(pool, 0) + rule.borrow.get(pool, 0)
                assert used["borrow", name, pool] <= most + EPSILON, f"{name} uses more than {most} of {pool}"
    assert started <= set(state.jobs)


EVERYTHING = (plan_is_sound, limits_hold, board_agrees)
