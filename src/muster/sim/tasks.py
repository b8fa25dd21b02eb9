"""What trials of simulated studies train: functions of several fidelities that are used to compare searches, and tables
of learning curves that were measured.

A function takes a point of the unit cube and the fraction of the training that is done, and gives a loss. The space of
a study is mapped to the cube; coordinates that a function has beyond it are 0.5.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np

from muster.core.errors import Problem, SpecError
from muster.core.registry import Registry
from muster.sim.task import Program, Task
from muster.tune.space import Params, Space

STEPS: Final = 81
SECONDS: Final = 30.0  # of a step of the fastest trials
NOISE: Final = 0.01  # of reports, as a part of the range of a function

Function = Callable[[Sequence[float], float], float]  # of a point of the cube, and the fidelity


@dataclass(frozen=True, slots=True)
class Known:
    """A function, its dimensions, and how far its good values are from each other."""

    of: Function
    width: int
    range: float


def hartmann(x: Sequence[float], fidelity: float) -> float:
    """Hartmann's function of six dimensions with the fidelity of Kandasamy et al. (2017); its minimum is -3.32237."""
    square = (_HARTMANN_A * (np.asarray(x) - _HARTMANN_P) ** 2).sum(axis=1)
    return float(-((_HARTMANN_ALPHA - 0.1 * (1 - fidelity)) @ np.exp(-square)))


def currin(x: Sequence[float], fidelity: float) -> float:
    """The exponential function of Currin (1988) with the fidelity of Kandasamy et al. (2017); minimum -13.7987."""
    first, second = x
    damped = 1 - 0.1 * (1 - fidelity) * (math.exp(-1 / (2 * second)) if second > 0 else 0.0)
    above = 2300 * first**3 + 1900 * first**2 + 2092 * first + 60
    return -damped * above / (100 * first**3 + 500 * first**2 + 4 * first + 20)


def branin(x: Sequence[float], fidelity: float) -> float:
    """Branin's function with the fidelity of Kandasamy et al. (2017); its minimum is 0.397887."""
    less = 1 - fidelity
    first, second = 15 * x[0] - 5, 15 * x[1]
    b, c, t = 5.1 / (4 * math.pi**2) - 0.01 * less, 5 / math.pi - 0.1 * less, 1 / (8 * math.pi) + 0.05 * less
    return (second - b * first**2 + c * first - 6) ** 2 + 10 * (1 - t) * math.cos(first) + 10


def curves(x: Sequence[float], fidelity: float) -> float:
    """Learning curves that cross: a loss falls by a power law to where the first two dimensions say, and the better of
    these learn the slower, as the third says."""
    final = 0.1 + (x[0] - 0.3) ** 2 + 0.5 * (x[1] - 0.6) ** 2
    slow = 0.02 + 0.3 * x[2] * math.exp(-4 * (final - 0.1))
    return final + 2.0 * slow / (slow + fidelity)


KNOWN: Final[Registry[Known]] = Registry(
    "task",
    {
        "hartmann": Known(hartmann, 6, 3.3), "currin": Known(currin, 2, 13.8), "branin": Known(branin, 2, 10.0),
        "curves": Known(curves, 3, 1.0),
    },
)  # fmt: skip


@dataclass(frozen=True)
class FunctionTask:
    """Steps take longer for some points than for others, by up to four times."""

    known: Known
    space: Space
    metric: str
    sign: float = 1.0  # -1: the metric is maximized

    def program(self, params: Params, seed: int) -> Program:
        x = [*self.space.coordinates(params), *[0.5] * self.known.width][: self.known.width]
        noise = NOISE * self.known.range

        def figures(step: int, learnt: object) -> Mapping[str, float]:
            loss = self.known.of(x, step / STEPS) + Random(f"{seed}/{step}").gauss(0, noise)
            return {self.metric: self.sign * loss}

        return Program(STEPS, SECONDS * 4 ** Random(f"{sorted(params.items())}").random(), figures)


@dataclass(frozen=True)
class TableTask:
    """Of measured points, each trial follows the nearest one: `cube` has their places, a row for each."""

    space: Space
    metric: str
    cube: Any  # float64 (points, coordinates)
    values: Sequence[Sequence[float]]  # of each point, one for each report
    seconds: Sequence[float]  # of each point, for a report
    memory: Sequence[int]

    def program(self, params: Params, seed: int) -> Program:
        place = np.asarray(self.space.coordinates(params))
        index = int(((self.cube - place) ** 2).sum(axis=1).argmin())
        curve = self.values[index]
        return Program(
            len(curve), self.seconds[index], lambda step, learnt: {self.metric: curve[step - 1]},
            memory=self.memory[index],
        )  # fmt: skip


def task_of(name: str, space: Space, metric: str, sign: float) -> Task:
    """A known function, or the table in a JSON file. SpecError for one that can't be read."""
    if name in KNOWN:
        return FunctionTask(KNOWN.get(name), space, metric, sign)
    path = Path(name)
    if not path.is_file():
        expected = f"one of {', '.join(KNOWN)}, or a JSON file of measured curves"
        raise SpecError([Problem("--task", name, expected, "Write, for example, `--task curves`.")], "The command line")
    return read_table(path.read_bytes(), name, space, metric)


def read_table(text: bytes, source: str, space: Space, metric: str) -> TableTask:
    """`{"points": [{"params": {...}, "values": [...], "seconds": 12.5, "memory": 0}, ...]}`. A value that could not be
    measured is null."""
    example = '{"points": [{"params": {"lr": 0.1}, "values": [0.9, 0.7], "seconds": 12.5}]}'
    try:
        points = json.loads(text)["points"]
        values = [[math.nan if one is None else float(one) for one in point["values"]] for point in points]
        seconds = [float(point["seconds"]) for point in points]
        cube = np.asarray([space.coordinates(point["params"]) for point in points])
        memory = [int(point.get("memory", 0)) for point in points]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise SpecError(
            [Problem("points", str(error), f"a table such as `{example}`", "Correct it.")], source
        ) from None
    if not points or not all(values) or min(seconds) <= 0:
        told = "no points" if not points else "a point without values" if not all(values) else "seconds of 0"
        raise SpecError([Problem("points", told, f"a table such as `{example}`", "Correct it.")], source)
    return TableTask(space, metric, cube, values, seconds, memory)


_HARTMANN_ALPHA: Final = np.array([1.0, 1.2, 3.0, 3.2])
_HARTMANN_A: Final = np.array([
    [10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14],
])  # fmt: skip
_HARTMANN_P: Final = 1e-4 * np.array([
    [1312, 1696, 5569, 124, 8283, 5886], [2329, 4135, 8307, 3736, 1004, 9991], [2348, 1451, 3522, 2883, 3047, 6650],
    [4047, 8828, 8732, 5743, 1091, 381],
])  # fmt: skip
