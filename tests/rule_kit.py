"""Generated policies: rules that a policy file can say, every field of every model among them."""

from __future__ import annotations

from hypothesis import assume
from hypothesis import strategies as st

from muster.api.words import RUNGS
from muster.core.rules import (
    CHECKS,
    DAYS,
    TAKE_APPROVED,
    TAKE_LIMIT,
    TAKE_SEVERITY,
    WORK_CLASSES,
    EfficiencyNeed,
    Escalation,
    GuardRule,
    Keep,
    Maintenance,
    MetricNeed,
    PoolRules,
    Preemption,
    PreflightRule,
    ProjectRules,
    QueueRules,
    Rules,
    StageRules,
    Target,
    Window,
)

ORDERS = ("fifo", "priority", "attained", "predicted", "shortest")

names = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,8}\Z").filter(lambda name: name.lower() != "none")
pool_names = st.sampled_from(["a100", "h100", "spot", "on", "1.0"])
seconds = st.integers(0, 10**6).map(float) | st.floats(0, 10**6)
weights = st.integers(1, 100).map(float) | st.floats(1e-6, 1e6)
limits = st.none() | st.integers(1, 1000)
counts = st.none() | st.integers(0, 1000)
text = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)
amounts = st.dictionaries(pool_names, st.integers(0, 64), max_size=3)
# A strategy that is made while it is drawn from is checked anew each time, which takes longer than the drawing.
some_pools = st.lists(pool_names, max_size=2, unique=True)
some_names = st.lists(names, max_size=2)
some_days = st.sets(st.sampled_from(DAYS), min_size=1)
some_levels = st.sets(st.integers(1, 10**6).map(float) | st.floats(1, 10**6), max_size=3)
some_users = st.dictionaries(text, weights, max_size=2)
maybe_seconds = st.none() | seconds
maybe_escalation = st.none() | st.builds(Escalation, after=seconds, to=st.integers(0, 100))


@st.composite
def windows(draw: st.DrawFn) -> Window:
    days = draw(some_days)
    start = draw(st.integers(0, 86_399))
    end = draw(st.integers(1, 86_400))
    assume(end != start)
    return Window(days=tuple(day for day in DAYS if day in days), start=start, end=end)


@st.composite
def maintenances(draw: st.DrawFn) -> Maintenance:
    start = draw(st.integers(0, 4 * 10**9))
    nodes = tuple(draw(some_names))
    return Maintenance(start=start, end=start + draw(st.integers(1, 10**6)), nodes=nodes, why=draw(text))


@st.composite
def queue_rules(draw: st.DrawFn) -> QueueRules:
    pools = tuple(draw(some_pools))

    def inside() -> dict[str, int]:
        return {pool: amount for pool, amount in draw(amounts).items() if not pools or pool in pools}

    return QueueRules(
        weight=draw(weights),
        users=draw(some_users),
        order=draw(st.sampled_from(ORDERS)),
        ageing=draw(maybe_seconds),
        levels=tuple(sorted(draw(some_levels))),
        overdue=draw(maybe_seconds),
        backfill=draw(st.sampled_from(("none", "easy", "conservative", "greedy"))),
        quota=inside(),
        borrow=inside() if draw(st.booleans()) else None,
        lend=draw(st.booleans()),
        max_running=draw(limits),
        max_per_user=draw(limits),
        max_accelerators_per_user=draw(counts),
        pools=pools,
        preempts=draw(st.booleans()),
        preemptible=draw(st.booleans()),
        slice=draw(maybe_seconds),
        escalation=draw(maybe_escalation),
    )


targets = st.builds(Target, wait=seconds, high=seconds)
preemptions = st.builds(
    Preemption, enabled=st.booleans(), grace=seconds, min_run=seconds, restart_cost=seconds, save_every=seconds,
    margin=st.integers(1, 1000).map(float) | st.floats(1, 1000),
)  # fmt: skip
pool_rules = st.builds(
    PoolRules,
    levels=st.lists(names, max_size=3).map(tuple),
    slices=st.integers(1, 1000),
    kinds=st.lists(st.sampled_from(["train", "eval", "data", "sweep", "session"]), max_size=2, unique=True).map(tuple),
    off_peak=st.lists(windows(), max_size=2).map(tuple),
    maintenance=st.lists(maintenances(), max_size=2).map(tuple),
    spot=st.none() | st.booleans(),
    price=st.integers(0, 1000).map(float) | st.floats(0, 1000),
    burst=st.none() | seconds,
    spares=st.integers(0, 100_000),
)
keeps = st.builds(
    Keep,
    **{name: st.none() | seconds for name in ("file", "media", "checkpoint", "code", "model", "failed")},
    keep_models=st.booleans(),
)
project_rules = st.builds(
    ProjectRules,
    weight=weights,
    max_running=limits,
    max_accelerators=counts,
    require=st.lists(st.sampled_from(["owner", "purpose", "data", "seed", "tags.team"]), max_size=3, unique=True).map(
        tuple
    ),
    missing=st.sampled_from(["mark", "refuse"]),
    keep=keeps,
    baseline=st.none() | st.just("gpt-12"),
)
metric_needs = st.builds(
    MetricNeed, name=st.sampled_from(["val_loss", "eval/acc"]), goal=st.sampled_from(["min", "max"]),
    better_than=st.sampled_from(["gpt-12", "gpt-13"]), seeds=st.integers(1, 100),
)  # fmt: skip
efficiency_needs = st.builds(
    EfficiencyNeed, devices=st.integers(2, 64), at_least=st.floats(0.01, 2),
    metric=st.none() | st.just("tokens_per_s"),
)  # fmt: skip
stages = st.builds(
    StageRules,
    devices=limits,
    certificate=st.none() | st.sampled_from(["unit", "resume", "smoke", "failure", "canary"]),
    metric=st.none() | metric_needs,
    cost_at_most=st.none() | st.integers(0, 1000).map(float) | st.floats(0, 1e9),
    efficiency=st.none() | efficiency_needs,
    reviewer=st.none() | st.sampled_from(["member", "admin"]),
)


@st.composite
def guard_rules(draw: st.DrawFn) -> GuardRule:
    check = draw(st.sampled_from(CHECKS))
    return GuardRule(
        check=check,
        action=draw(st.sampled_from(("off", "warn", "refuse"))),
        projects=tuple(draw(some_names)),
        environments=tuple(draw(some_names)),
        approved=("registry.example/*", *draw(some_names)) if check in TAKE_APPROVED else (),
        limit=draw(st.none() | st.integers(1, 1 << 60)) if check in TAKE_LIMIT else None,
        severity=draw(st.none() | st.sampled_from(("low", "medium", "high", "critical")))
        if check in TAKE_SEVERITY
        else None,
    )


def unlike(guards: list[GuardRule]) -> tuple[GuardRule, ...]:
    """At most one of each check, so that none covers another."""
    return tuple({guard.check: guard for guard in guards}.values())


some_queues = st.dictionaries(names, queue_rules(), max_size=3)
some_targets = st.dictionaries(st.sampled_from(WORK_CLASSES), targets, max_size=3)
some_pool_rules = st.dictionaries(names, pool_rules, max_size=2)


@st.composite
def preflight_rules(draw: st.DrawFn) -> PreflightRule:
    return PreflightRule(
        require=tuple(draw(st.lists(st.sampled_from(RUNGS), min_size=1, max_size=3, unique=True))),
        action=draw(st.sampled_from(("refuse", "warn"))),
        cost=draw(st.none() | st.sampled_from(("500 USD", "0.5", "12 EUR"))),
        devices=draw(st.none() | st.integers(1, 10_000)),
        projects=tuple(draw(some_names)),
        environments=tuple(draw(some_names)),
        pools=tuple(draw(some_names)),
        valid=draw(st.integers(1, 315_360_000)),
    )


some_guards = st.lists(guard_rules(), max_size=3).map(unlike)
some_project_rules = st.dictionaries(names, project_rules, max_size=2)


@st.composite
def rules(draw: st.DrawFn) -> Rules:
    """Without a clash: a queue below another has its quota out of that one's."""
    queues: dict[str, QueueRules] = draw(some_queues)
    if len(queues) > 1 and draw(st.booleans()):
        parent, child, *_ = queues
        left = {pool: draw(st.integers(0, amount)) for pool, amount in queues[parent].quota.items()}
        below = {"parent": parent, "quota": left, "pools": queues[parent].pools, "borrow": None}
        queues[child] = queues[child].model_copy(update=below)
    return Rules(
        between=draw(st.sampled_from(("rank", "fair"))),
        half_life=draw(st.floats(1, 10**6)),
        reclaim=draw(seconds),
        estimates=draw(st.sampled_from(("learnt", "declared"))),
        round=draw(seconds),
        overdue_share=draw(st.floats(0, 1)),
        depth=draw(st.integers(1, 100_000)),
        preemption=draw(preemptions),
        targets=draw(some_targets),
        defaults=draw(queue_rules()),
        queues=queues,
        pools=draw(some_pool_rules),
        projects=draw(some_project_rules),
        preflight=draw(st.lists(preflight_rules(), max_size=1)),
        guards=draw(some_guards),
        promotion=draw(st.dictionaries(st.sampled_from(["small", "medium", "large"]), stages, max_size=2)),
    )
