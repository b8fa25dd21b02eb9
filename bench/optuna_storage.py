"""Trials a second of eight Optuna workers whose objective does nothing, by storage: Muster's, Optuna's SQLite and its
journal file, on one machine and disk; and how long it takes to open a study of 100,000 logs.

Workers are processes that have imported Optuna already. The sampler is the random one, so that storages are measured.
The rounds of the storages take turns, and the median counts. All three are durable: an operation is on disk when it
returns.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import BaseStorage, JournalStorage, get_storage
from optuna.storages.journal import JournalFileBackend

import muster
from _machine import write
from _server import serving

WORKERS = 8
TRIALS = 25  # of each worker
ROUNDS = 3
LOGS = 100_000
_FORK = multiprocessing.get_context("fork")
Open = Callable[[], BaseStorage]


def main() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder, "home")):
        os.environ["MUSTER_HOME"] = f"{folder}/home"
        rates: dict[str, list[float]] = {"muster": [], "sqlite": [], "journal_file": []}
        for number in range(ROUNDS):
            for name, open_storage in _storages(Path(folder), number).items():
                rates[name].append(_rate(open_storage))
                print(f"{name:13} {rates[name][-1]:7.1f} trials/s")
        found = {name: round(statistics.median(all_), 1) for name, all_ in rates.items()}
        opened = _open_times(Path(folder))
    ratios = {f"over_{name}": round(found["muster"] / found[name], 2) for name in ("sqlite", "journal_file")}
    print(f"Muster: {found['muster']:.0f} trials/s, {ratios['over_sqlite']} times SQLite's, "
          f"{ratios['over_journal_file']} times the journal file's")  # fmt: skip
    about = {"workers": WORKERS, "trials": WORKERS * TRIALS, "rounds": ROUNDS, "optuna": optuna.__version__}
    write("optuna_storage", {**about, "trials_per_s": found, **ratios, **opened})


def _storages(folder: Path, number: int) -> dict[str, Open]:
    return {
        "muster": lambda: get_storage(f"muster://?journal=round-{number}"),
        "sqlite": lambda: get_storage(f"sqlite:///{folder}/{number}.db"),
        "journal_file": lambda: JournalStorage(JournalFileBackend(f"{folder}/{number}.log")),
    }


def _rate(open_storage: Open) -> float:
    optuna.create_study(storage=open_storage(), study_name="bench")
    ready = _FORK.Barrier(WORKERS + 1)
    workers = [_FORK.Process(target=_work, args=(open_storage, ready)) for _ in range(WORKERS)]
    for one in workers:
        one.start()
    ready.wait(300)
    begun = time.perf_counter()
    for one in workers:
        one.join()
    taken = time.perf_counter() - begun
    trials = optuna.load_study(study_name="bench", storage=open_storage()).trials
    done = [one.number for one in trials if one.state == optuna.trial.TrialState.COMPLETE]
    if any(one.exitcode for one in workers) or done != list(range(WORKERS * TRIALS)):
        raise SystemExit(f"{len(done)} trials were done; workers ended with {[one.exitcode for one in workers]}")
    return len(done) / taken


def _work(open_storage: Open, ready: Barrier) -> None:
    sampler = optuna.samplers.RandomSampler(os.getpid())
    study = optuna.load_study(study_name="bench", storage=open_storage(), sampler=sampler)
    ready.wait(300)
    study.optimize(lambda trial: trial.suggest_float("x", -10, 10) ** 2, n_trials=TRIALS)


def _open_times(folder: Path) -> dict[str, Any]:
    """Of a study with so many logs, in finished trials of five logs each."""
    path = folder / "many.log"
    logs = _logs()
    JournalFileBackend(str(path)).append_logs(logs)
    storage = muster.optuna_storage(journal="many")
    for start in range(0, LOGS, 1000):
        storage._backend.append_logs(logs[start : start + 1000])
    plain, file = _opening(lambda: muster.optuna_storage(journal="many")), _opening(
        lambda: JournalStorage(JournalFileBackend(str(path)))
    )  # fmt: skip
    study = optuna.load_study(study_name="many", storage=muster.optuna_storage(journal="many"))
    study.optimize(lambda trial: 0.0, n_trials=101)  # every hundredth trial Optuna offers a snapshot
    quick = _opening(lambda: muster.optuna_storage(journal="many"))
    return {"logs": LOGS, "open_s": {"muster": quick, "muster_without_snapshot": plain, "journal_file": file}}


def _logs() -> list[dict[str, Any]]:
    """What Optuna writes of trials with two parameters, a report and a value."""
    backend = _Kept()
    study = optuna.create_study(storage=JournalStorage(backend), study_name="many")

    def objective(trial: optuna.Trial) -> float:
        value = trial.suggest_float("lr", 1e-5, 1e-1, log=True) + trial.suggest_int("depth", 1, 32)
        trial.report(value, 1)
        return value

    study.sampler = optuna.samplers.RandomSampler(1)
    study.optimize(objective, n_trials=LOGS // 5)
    return backend.logs[:LOGS]


class _Kept(optuna.storages.journal.BaseJournalBackend):
    def __init__(self) -> None:
        self.logs: list[dict[str, Any]] = []

    def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
        return self.logs[log_number_from:]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        self.logs += logs


def _opening(make: Callable[[], BaseStorage]) -> float:
    begun = time.perf_counter()
    assert len(make().get_all_studies()) == 1
    return round(time.perf_counter() - begun, 2)


if __name__ == "__main__":
    main()
