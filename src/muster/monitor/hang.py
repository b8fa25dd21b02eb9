"""Tells a gang that hangs from one that is slow, compiling, loading, evaluating or saving. Pure functions.

A verdict needs two independent signals: steps that stopped, and a rank without any sign of work, a stopped process, a
device that is occupied at idle power, or a launcher that is silent. Collectives that are begun are work; ranks that
have begun more than others wait for them. A false alarm is worse than a late one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from muster.monitor.activity import CREDIT, STEPPING, GangActivity, RankActivity
from muster.monitor.behind import ranks_behind
from muster.monitor.collectives import late_ranks, quiet, waiters

# A verdict comes a few seconds after its limit: by then it is at most max(30 s, 3 × p99) since the last step.
LEAST: Final = 25.0  # seconds: the shortest limit for programs that report steps
FACTOR: Final = 2.5  # times the p99 of the run's own step times
SUPPORT: Final = 0.8  # of the limit: how long the second signal must last
PHASE_FACTOR: Final = 3.0  # times the longest phase of the same name
WARM_UP: Final = 5  # step times before a limit is learnt
PATIENCE: Final = 1800.0  # seconds for programs without steps, and for phases other than training
UNSURE: Final = 300.0  # seconds for a process in uninterruptible sleep, a stopped one without steps, a busy waiter
SHOWN: Final = 64  # ranks that a verdict describes
NAMED: Final = 8  # ranks that a sentence names

Kind = Literal["steps stopped", "process stopped", "no activity", "launcher silent"]


@dataclass(frozen=True, slots=True)
class Verdict:
    kind: Kind
    behind: tuple[int, ...]  # the ranks that the others wait for; empty if none stands out
    workers: tuple[int, ...]  # of these ranks, or whose launchers are silent
    waited: float  # seconds
    limit: float  # seconds
    source: str  # where the limit comes from
    signals: tuple[str, ...]
    ranks: tuple[dict[str, Any], ...]  # what was seen of each rank, those behind first

    def to_doc(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True, slots=True)
class Limit:
    seconds: float
    source: str
    steps: bool  # whether the program reports steps
    stopped: float  # seconds for a process that is stopped by a signal


def judge(
    gang: GangActivity, least: float = LEAST, patience: float = PATIENCE, frozen: Collection[int] = ()
) -> Verdict | None:
    """The verdict on a gang that hangs, else None. `frozen`: workers whose launcher's process is stopped."""
    ranks = sorted(gang.ranks.values(), key=lambda one: one.rank)
    limit = limit_of(gang, least, patience)
    counted = [one for one in ranks if one.steps or one.phase] if limit.steps else ranks
    still = min((one.still for one in counted), default=0.0)
    silent = _launcher_silent(gang, ranks, limit, patience, frozen)
    if silent is not None or not ranks:
        return silent
    heard = [one for one in ranks if one.worker not in gang.links or gang.links[one.worker].silent < CREDIT]
    if quiet(heard) < SUPPORT * min(limit.seconds, limit.stopped):
        return None
    found = _process_stopped(ranks, still, limit)
    if found is not None:
        return found
    return _steps_stopped(ranks, still, limit, patience) if limit.steps else _no_activity(ranks, limit)


def goes_on(gang: GangActivity, verdict: Verdict) -> bool:
    """Whether a gang that hung works again by itself. Output says nothing: stacks are written into it."""
    if verdict.kind == "launcher silent":
        links = [gang.links[worker] for worker in verdict.workers if worker in gang.links]  # others have ended
        return all(link.silent < verdict.limit for link in links)
    if any(one.no_collective == 0.0 for one in gang.ranks.values()):
        return True
    stepping = [one for one in gang.ranks.values() if one.steps]
    if stepping:
        return min(one.still for one in stepping) < verdict.limit
    return any(one.idle == 0.0 for one in gang.ranks.values())


def limit_of(gang: GangActivity, least: float = LEAST, patience: float = PATIENCE) -> Limit:
    """How long a gang may be without a step, and why."""
    steps = any(one.steps for one in gang.ranks.values())
    times = gang.times
    learnt = steps and len(times.steps) >= WARM_UP
    p99 = times.p99() if learnt else 0.0
    base = max(least, FACTOR * p99)
    stopped = base if learnt else min(patience, UNSURE)
    phases = {one.phase for one in gang.ranks.values()} - STEPPING
    if phases:
        longest, phase = max((times.phases.get(name, 0.0), name) for name in phases)
        return Limit(max(patience, PHASE_FACTOR * longest), f"a rank is in the phase `{phase}`", steps, stopped)
    if not learnt:
        why = f"fewer than {WARM_UP} steps are known" if steps else "the program reports no steps"
        return Limit(patience, why, steps, stopped)
    source = f"{FACTOR} × the p99 of {len(times.steps)} steps"
    return Limit(base, f"the least; {source} is {FACTOR * p99:.1f} s" if base > FACTOR * p99 else source, True, stopped)


# --- the kinds, the surest first --------------------------------------------------------------------------------------
def _process_stopped(ranks: Sequence[RankActivity], still: float, limit: Limit) -> Verdict | None:
    found = [one for one in ranks if one.stopped >= SUPPORT * limit.stopped]
    if not found or (limit.steps and min(still, min(one.still for one in found)) < limit.stopped):
        return None  # others still make steps: it may be a program of its own beside the gang
    quiet = min(one.silent for one in found)
    if quiet < (SUPPORT if limit.steps else 1.0) * limit.stopped:
        return None
    signals = (
        f"no step for {seconds(still)}" if limit.steps else f"no output for {seconds(quiet)}",
        f"{_names(found)}: the process is stopped (state T) for {seconds(min(one.stopped for one in found))}",
    )  # fmt: skip
    waited = min(one.stopped for one in found)
    return _verdict("process stopped", ranks, found, waited, Limit(limit.stopped, limit.source, True, 0.0), signals)


def _launcher_silent(
    gang: GangActivity,
    ranks: Sequence[RankActivity],
    limit: Limit,
    patience: float,
    frozen: Collection[int],
) -> Verdict | None:
    least = min(limit.stopped, patience)
    silent = {worker: link.silent for worker, link in gang.links.items() if link.silent >= least}
    stopped = {worker: time for worker, time in silent.items() if worker in frozen}
    rest = [one for one in ranks if one.worker not in silent]
    others = min((one.still for one in rest if one.steps), default=0.0)
    found = stopped or (silent if others >= limit.seconds and quiet(rest) >= SUPPORT * limit.seconds else {})
    if not found:
        return None
    behind = [one for one in ranks if one.worker in found]
    word = "launcher" if len(found) == 1 else "launchers"
    signals = (
        f"no report from the {word} of worker {', '.join(map(str, sorted(found)))} for {seconds(min(found.values()))}",
        f"the {word}'s process is stopped" if stopped else f"no step of the others for {seconds(others)}",
    )
    waited = min(found.values())
    made = _verdict("launcher silent", ranks, behind, waited, Limit(least, limit.source, True, 0.0), signals)
    return replace(made, workers=tuple(sorted(found)))


def _steps_stopped(ranks: Sequence[RankActivity], still: float, limit: Limit, patience: float) -> Verdict | None:
    if still < limit.seconds:
        return None
    idle = [one for one in ranks if one.inactive >= _idle_limit(one, SUPPORT * limit.seconds, patience)]
    spinning = [one for one in ranks if one.spinning >= SUPPORT * limit.seconds]
    waiting = waiters(ranks, max(SUPPORT * limit.seconds, min(patience, UNSURE)))
    # A rank that works may be what the idle ones wait for, such as one that evaluates for all.
    if idle and all(one in idle or one in spinning or one in waiting for one in ranks):
        least = min(one.inactive for one in idle)
        signal = f"{_names(idle)}: no CPU time, I/O, output or device activity for {seconds(least)}"
    elif not idle and spinning and all(one.spinning or one.device_idle for one in ranks):
        one = spinning[0]
        drawn = one.pulse.power if one.pulse is not None else 0.0
        signal = f"devices in use at {drawn:.0f} W instead of {one.usual_power:.0f} W: kernels that wait for others"
    elif still >= 2 * patience and all(_maybe_hung(one, 2 * patience) for one in ranks):
        signal = f"no output for {seconds(min(one.silent for one in ranks))}"
    else:
        return None
    signals = (f"no step for {seconds(still)}", signal, *_collective_signals(ranks))
    return _verdict("steps stopped", ranks, ranks_behind(ranks, idle), still, limit, signals)


def _no_activity(ranks: Sequence[RankActivity], limit: Limit) -> Verdict | None:
    least = min(one.inactive for one in ranks)
    if least < limit.seconds:
        return None
    signals = [f"no CPU time and no I/O for {seconds(least)}", f"no output for {seconds(least)}"]
    if all(one.device_idle is not None for one in ranks):
        signals.append(f"no device activity for {seconds(least)}")
    signals += _collective_signals(ranks)
    return _verdict("no activity", ranks, ranks_behind(ranks, ranks), least, limit, tuple(signals))


def _maybe_hung(one: RankActivity, limit: float) -> bool:
    """Whether a rank that uses its CPU shows no other activity; for so long, it is not an evaluation that works."""
    working = one.device_idle is not None and one.device_idle < limit
    return one.silent >= limit and one.phase in STEPPING and not working


def _idle_limit(one: RankActivity, limit: float, patience: float) -> float:
    """Writing to a slow file system may keep a process in uninterruptible sleep for minutes."""
    return max(limit, min(patience, UNSURE)) if one.blocked else limit


def _collective_signals(ranks: Sequence[RankActivity]) -> list[str]:
    if any(one.no_collective is None for one in ranks):
        return []
    told, late = f"no collective begun for {seconds(quiet(ranks))}", late_ranks(ranks)
    if not late:
        return [told]
    which = [one for one in ranks if one.rank in late]
    return [f"{told}; {_names(which)} began {min(late.values())} fewer than the others"]


# --- words ------------------------------------------------------------------------------------------------------------
def seconds(value: float) -> str:
    """`45 s`, `3m12s`, `1h05m`."""
    whole = round(value)
    if whole < 100:
        return f"{whole} s" if value >= 10 else f"{value:.1f} s"
    return f"{whole // 60}m{whole % 60:02d}s" if whole < 3600 else f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def _names(ranks: Sequence[RankActivity]) -> str:
    more = f" and {len(ranks) - NAMED} more" if len(ranks) > NAMED else ""
    return f"rank {', '.join(str(one.rank) for one in ranks[:NAMED])}{more}"


def _verdict(
    kind: Kind,
    ranks: Sequence[RankActivity],
    behind: Sequence[RankActivity],
    waited: float,
    limit: Limit,
    signals: tuple[str, ...],
) -> Verdict:
    first = [*behind, *(one for one in ranks if one not in behind)]
    return Verdict(
        kind,
        tuple(one.rank for one in behind),
        tuple(sorted({one.worker for one in behind})),
        round(waited, 1),
        round(limit.seconds, 1),
        limit.source,
        signals,
        tuple(_seen(one) for one in first[:SHOWN]),
    )


def _seen(one: RankActivity) -> dict[str, Any]:
    pulse = one.pulse
    return {
        "rank": one.rank,
        "step": one.step,
        "phase": one.phase,
        "state": pulse.state if pulse is not None else "",
        "waits_in": pulse.waits_in if pulse is not None else "",
        "cpu": round(one.cpu, 3),
        "power": pulse.power if pulse is not None else None,
        "inactive": round(one.inactive, 1),
        "collectives": dict(one.collectives) if one.no_collective is not None else None,
    }
