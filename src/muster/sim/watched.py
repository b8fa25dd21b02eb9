"""A replay that is watched: it tells how far it is, and ends as soon as its targets are certain to be met or missed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from muster.sim.model import JobResult, Result, Setup, TraceJob
from muster.sim.partial import Partial, Tally
from muster.sim.run import EPOCH, Simulation, few_collections
from muster.sim.targets import Going, Judge, Target

TELL_EVERY: Final = 0.25  # seconds of this machine's time
_LOOK_STEPS: Final = 64  # steps between two looks at the machine's clock
_JUDGE_STEPS: Final = 256  # steps between two looks at all jobs in the system, at least
Tell = Callable[[Partial], None]


@dataclass(frozen=True, slots=True)
class Watched:
    """`verdicts` has one for each target: met, missed, or None where the replay ended before that one was certain."""

    result: Result | None  # None: it was not replayed to its end
    share: float  # of the jobs that were replayed
    verdicts: tuple[bool | None, ...] = ()
    wall: float = 0.0

    @property
    def met(self) -> bool:
        return all(self.verdicts)


def watch(
    trace: Sequence[TraceJob],
    setup: Setup,
    targets: Sequence[Target] = (),
    tell: Tell | None = None,
    to_end: bool = True,
) -> Watched:
    """Replays the trace. Unless `to_end`, one target that is missed for certain, or all that are met, end it."""
    began = time.perf_counter()
    with few_collections():
        simulation = Simulation(trace, setup)
        tally, judges = Tally(EPOCH), [] if to_end else [Judge(target, trace, EPOCH) for target in targets]
        _listen(simulation, tally, judges)
        simulation.open()
        steps, judged, told = 0, 0, began
        while simulation.step():
            steps += 1
            if steps % _LOOK_STEPS:
                continue
            plays = simulation.work.plays
            if judges and steps - judged >= _JUDGE_STEPS + len(plays) // 8:
                judged = steps
                verdicts = tuple(judge.verdict(_going(simulation)) for judge in judges)
                if all(verdicts) or False in verdicts:
                    return Watched(None, simulation.share, verdicts, time.perf_counter() - began)
            if tell is not None and (now := time.perf_counter()) - told >= TELL_EVERY:
                told = now
                waiting = simulation.work.waiting
                tell(tally.partial(simulation.share, waiting, len(plays) - waiting))
        result = simulation.result()
    result.wall = time.perf_counter() - began
    verdicts = tuple(target.value(result.jobs) <= target.limit for target in targets)
    return Watched(result, 1.0, verdicts, result.wall)


def _listen(simulation: Simulation, tally: Tally, judges: Sequence[Judge]) -> None:
    def ended(job: JobResult) -> None:
        tally.add(job)
        for judge in judges:
            judge.ended(job)

    def refused(job: JobResult) -> None:
        for judge in judges:
            judge.refused(job)

    simulation.work.on_end, simulation.on_refusal = ended, refused


def _going(simulation: Simulation) -> Iterator[Going]:
    now = simulation.clock.time
    for play in simulation.work.plays.values():
        job = play.result
        age = now - EPOCH - job.job.submit
        held = job.held + (now - play.since if play.attempt else 0.0)
        yield Going(job, age, max(age - held, 0.0))
