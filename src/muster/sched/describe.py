"""The policy in plain language, generated from the rules in force, so that the text always agrees with them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from muster.api.rules import RuleSection
from muster.core.entities import Queue
from muster.core.policy_units import format_moment, format_window
from muster.core.rules import (
    HIGH,
    Keep,
    PoolRules,
    Preemption,
    PreflightRule,
    ProjectRules,
    QueueRules,
    Rules,
    Target,
    WorkClass,
)
from muster.core.units import format_number, format_priority
from muster.sched.describe_guards import describe_guards
from muster.sched.describe_stages import stage_line
from muster.sched.policies import POLICIES


@dataclass(frozen=True, slots=True)
class Section:
    """The rules of the whole cluster, or of one queue, pool or project. `name` "" means all of them, or all others."""

    about: Literal["cluster", "queue", "pool", "project"]
    name: str
    title: str
    lines: tuple[str, ...]

    def to_dict(self) -> RuleSection:
        return {"about": self.about, "name": self.name, "title": self.title, "lines": list(self.lines)}


def describe(rules: Rules, queues: Iterable[Queue], priced: Collection[str] = ()) -> list[Section]:
    """One section for the whole cluster, then one for each queue, and for each pool and project with rules.

    `priced`: pools whose prices are in the price book.
    """
    live = {queue.name: queue for queue in queues}
    sections = [Section("cluster", "", "The whole cluster", tuple(_whole(rules, bool(priced))))]
    for name in sorted({*live, *rules.queues}):
        queue = live.get(name)
        title = f"Queue {name}" + (f" of project {queue.project}" if queue else " (there is none yet)")
        lines = (*_queue(rules, rules.queue(name), name), *(_admits(queue) if queue else ()))
        sections.append(Section("queue", name, title, lines))
    if rules.defaults != QueueRules():
        lines = tuple(_queue(rules, rules.defaults, "any other queue"))
        sections.append(Section("queue", "", "Any other queue", lines))
    for name, pool in sorted(rules.pools.items()):
        sections.append(Section("pool", name, f"Pool {name}", tuple(_pool(pool, name in priced)) or (_NOTHING,)))
    for name, project in sorted(rules.projects.items()):
        sections.append(Section("project", name, f"Project {name}", tuple(_project(project)) or (_NOTHING,)))
    return sections


# --- the whole cluster ------------------------------------------------------------------------------------------------
def _whole(rules: Rules, priced: bool) -> Iterator[str]:
    usual, fair = Rules(), rules.between == "fair"
    if fair:
        yield "Queues share fairly: the one that has had the least for its weight goes first."
    else:
        yield "Queues are equal: the one whose best job ranks highest goes first."
    if fair or rules.half_life != usual.half_life:
        yield f"For fair shares, past use counts half after {_span(rules.half_life)}."
    yield f"Accelerators that a queue has lent come back to it within {_span(rules.reclaim)}."
    if rules.estimates == "learnt":
        yield "How long a job will run is learnt from work that has finished."
    else:
        yield "A job is expected to run as long as it declares in `max_duration`."
    if rules.round:
        yield f"Decisions are taken every {_span(rules.round)}."
    if rules.reselect:
        yield "Each of them chooses anew who runs, by counting accelerators; the others are stopped."
    if rules.overdue_share != usual.overdue_share:
        yield f"Overdue jobs hold at most {_number(100 * rules.overdue_share)} % of a pool ahead of the others."
    if rules.depth != usual.depth:
        yield f"Conservative backfill keeps places for the first {rules.depth} jobs that wait."
    if priced or any(pool.price for pool in rules.pools.values()):
        yield "A job that names no pool goes to the cheapest that is open to it and has room."
    yield from _preemption(rules.preemption)
    yield from _targets(rules.targets)
    for rule in rules.preflight:
        yield _certified(rule)
    yield from describe_guards(rules)
    for name, stage in rules.promotion.items():
        yield stage_line(name, stage)


def _certified(rule: PreflightRule) -> str:
    """`Jobs of 16 accelerators or more need a certificate of canary that is at most 30 days old, or are refused.`"""
    limits = [
        f"of {rule.devices} accelerators or more" if rule.devices is not None else "",
        f"that are projected to cost {rule.cost} or more" if rule.cost is not None else "",
        f"of project {' or '.join(rule.projects)}" if rule.projects else "",
        f"in the environment {' or '.join(rule.environments)}" if rule.environments else "",
        f"that may run on {' or '.join(rule.pools)}" if rule.pools else "",
    ]
    jobs = " ".join(["Jobs", *filter(None, limits)])
    otherwise = "are refused" if rule.action == "refuse" else "are accepted with a warning"
    rungs = _listed(list(rule.require))
    return f"{jobs} need certificates of preflight ({rungs}), {_span(rule.valid)} old at most, or {otherwise}."


def _preemption(rule: Preemption) -> Iterator[str]:
    if rule.enabled:
        yield "Running work may be stopped and queued again to make place for work that ranks above it."
    else:
        yield "Running work is never stopped to make place for other work."
    if rule == Preemption(enabled=False):
        return
    alone = f"it is left alone for {_span(rule.min_run)} after it began"
    above = f"by anything that ranks less than {_number(rule.margin)} times above it"
    yield f"{'Then' if rule.enabled else 'If it were,'} it has {_span(rule.grace)} to save; {alone}, and {above}."
    if (rule.restart_cost, rule.save_every) != (Preemption().restart_cost, Preemption().save_every):
        lost = f"the work since the last save, {_span(rule.save_every)} of it at most"
        yield f"A stop is taken to cost {_span(rule.restart_cost)} and {lost}."


def _targets(targets: Mapping[WorkClass, Target]) -> Iterator[str]:
    yield f"Jobs should wait {_target(Target())}."
    for name, target in targets.items():
        yield f"{_CLASSES[name]} should wait {_target(target)}."


def _target(target: Target) -> str:
    return f"at most {_span(target.wait)}, and {_span(target.high)} from priority {HIGH} on"


# --- a queue ----------------------------------------------------------------------------------------------------------
def _queue(rules: Rules, rule: QueueRules, name: str) -> Iterator[str]:
    usual = QueueRules()
    words = POLICIES.get(rule.order).description if rule.order in POLICIES else f"`{rule.order}`"
    yield f"Jobs of {name} start in this order: {words}. {_BACKFILL[rule.backfill]}"
    if rule.order == "priority" or rule.ageing != usual.ageing:
        yield _ageing(rule.ageing)
    if rule.order == "attained" or rule.levels != usual.levels:
        steps = _listed([_span(level) for level in rule.levels])
        yield f"By service, a job steps back after {steps} on one accelerator." if steps else "Service has one level."
    if rule.escalation is not None:
        after, to = _span(rule.escalation.after), format_priority(rule.escalation.to)
        yield f"A job that has waited {after} is treated as one of priority {to}."
    if rule.overdue is None:
        yield "No wait, however long, puts a job first."
    else:
        yield f"A job that has waited {_span(rule.overdue)} in all goes first and gives way to nobody."
    yield _owns(rules, rule)
    yield from _shares(rules, rule)
    yield from _limits(rule)
    yield from _gives_way(rule)


def _ageing(seconds: float | None) -> str:
    if seconds is None:
        return "A wait never makes up for a lower priority."
    return f"A wait of {_span(seconds)} makes up for 25 points of priority."


def _owns(rules: Rules, rule: QueueRules) -> str:
    own = _amounts(rule.quota)
    if rule.borrow is None:
        borrow = "it may borrow what is idle"
    elif not rule.borrow:
        borrow = "it may borrow nothing"
    else:
        borrow = f"it may borrow {_amounts(rule.borrow)} at most"
    words = f"{own} are its own; {borrow}" if own else f"No accelerators are its own; {borrow}"
    if own and rule.lend:
        how = " by preemption" if rules.preemption.enabled else ""
        words += f"; what it leaves idle is lent, and comes back within {_span(rules.reclaim)}{how}"
    if not rule.lend:
        words += "; what it leaves idle is not lent"
    return f"{words}."


def _shares(rules: Rules, rule: QueueRules) -> Iterator[str]:
    if rule.parent is not None:
        yield f"It is a part of queue {rule.parent}: what it has comes out of that one's quota and share."
    if rules.between == "fair" or rule.weight != 1:
        yield f"Under fair share its weight is {_number(rule.weight)}."
    if rule.users:
        weights = _listed([f"{user} {_number(weight)}" for user, weight in rule.users.items()])
        yield f"Among its users, weights are {weights}, and 1 for all others."


def _limits(rule: QueueRules) -> Iterator[str]:
    if rule.max_running is not None:
        yield f"At most {rule.max_running} of its jobs run at once."
    if rule.max_per_user is not None:
        yield f"At most {rule.max_per_user} jobs of one user run at once."
    if rule.max_accelerators_per_user is not None:
        yield f"One user has at most {rule.max_accelerators_per_user} accelerators at once."
    if rule.pools:
        yield f"Its jobs run only on {_listed(rule.pools)}."


def _gives_way(rule: QueueRules) -> Iterator[str]:
    if not rule.preempts:
        yield "Its jobs never take the place of running ones."
    if not rule.preemptible:
        yield "Its running jobs are never asked to make place."
    if rule.slice is not None:
        yield f"Sessions and single-node jobs take turns of {_span(rule.slice)} when others wait."


def _admits(queue: Queue) -> Iterator[str]:
    if (queue.min_priority, queue.max_priority) != (0, 100):
        yield f"It admits jobs of priority {queue.min_priority} to {queue.max_priority}."


# --- a pool and a project ---------------------------------------------------------------------------------------------
def _pool(rule: PoolRules, priced: bool) -> Iterator[str]:
    usual = PoolRules()
    if rule.levels != usual.levels:
        near = " and then ".join(f"`{level}`" for level in reversed(rule.levels))
        yield f"Near is first the same {near}." if near else "No node is nearer to another."
    if rule.slices != usual.slices:
        yield (
            f"An accelerator is shared in {rule.slices} equal parts."
            if rule.slices > 1
            else "No accelerator is shared."
        )
    if rule.kinds:
        yield f"It is only for {_listed(rule.kinds)} jobs."
    if rule.off_peak:
        yield f"Its quiet hours, in UTC, are {_listed([format_window(window) for window in rule.off_peak])}."
    for away in rule.maintenance:
        nodes = _listed(away.nodes) if away.nodes else "all of it"
        why = f" ({away.why})" if away.why else ""
        yield f"Away from {format_moment(away.start)} to {format_moment(away.end)}: {nodes}{why}."
    if rule.spot is not None:
        yield "Its nodes can be taken away at any time." if rule.spot else "Its nodes are not taken away."
    if priced:
        yield "What an hour costs is in the price book."
    elif rule.price:
        yield f"An hour of one accelerator, or of one node without any, costs {_number(rule.price)}."
    if rule.burst is not None:
        waited = f" and they have waited {_span(rule.burst)}" if rule.burst else ""
        yield f"It is for bursts: jobs that name no pool come here only when no other pool has room{waited}."
    if rule.spares:
        yield f"{rule.spares} of its nodes {'is' if rule.spares == 1 else 'are'} kept free for jobs that lose a node."
    if rule.stragglers == "move":
        yield "Jobs leave a node on which several programs are slow, at their next checkpoint."


def _project(rule: ProjectRules) -> Iterator[str]:
    if rule.weight != 1:
        yield f"Under fair share its weight is {_number(rule.weight)}."
    if rule.max_running is not None:
        yield f"At most {rule.max_running} of its jobs run at once."
    if rule.max_accelerators is not None:
        yield f"It has at most {rule.max_accelerators} accelerators at once."
    if rule.require or rule.missing != "mark":
        lacking = "a job without them is refused" if rule.missing == "refuse" else "one without them is marked invalid"
        yield f"Every run must have {', '.join(rule.require) or 'no fields in particular'}; {lacking}."
    yield from _keep(rule.keep)
    if rule.baseline is not None:
        yield f"Its baseline, which others must beat to be promoted, is {rule.baseline}."


def _keep(rule: Keep) -> Iterator[str]:
    for kind in ("file", "media", "checkpoint", "code", "model"):
        seconds = getattr(rule, kind)
        if seconds is not None:
            yield f"Artifacts of the kind {kind} go {_span(seconds)} after their run has ended."
    if rule.failed is not None:
        yield f"All artifacts of a run that failed or was stopped go {_span(rule.failed)} after it."
    if not rule.keep_models:
        yield "Models go as other artifacts do."
    elif rule.model is not None or rule.failed is not None:
        yield "Models stay, whatever else is said."


# --- formatting -------------------------------------------------------------------------------------------------------
def _span(seconds: float) -> str:
    """A duration without rounding: `1 h 30 min`."""
    if seconds != int(seconds) or not seconds:
        return f"{_number(seconds)} s"
    left, words = int(seconds), []
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, length)
        words += [f"{count} {unit}"] if count else []
    return " ".join(words)


def _number(number: float) -> str:
    return str(format_number(number))


def _amounts(amounts: Mapping[str, int]) -> str:
    return _listed([f"{amount} {pool}" for pool, amount in amounts.items()])


def _listed(words: Sequence[str]) -> str:
    *before, last = words or ("",)
    return f"{', '.join(before)} and {last}" if before else last


_NOTHING: Final = "Nothing beyond the rules for all."
_BACKFILL: Final = {
    "none": "Nobody passes a job that waits for place.",
    "easy": "Others pass the first in line only where that does not delay it.",
    "conservative": "Others pass those in line only where that delays none of them.",
    "greedy": "Whoever fits passes a job that waits for place.",
}
_CLASSES: Final[Mapping[WorkClass, str]] = {
    "single": "Single-node jobs",
    "distributed": "Jobs of several nodes",
    "trial": "Trials",
    "evaluation": "Evaluations",
    "session": "Sessions",
}
