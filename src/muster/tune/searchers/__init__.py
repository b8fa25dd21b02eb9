"""The searchers by name. To add one: a file with a class as `base.py` describes it, and a line here."""

from __future__ import annotations

from typing import Final

from muster.core.registry import Registry
from muster.tune.plugin import with_defaults
from muster.tune.searchers.auto import AutoSearch
from muster.tune.searchers.base import Searcher
from muster.tune.searchers.cmaes import CmaesSearch
from muster.tune.searchers.evolution import EvolutionSearch
from muster.tune.searchers.gp import GaussianSearch
from muster.tune.searchers.grid import GridSearch
from muster.tune.searchers.portfolio import Portfolio
from muster.tune.searchers.random import RandomSearch
from muster.tune.searchers.sobol import SobolSearch
from muster.tune.searchers.tpe import TpeSearch
from muster.tune.spec import StudySpec

_ALL: Final[tuple[type[Searcher], ...]] = (
    AutoSearch, CmaesSearch, EvolutionSearch, GaussianSearch, GridSearch, RandomSearch, SobolSearch, TpeSearch,
)  # fmt: skip
SEARCHERS: Final[Registry[type[Searcher]]] = Registry("searcher", {one.NAME: one for one in _ALL})


def make_searcher(spec: StudySpec) -> Searcher:
    """The searcher of a study; of several, one that has them take turns."""
    made: list[Searcher] = []
    for plugin in spec.search:
        kind = SEARCHERS.get(plugin.name)
        made.append(kind(spec, with_defaults(kind, plugin.options)))
    return made[0] if len(made) == 1 else Portfolio(made)
