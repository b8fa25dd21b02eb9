"""Workers of a study as processes, which write down each trial that they run."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path

import optuna

from live import PATIENCE

_FORK = multiprocessing.get_context("fork")  # so that Optuna is imported once


def run_trials(open_study: Callable[[], optuna.Study], count: int, note: Path) -> None:
    """Runs trials, and notes the number of each before it is told."""
    study = open_study()
    for _ in range(count):
        trial = study.ask()
        value = trial.suggest_float("x", -10, 10) ** 2
        trial.report(value, 1)
        with note.open("a") as file:
            file.write(f"{trial.number}\n")
        study.tell(trial, value)


@contextmanager
def workers(
    count: int, trials: int, folder: Path, open_study: Callable[[], optuna.Study]
) -> Iterator[list[BaseProcess]]:
    """So many processes, which are ended if the test fails."""
    made = [_FORK.Process(target=run_trials, args=(open_study, trials, folder / f"{n}.txt")) for n in range(count)]
    for one in made:
        one.start()
    try:
        yield made
    finally:
        for one in made:
            one.kill()
            one.join()


def finish(processes: list[BaseProcess]) -> None:
    for one in processes:
        one.join(PATIENCE)
    assert [one.exitcode for one in processes] == [0] * len(processes)


def noted(folder: Path) -> list[int]:
    """Trials that workers ran, sorted; a trial that two of them ran is there twice."""
    return sorted(int(line) for path in folder.glob("*.txt") for line in path.read_text().split())


def open_named(name: str, uri: str = "muster://") -> Callable[[], optuna.Study]:
    def study() -> optuna.Study:
        sampler = optuna.samplers.RandomSampler(os.getpid())
        return optuna.create_study(storage=uri, study_name=name, load_if_exists=True, sampler=sampler)

    return study
