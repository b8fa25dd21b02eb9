"""Suggestions to start a waiting job: smaller requests, another pool, more quota, higher priority, or waiting."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import floor, inf
from typing import Any, Final

from muster.api.why import SuggestionView
from muster.core.resources import WHOLE, Resources
from muster.core.rules import Rules
from muster.sched.explain import Explainer
from muster.sched.gate import gate, over_quota
from muster.sched.likely_end import LikelyEnd, likely_end, minutes
from muster.sched.place import GangRequest
from muster.sched.placements import PLACEMENTS
from muster.sched.queued_jobs import Queued
from muster.sched.running_gangs import Running, safe_until
from muster.sched.victims import Freed, find_victims

PRIORITIES: Final = (75, 95, 100)  # tried where they are higher than the job's own
ENDS: Final = 5_000  # maximum ends of running gangs of a pool that are looked at
SHORTEST: Final = 60.0  # seconds: no run shorter than this is proposed
_PRIORITY_NAMES: Final = {50: "normal", 75: "high", 95: "urgent"}


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One suggestion. `code` and `data` are for programs. `data["set"]` holds the job-file fields to change, if that
    is enough."""

    code: str
    message: str
    data: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> SuggestionView:
        return {"code": self.code, "message": self.message, "data": self.data}


def unblock(explainer: Explainer, queued: Queued) -> list[Suggestion]:
    """Changes that would let the job start now, smallest change first; then the events that it waits for."""
    if queued.job.id in explainer.board.claims.by_job:
        return []
    if queued.stream.not_before > explainer.now:
        return list(_sooner(explainer, queued))  # nothing else helps before that time
    steps = (_shorter, _fewer_nodes, _lighter, _elsewhere, _more_quota, _priority, _turn, _soon, _end)
    return [found for step in steps for found in step(explainer, queued)]


def _sooner(explainer: Explainer, queued: Queued) -> Iterator[Suggestion]:
    job = queued.job
    if job.spec.off_peak and job.not_before <= explainer.now:
        yield Suggestion("off_peak", "`off_peak: false` would not wait for quiet hours", {"set": {"off_peak": False}})


def _shorter(explainer: Explainer, queued: Queued) -> Iterator[Suggestion]:
    """A shorter `max_duration`, so that the run ends before a reservation or maintenance begins."""
    shape, now = queued.stream.shape, explainer.now
    gang = explainer.positions.filling.gang(queued)
    if explainer.starts(queued, gang, shape.fewest) is not None:
        return
    begins = [w.start for pool in gang.pools for w in explainer.state.rules.pool(pool).maintenance if w.start > now]
    if queued.stream.rules.backfill in ("easy", "conservative"):
        begins += [one.start for one in explainer.reservations(queued)]
    for begin in sorted(set(begins), reverse=True):
        lasts = float(floor((begin - now) / 60) * 60)
        if lasts >= SHORTEST and _starts(explainer, queued, replace(gang, ends=_least(gang.ends, now + lasts)), lasts):
            message = f"`max_duration: {lasts / 60:.0f}m` would be done before what is free is wanted"
            yield Suggestion("shorter", message, {"set": {"max_duration": lasts}})
            return


def _fewer_nodes(explainer: Explainer, queued: Queued) -> Iterator[Suggestion]:
    gang, fewest = explainer.positions.filling.gang(queued), queued.stream.shape.fewest
    low, high, best = 1, fewest - 1, 0
    while low <= high:
        nodes = (low + high) // 2
        if _starts(explainer, queued, replace(gang, nodes=nodes)):
            best, low = nodes, nodes + 1
        else:
            high = nodes - 1
    if best:
        message = f"`num_nodes: {best}` would start now, in place of {fewest}"
        yield Suggestion("fewer_nodes", message, {"set": {"num_nodes": best}})


def _lighter(explainer: Explainer, queued: Queued) -> Iterator[Suggestion]:
    """Smaller requests per node, one resource at a time: half, then half of that."""
    gang, fewest = explainer.positions.filling.gang(queued), queued.stream.shape.fewest
    for code, options in _halves(gang.ask).items():
        for words, field_, value, ask in options:
            if _starts(explainer, queued, replace(gang, ask=ask, nodes=fewest)):
                yield Suggestion(code, f"`{words}` would start now", {"set": {"resources": {field_: value}}})
                break


def _halves(ask: Resources) -> dict[str, list[tuple[str, str, Any, Resources]]]:
    found: dict[str, list[tuple[str, str, Any, Resources]]] = {"fewer_accelerators": []}
    count = ask.accelerators // 2
    while count:
        text = f"{ask.accelerator}:{count}"
        part = replace(ask, accelerators=count, milli_cpus=ask.milli_cpus * count // ask.accelerators)
        found["fewer_accelerators"].append((f"accelerators: {text}", "accelerators", text, part))
        count //= 2
    if ask.accelerators == 1 and ask.share > WHOLE // 4:
        share = ask.share // 2
        text = f"{ask.accelerator}:{share / WHOLE:g}"
        found["fewer_accelerators"].append((f"accelerators: {text}", "accelerators", text, replace(ask, share=share)))
    if ask.memory:
        sizes = [ask.memory // 2, ask.memory // 4]
        found["less_memory"] = [
            (f"memory: {size / 1e9:.3g}GB", "memory", f"{size}B", replace(ask, memory=size)) for size in sizes
        ]
    if ask.milli_cpus > 1000:
        cpus = [ask.milli_cpus // 2, ask.milli_cpus // 4]
        found["fewer_cpus"] = [(f"cpus: {n / 1000:g}", "cpus", n / 1000, replace(ask, milli_cpus=n)) for n in cpus]
    return found


def _elsewhere(explainer: Explainer, queued: Queued) -> Iterator[Suggestion]:
    """Pools with free capacity that the job file rules out but its queue allows."""
    job, state = queued.job, explainer.state
    gang, fewest, rules = (
        explainer.positions.filling.gang(queued),
        queued.stream.shape.fewest,
        state.rules.queue(job.queue),
    )
    for pool in sorted(state.pools):
        rule = state.rules.pool(pool)
        if pool in gang.pools or (rules.pools and pool not in rules.pools) or pool in explainer.board.pools.away:
            continue
        if rule.kinds and job.spec.kind not in rule.kinds:
            continue
        if not _starts(explainer, queued, replace(gang, pools=(pool,), nodes=fewest)):
            continue
        named = job.pool is not None or pool in explainer.board.pools.bursts
        change: dict[str, Any] = {"pool": pool} if named else {}
        taken_away = state.pools[pool].spot if rule.spot is None else rule.spot
        if taken_away and not job.spec.use_spot:
            change["use_spot"] = True
        words = ", ".join(f"`{name}: {str(value).lower()}`" for name, value in change.items())
        message = f"pool {pool!r} has room now: {words}" + ("; its nodes can be taken away" if taken_away else "")
        yield Suggestion("other_pool", message, {"pool": pool, "set": change})


def _more_quota(explainer: Explainer, queued: Queued) -> Iterator[Suggestion]:
    board, shape = explainer.board, queued.stream.shape
    weight = shape.each * shape.fewest
    for pool in shape.gang.pools:
        found = over_quota(board, queued.job, pool, weight)
        if found is None or found.code != "quota_reached":
            continue
        name = found.data["queue"]
        borrow = board.limits.quotas.rules.queue(name).borrow or {}
        missing = found.data["used"] + weight - found.data["quota"] - borrow.get(pool, 0)
        message = f"{missing:g} accelerators more for queue {name!r} in {pool!r}, of quota or to borrow"
        yield Suggestion("more_quota", message, {"queue": name, "pool": pool, "accelerators": missing})


def _priority(explainer: Explainer, queued: Queued) -> Iterator[Suggestion]:
    """The lowest priority with which the job would preempt others."""
    job, state = queued.job, explainer.state
    rules, most = state.rules, state.queues[job.queue].max_priority if job.queue in state.queues else 100
    if not rules.preemption.enabled or not queued.stream.rules.preempts:
        return
    for priority in PRIORITIES:
        if job.priority < priority <= most and (room := _room(explainer, queued, priority, rules)) is not None:
            victims = [explainer.named(known.job) for known in room.victims]
            word = _PRIORITY_NAMES.get(priority, str(priority))
            message = f"`priority: {word}` would take the place of {', '.join(victims[:5])}"
            yield Suggestion("raise_priority", message, {"set": {"priority": priority}, "preempts": victims})
            return


def _room(explainer: Explainer, queued: Queued, priority: int, rules: Rules) -> Freed | None:
    board, stream = explainer.board, queued.stream
    job = replace(queued.job, new_priority=priority)
    standing = stream.policy.standing(job, rules, stream.rules, explainer.now)
    value = stream.policy.value(standing.band, explainer.state.history) or 0.0
    asking = Queued(job, replace(stream, band=standing.band, value=value, entries=[]), queued.entry)
    gang, shape = explainer.positions.filling.gang(queued), stream.shape
    for pool in shape.gang.pools:
        if gate(board, rules, job, pool, shape.each * shape.fewest) is None:
            room = find_victims(board, rules, asking, gang.within(pool, shape.fewest), explainer.now)
            if room is not None:
                return room
    return None


def _turn(explainer: Explainer, queued: Queued) -> Iterator[Suggestion]:
    """In a queue with time slices, where single-node jobs take turns: the turn that ends first."""
    board, rules, queue = explainer.board, explainer.state.rules, queued.stream.rules
    if queue.slice is None:
        return
    running = [known for pool in queued.stream.shape.gang.pools for known in board.gangs.in_pool(pool)]
    turns = [known for known in running if known.job.queue == queued.stream.queue and len(known.seats) == 1]
    if turns:
        known = min(turns, key=lambda one: (safe_until(one, rules, queue), one.job.number))
        at = max(safe_until(known, rules, queue), explainer.now)
        message = f"the turn of {explainer.named(known.job)} to be over, in about {minutes(at - explainer.now)}"
        yield Suggestion("next_turn", message, {"job": explainer.named(known.job), "at": at, "pool": known.pool})


def _soon(explainer: Explainer, queued: Queued) -> Iterator[Suggestion]:
    """Gangs that the job preempts as soon as their minimum run time is over."""
    rules, now = explainer.state.rules, explainer.now
    if not rules.preemption.enabled or not queued.stream.rules.preempts or queued.stream.rules.slice is not None:
        return
    at_once = rules.model_copy(update={"preemption": rules.preemption.model_copy(update={"min_run": 0.0})})
    room = _room(explainer, queued, queued.job.priority, at_once)
    if room is None or room.why == "reclaim":
        return
    at = max(safe_until(known, rules, rules.queue(known.job.queue)) for known in room.victims)
    if at > now:
        victims = [explainer.named(known.job) for known in room.victims]
        message = f"the least run time of {', '.join(victims[:5])} to be over, in about {minutes(at - now)}"
        yield Suggestion("least_run", message, {"preempts": victims, "at": at})


def _end(explainer: Explainer, queued: Queued) -> Iterator[Suggestion]:
    """The running job whose end lets this one start, if gangs end as expected."""
    ends = (_enough(explainer, queued, pool) for pool in queued.stream.shape.gang.pools)
    found = [one for one in ends if one is not None]
    if not found:
        return
    end, known = min(found, key=lambda one: (one[0].at, one[1].job.number))
    name = explainer.named(known.job)
    data = {"job": name, "at": end.at, "evidence": end.evidence, "pool": known.pool}
    yield Suggestion("wait_for", f"{name} to end, {end.told(explainer.now)}", data)


def _enough(explainer: Explainer, queued: Queued, pool: str) -> tuple[LikelyEnd, Running] | None:
    """The first end after which the job would fit in the pool, if no other job starts before."""
    board, state, now = explainer.board, explainer.state, explainer.now
    gang = explainer.positions.filling.gang(queued).within(pool, queued.stream.shape.fewest)
    running = [(likely_end(known, state, now, explainer.ends), known) for known in board.gangs.in_pool(pool)]
    ends = sorted(running, key=lambda one: (one[0].at, one[1].job.number))
    place, free, mark = PLACEMENTS.get(gang.placement).place, board.free, board.free.mark()
    try:
        for end, known in ends[:ENDS]:
            free.give(known.seats, known.job.ask)
            if free.could(gang) and place(gang, free) is not None:
                return end, known
    finally:
        free.undo(mark)
    return None


def _starts(explainer: Explainer, queued: Queued, gang: GangRequest, lasts: float | None = None) -> bool:
    return explainer.starts(queued, gang, min(queued.stream.shape.fewest, gang.nodes), lasts) is not None


def _least(ends: float, other: float) -> float:
    """The smaller of both; -inf stays, because it means that no end is considered."""
    return ends if ends == -inf else min(ends, other)
