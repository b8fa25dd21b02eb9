"""What one replay is asked for and what it answers, in a form that processes can send each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from muster.sim.model import JobResult, Result, Setup, TraceJob
from muster.sim.summary import Summary, summarise
from muster.sim.targets import Target
from muster.sim.watched import Tell, Watched, watch
from muster.sim.worlds import Worlds


@dataclass(frozen=True, slots=True)
class Ask:
    """One replay: this setup in this world."""

    setup: Setup
    world: int = 0
    targets: tuple[Target, ...] = ()
    to_end: bool = True
    whole: bool = False  # the answer has the result of every job, and not only the summary
    label: str = ""  # for people: which replay this is


@dataclass(frozen=True, slots=True)
class Answer:
    watched: Watched  # without its result
    summary: Summary | None  # None: it was not replayed to its end
    values: tuple[float, ...] = ()  # of the targets; none where it was not replayed to its end
    result: Result | None = None  # where all of it was asked for


@dataclass(frozen=True, slots=True)
class Packed:
    """An answer on its way: of a job only what the replay found, because the other side has the trace."""

    answer: Answer
    jobs: list[tuple[Any, ...]]


def answer(trace: Sequence[TraceJob], worlds: Worlds | None, ask: Ask, tell: Tell | None = None) -> Answer:
    """Replays what is asked for. Without `worlds`, the trace and the seed are as they were given."""
    jobs, setup = world_of(trace, worlds, ask)
    found = watch(jobs, setup, ask.targets, tell, ask.to_end)
    if found.result is None:
        return Answer(found, None)
    values = tuple(target.value(found.result.jobs) for target in ask.targets)
    summary = summarise(found.result)
    return Answer(replace(found, result=None), summary, values, found.result if ask.whole else None)


def world_of(trace: Sequence[TraceJob], worlds: Worlds | None, ask: Ask) -> tuple[Sequence[TraceJob], Setup]:
    if worlds is None:
        return trace, ask.setup
    return worlds.jobs(ask.world, trace), worlds.setup(ask.world, ask.setup)


def pack(found: Answer) -> Packed:
    if found.result is None:
        return Packed(found, [])
    rows = [
        (
            one.started, one.finished, one.held, one.preemptions, one.failures, one.lost, one.longest_in_quota,
            one.refused,
        )
        for one in found.result.jobs
    ]  # fmt: skip
    return Packed(replace(found, result=replace(found.result, jobs=[])), rows)


def unpack(packed: Packed, trace: Sequence[TraceJob], worlds: Worlds | None, ask: Ask) -> Answer:
    found = packed.answer
    if found.result is None:
        return found
    jobs, setup = world_of(trace, worlds, ask)
    results = [JobResult(job, *row) for job, row in zip(jobs, packed.jobs, strict=True)]
    return replace(found, result=replace(found.result, setup=setup, jobs=results))
