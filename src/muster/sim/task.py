"""What the programs of simulated trials do with their parameters: their steps, what these take, what they report, and
how they fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from muster.tune.space import Params

# What a program has learnt, as its checkpoints hold it; () of one whose figures follow from its step alone.
Learnt = tuple[float, ...]


def stays(learnt: Learnt, step: int) -> Learnt:
    return learnt


@dataclass(frozen=True, slots=True)
class Program:
    """The program of one trial. `figures` are the metrics at a step, `learn` what it has learnt after the step."""

    steps: int  # after which it has succeeded
    seconds: float  # that a step takes
    figures: Callable[[int, Learnt], Mapping[str, float]]
    learn: Callable[[Learnt, int], Learnt] = stays
    begins: Learnt = ()
    every: int = 1  # steps between two reports
    memory: int = 0  # bytes of a device that it needs
    fails_at: int | None = None  # the step in which it raises an error, whenever it gets there


class Task(Protocol):
    """What is trained: the program for each point of a space."""

    def program(self, params: Params, seed: int) -> Program:
        """`seed`: of a trial that has one, or its number: noise differs from trial to trial."""
