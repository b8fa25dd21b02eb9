"""CMA-ES of the library `cmaes`: a normal distribution that moves and stretches towards good points."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from muster.tune.evidence import Evidence, evidence_of
from muster.tune.plugin import Option, Suggestion
from muster.tune.records import Records
from muster.tune.spec import StudySpec
from muster.tune.untried import drawn
from muster.tune.view import StudyView

if TYPE_CHECKING:
    from cmaes import CMA

Told = tuple[tuple[int, float], ...]  # numbers of trials, and their losses
_TRIES: Final = 16
_WORST: Final = 1e300  # of a trial without a value: only the order counts


class CmaesSearch:
    """The distribution is computed from the trials in the order of their ends, a generation at a time. It is over the
    coordinates of the space: a choice without an order has the value whose coordinate is the largest."""

    NAME: ClassVar[str] = "cmaes"
    DESCRIPTION: ClassVar[str] = (
        "a normal distribution that moves towards good points (CMA-ES); for numbers, and many trials"
    )
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("population", "integer", 0, "trials of a generation; 0: by the number of parameters", 0, 1000),
        Option("sigma", "number", 0.25, "deviation at first, of the range of each parameter", least=0.01, most=1.0),
    )  # fmt: skip
    OBJECTIVES: ClassVar[int] = 1

    def __init__(self, spec: StudySpec, options: Mapping[str, Any]) -> None:
        self._records = Records(spec)
        self._width = spec.space.width
        self._population = int(options["population"]) or 4 + math.floor(3 * math.log(max(self._width, 1)))
        self._sigma = float(options["sigma"])
        self._learnt: tuple[Told, CMA] | None = None

    def ask(self, view: StudyView, number: int) -> Suggestion | None:
        evidence = evidence_of(self._records, view)
        random = np.random.default_rng((view.seed, number))
        distribution = self._distribution(evidence)
        distribution.reseed_rng(int(random.integers(2**31)))
        cube = self._records.cube
        for _ in range(_TRIES):
            params = cube.point(cube.nearest(distribution.ask()))
            if self._records.may_try(params):
                return Suggestion(params, self.NAME)
        if (other := drawn(self._records, random)) is None:
            return None
        return Suggestion(other, self.NAME, f"{_TRIES} points in a row were tried already: drawn at random")

    def _distribution(self, evidence: Evidence) -> CMA:
        """After all generations that are complete. Those that it has learnt already are not told again."""
        order = self._order(evidence)
        losses = np.where(evidence.refused | np.isnan(evidence.losses[:, 0]), _WORST, evidence.losses[:, 0])
        told = tuple(zip(evidence.numbers[order].tolist(), losses[order].tolist(), strict=True))
        if self._learnt is None or self._learnt[0] != told[: len(self._learnt[0])]:
            self._learnt = ((), self._fresh())
        known, distribution = self._learnt
        for begin in range(len(known), len(told), self._population):
            rows = order[begin : begin + self._population]
            distribution.tell([(evidence.coordinates[row], float(losses[row])) for row in rows])
        self._learnt = (told, distribution)
        return distribution

    def _order(self, evidence: Evidence) -> NDArray[np.intp]:
        """Rows by the ends of their trials, those from elsewhere first; as many as complete generations have."""
        rows = np.nonzero((evidence.numbers < 0) | self._records.rows.ended[evidence.numbers])[0]
        numbers = evidence.numbers[rows]
        ends = np.where(numbers < 0, -np.inf, self._records.rows.ended_at[numbers])
        ordered = rows[np.argsort(ends, kind="stable")]
        return ordered[: len(ordered) // self._population * self._population]

    def _fresh(self) -> CMA:
        from cmaes import CMA  # noqa: PLC0415  (only who uses it pays for it)

        bounds = np.array([[0.0, 1.0]] * self._width)
        return CMA(np.full(self._width, 0.5), self._sigma, bounds=bounds, population_size=self._population)
