"""Points drawn at random, each as likely as any other, and none twice while there are others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from muster.tune.plugin import Option, Suggestion
from muster.tune.records import Records
from muster.tune.spec import StudySpec
from muster.tune.untried import drawn
from muster.tune.view import StudyView


class RandomSearch:
    NAME: ClassVar[str] = "random"
    DESCRIPTION: ClassVar[str] = "draws every point with the same probability"
    OPTIONS: ClassVar[tuple[Option, ...]] = ()
    OBJECTIVES: ClassVar[int] = 100

    def __init__(self, spec: StudySpec, options: Mapping[str, Any]) -> None:
        self._records = Records(spec)

    def ask(self, view: StudyView, number: int) -> Suggestion | None:
        self._records.follow(view)
        params = drawn(self._records, generator(view.seed, number))
        return Suggestion(params, self.NAME) if params is not None else None


def generator(seed: int, number: int) -> np.random.Generator:
    """The random numbers of one trial, whatever was drawn before."""
    return np.random.default_rng((seed, number))
