"""Checks of a policy: rules that contradict each other, or that do not match the cluster."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from muster.api.words import STAGES
from muster.core.errors import Problem
from muster.core.policy_notes import Model
from muster.core.policy_units import DAY, format_clock, format_moment
from muster.core.report import At, spelled
from muster.core.rules import (
    BASELINE,
    CHECKS,
    DAYS,
    TAKE_APPROVED,
    TAKE_LIMIT,
    TAKE_SEVERITY,
    GuardRule,
    Maintenance,
    PreflightRule,
    QueueRules,
    Rules,
    Target,
    Window,
)
from muster.core.suggest import did_you_mean
from muster.core.units import format_duration

Clash = tuple[At, str, str, str]  # where, what was given, what was expected, what to do
NO_PARENT = "none"  # how a file writes "no parent", so no queue may have this name


def complete(model: Model, values: dict[str, Any]) -> None:
    """Adds the values of one section that follow from its other values."""
    if model is Target and "high" not in values and "wait" in values:
        values["high"] = max(0.0, min(Target().high, values["wait"]))
    if model is Window and values.get("end") == 0:
        values["end"] = DAY  # midnight is also the end of a day
    if model is Window and set(values.get("days", ())) <= set(DAYS):
        values["days"] = tuple(day for day in DAYS if day in values.get("days", DAYS))
    if model is GuardRule and values.get("action") == "false":
        values["action"] = "off"  # which some readers of YAML take for a flag


def wrong(model: Model, values: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Contradictions between the values of one section: what was given, what was expected, what to do."""
    start, end = values.get("start"), values.get("end")
    if model is Maintenance and start is not None and end is not None and start >= end:
        given = f"from {format_moment(start)} to {format_moment(end)}"
        yield given, "a beginning before the end", "Swap or change them."
    if model is Window and start is not None and start == end:
        given = f"from {format_clock(start)} to {format_clock(start)}"
        yield given, "hours such as `mon-fri 20:00-06:00`", "Write `00:00-24:00` for all of the day."
    if model is Window and values.get("days") == ():
        yield "no days", "at least one day", "Leave `days` out for every day."
    if model is GuardRule:
        yield from _misplaced(values)


def clashes(rules: Rules) -> Iterator[Clash]:
    """Problems of the rules that do not depend on the cluster."""
    for name in (name for name in rules.queues if name.lower() == NO_PARENT):
        yield ("queues", name), "a queue of that name", "another name", f"`parent: {NO_PARENT}` means no parent."
    for at, queue in _entries(rules):
        # Problems that a queue inherits from the defaults are reported there, once.
        usual = rules.defaults if at != ("defaults",) else QueueRules()
        if queue.parent != usual.parent:
            yield from _parent_missing(rules, at, queue)
        if queue.levels != usual.levels:
            yield from _levels_mixed(at, queue)
        if (queue.quota, queue.borrow, queue.pools) != (usual.quota, usual.borrow, usual.pools):
            yield from _pools_left_out(at, queue)
    yield from _cycles(rules)
    yield from _over(rules, rules.queues)
    yield from _preflight_clashes(rules.preflight)
    yield from _covered(rules.guards)
    yield from _stages(rules)


def check_rules(
    rules: Rules,
    *,
    pools: Mapping[str, int],
    queues: Mapping[str, str],
    projects: Collection[str],
    delegated: Collection[str] = (),
) -> list[Problem]:
    """Problems of the rules that can only be found on the running cluster.

    `pools` maps its pools to their numbers of accelerators, `queues` maps its queues to their projects. `delegated` are
    the pools whose engines choose the machines.
    """
    found = [
        *_unknown("queue", (("queues", name) for name in rules.queues), queues, "muster queue create"),
        *_unknown("project", (("projects", name) for name in rules.projects), projects, "muster project create"),
        *_unknown("project", _of_preflight(rules, "projects"), projects, "muster project create"),
        *_unknown("pool", _of_preflight(rules, "pools"), pools, ""),
        *_unknown("project", _guarded_projects(rules), projects, "muster project create"),
        *_unknown("pool", _named_pools(rules), pools, ""),
        *_other_projects(rules, queues),
        *_over(rules, {**rules.queues, **queues}),
        *_over_the_pools(rules, {**rules.queues, **queues}, pools),
        *_spares_elsewhere(rules, delegated),
    ]
    return [Problem(spelled(at), given, expected, hint) for at, given, expected, hint in found]


# --- whatever the cluster -----------------------------------------------------------------------------------------
def _entries(rules: Rules) -> Iterator[tuple[At, QueueRules]]:
    yield ("defaults",), rules.defaults
    for name, queue in rules.queues.items():
        yield ("queues", name), queue


def _parent_missing(rules: Rules, at: At, queue: QueueRules) -> Iterator[Clash]:
    if queue.parent is not None and queue.parent not in rules.queues:
        write = f"Write `{queue.parent}: {{}}` under `queues`, with its quota."
        hint = did_you_mean(queue.parent, rules.queues, write)
        yield (*at, "parent"), repr(queue.parent), "a queue under `queues`", hint


def _levels_mixed(at: At, queue: QueueRules) -> Iterator[Clash]:
    if list(queue.levels) != sorted(set(queue.levels)):
        given = ", ".join(map(format_duration, queue.levels))
        yield (*at, "levels"), given, "each longer than the one before", "Put them in order."


def _pools_left_out(at: At, queue: QueueRules) -> Iterator[Clash]:
    """Quota or borrowing limits in pools where the queue's jobs may not run."""
    for key, amounts in (("quota", queue.quota), ("borrow", queue.borrow or {})):
        for pool in amounts if queue.pools else ():
            if pool not in queue.pools:
                expected = f"one of the queue's `pools` ({', '.join(queue.pools)})"
                hint = f"Add `{pool}` to its `pools`, or leave it out here."
                yield (*at, key, pool), "a pool where its jobs may not run", expected, hint


def _preflight_clashes(rules: Sequence[PreflightRule]) -> Iterator[Clash]:
    """Rules for the same jobs of which one refuses what the other only warns of."""
    seen: dict[tuple[str, str], str] = {}
    for number, rule in enumerate(rules):
        jobs = rule.model_copy(update={"require": ("unit",), "action": "refuse", "valid": 1.0}).model_dump_json()
        for rung in rule.require:
            before = seen.setdefault((jobs, rung), rule.action)
            if before != rule.action:
                expected = "one action for the same jobs and rung"
                yield ("preflight", number), f"{rung}: {before} and {rule.action}", expected, "Remove one of the rules."


def _cycles(rules: Rules) -> Iterator[Clash]:
    """Each cycle once, at its first queue in the file."""
    known = set[str]()
    for name in rules.queues:
        trail: list[str] = []
        above: str | None = name
        while above is not None and above in rules.queues and above not in known:
            known.add(above)
            trail.append(above)
            above = rules.queues[above].parent
        if above in trail:
            ring = trail[trail.index(above) :]
            words = " → ".join([*ring, ring[0]])
            yield ("queues", ring[0], "parent"), words, "a tree of queues", "Write `parent: none` in one of them."


def _over(rules: Rules, names: Iterable[str]) -> Iterator[Clash]:
    """Queues whose quota is less than the sum of the quotas below them."""
    owners = _owners(rules, names)
    for (parent, pool), below in owners.items():
        quota = rules.queue(parent).quota.get(pool) if parent is not None else None
        if parent is not None and quota is not None and sum(below.values()) > quota:
            expected = f"at least {sum(below.values())}, the sum of the queues below it"
            hint = f"Raise it, or lower theirs: {_listed(below)}."
            yield ("queues", parent, "quota", pool), f"{quota} {pool}", expected, hint


def _owners(rules: Rules, names: Iterable[str]) -> dict[tuple[str | None, str], dict[str, int]]:
    """(queue, pool) → the queues below it with their quota of the pool; None is above all queues.

    A queue without quota of a pool is only a group there: the queues below it count for the queue above it.
    """
    found: dict[tuple[str | None, str], dict[str, int]] = defaultdict(dict)
    for name in names:
        for pool, amount in rules.queue(name).quota.items():
            above, seen = rules.queue(name).parent, {name}
            while above in rules.queues and above not in seen and pool not in rules.queues[above].quota:
                seen.add(above)
                above = rules.queues[above].parent
            found[above, pool][name] = amount
    return found


def _listed(amounts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {amount}" for name, amount in amounts.items())


def _misplaced(values: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Fields of a guard that its check does not take, and checks that would refuse everything."""
    check = values.get("check")
    if check not in CHECKS:
        return  # which is told by itself
    for key, takers in (("approved", TAKE_APPROVED), ("limit", TAKE_LIMIT), ("severity", TAKE_SEVERITY)):
        if values.get(key) and check not in takers:
            names = " or ".join(f"`{name}`" for name in takers)
            yield f"`{key}` for the check `{check}`", f"`{key}` only for {names}", f"Leave `{key}` out here."
    if check in TAKE_APPROVED and values.get("action") in ("warn", "refuse") and not values.get("approved"):
        if check == "images" and values.get("limit"):
            return  # a rule about sizes alone
        expected = f"at least one pattern in `approved`, or no {check} could be used"
        yield f"`{check}` without `approved`", expected, f"List the {check} that are approved, or write `action: off`."


def _covered(guards: Sequence[GuardRule]) -> Iterator[Clash]:
    """Guards that never apply, since an earlier one of the same check fits every job that they fit."""
    for at, rule in enumerate(guards):
        for before, earlier in enumerate(guards[:at]):
            if earlier.check == rule.check and all(
                not wide or (narrow and set(narrow) <= set(wide))
                for wide, narrow in (
                    (earlier.projects, rule.projects),
                    (earlier.environments, rule.environments),
                )
            ):
                expected = f"a job that `guards[{before}]` does not fit already"
                yield (
                    ("guards", at),
                    f"a rule of `{rule.check}` that never applies",
                    expected,
                    "Move it up, or remove it.",
                )
                break


def _stages(rules: Rules) -> Iterator[Clash]:
    """Stages that nothing can reach, or that contradict each other."""
    for name, stage in rules.promotion.items():
        at, above = ("promotion", name), stage.after
        if name in ("none", "archived"):
            yield at, f"a stage of the name {name!r}", "another name", "Every version of a model may have that stage."
        if name in STAGES and stage.devices is not None:
            yield (*at, "devices"), str(stage.devices), "nothing: it is a stage of models", "Leave it out."
        if stage.after is not None and stage.after not in rules.promotion:
            hint = did_you_mean(stage.after, rules.promotion, f"Write `{stage.after}: {{}}` under `promotion`.")
            yield (*at, "after"), repr(stage.after), "a stage under `promotion`", hint
        seen = {name}
        while above in rules.promotion and above not in seen:
            seen.add(above)
            above = rules.promotion[above].after
        if above == name:
            yield (*at, "after"), repr(stage.after), "a stage that does not come after this one", "Leave one out."
        elif stage.after in rules.promotion:
            below = rules.promotion[stage.after].devices
            if below is not None and stage.devices is not None and stage.devices < below:
                yield (*at, "devices"), str(stage.devices), f"at least {below}, as {stage.after} has", "Raise it."
        against = stage.metric.better_than if stage.metric is not None else None
        if against == BASELINE and not any(one.baseline for one in rules.projects.values()):
            hint = "Write `projects: {NAME: {baseline: RUN}}`, or a run in `better_than`."
            yield (*at, "metric", "better_than"), BASELINE, "a project that names its baseline", hint


# --- on this cluster ------------------------------------------------------------------------------------------------
def _unknown(noun: str, places: Iterable[At], known: Collection[str], create: str) -> Iterator[Clash]:
    for at in places:
        name = str(at[-1])
        if name not in known:
            there = f"There are: {', '.join(sorted(known)) or 'none'}."
            make = f"Create it with `{create} {name}`." if create else there
            if noun == "queue":
                make = f"Create it with `{create} {name}`, or all that are missing with `muster queue apply --create`."
            hint = did_you_mean(name, known, make)
            yield at, f"the {noun} {name!r}", f"a {noun} of this cluster", hint


def _named_pools(rules: Rules) -> Iterator[At]:
    for pool in rules.pools:
        yield "pools", pool
    for at, queue in _entries(rules):
        if at == ("defaults",) or queue.quota != rules.defaults.quota:
            yield from ((*at, "quota", pool) for pool in queue.quota)
        if at == ("defaults",) or queue.borrow != rules.defaults.borrow:
            yield from ((*at, "borrow", pool) for pool in queue.borrow or ())
        if at == ("defaults",) or queue.pools != rules.defaults.pools:
            yield from ((*at, "pools", pool) for pool in queue.pools)


def _of_preflight(rules: Rules, names: Literal["projects", "pools"]) -> Iterator[At]:
    for number, rule in enumerate(rules.preflight):
        for name in getattr(rule, names):
            yield "preflight", number, names, name


def _guarded_projects(rules: Rules) -> Iterator[At]:
    for at, guard in enumerate(rules.guards):
        yield from (("guards", at, "projects", project) for project in guard.projects)


def _other_projects(rules: Rules, queues: Mapping[str, str]) -> Iterator[Clash]:
    for name, project in queues.items():
        parent = rules.queue(name).parent
        if parent is not None and parent in queues and queues[parent] != project:
            at: At = ("queues", name, "parent") if name in rules.queues else ("defaults", "parent")
            given = f"{parent!r}, which is of project {queues[parent]!r}, above {name!r}"
            yield at, given, f"a queue of project {project!r}", "Quota is divided within a project: name another."


def _spares_elsewhere(rules: Rules, delegated: Collection[str]) -> Iterator[Clash]:
    for name, pool in rules.pools.items():
        if pool.spares and name in delegated:
            hint = "Keep nodes free in the cluster itself, or leave it out."
            yield ("pools", name, "spares"), str(pool.spares), "0: the pool's cluster chooses the machines", hint


def _over_the_pools(rules: Rules, names: Collection[str], pools: Mapping[str, int]) -> Iterator[Clash]:
    for (above, pool), owners in _owners(rules, names).items():
        amount = sum(owners.values())
        if above is None and pool in pools and amount > pools[pool]:
            expected = f"at most {pools[pool]}, which is what the pool has"
            yield ("queues",), f"{amount} {pool} of quota ({_listed(owners)})", expected, "Lower some of them."
