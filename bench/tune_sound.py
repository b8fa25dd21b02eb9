"""Does a study go on as if nothing had happened when the server is killed, and does it keep to its money?

Simulated, with the real controller over a SQLite file: nodes fail, urgent jobs of others take trials' places, some
programs fail and diverge. The server is killed at 100 random commits of a study, before or after they are durable, by
three rules: all decisions are those of a study that nobody disturbed. A study of 10,000 trials is resumed by a new
server. 1,000 trials of a population start from checkpoints of others while nodes fail and the server is killed. Studies
with a limit of money are compared with what they have spent.

Real: a server that runs a study on this machine is killed (SIGKILL) twenty times, and started again.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

from _machine import write
from _studies import others, study
from _study_story import Troubled, tell
from _tune_kills import killed_for_real
from muster.core.entities.study import TrialStarted
from muster.core.prices import Price, PriceBook
from muster.core.rules import Preemption, Rules
from muster.sim.kills import When
from muster.sim.model import Cluster, Costs, PoolShape, Setup, SimStudy
from muster.sim.run import Simulation
from muster.sim.tasks import KNOWN, STEPS, FunctionTask
from muster.store.direct import SerialCommit
from muster.store.memory import MemoryStore
from muster.store.registry import open_store
from muster.tune.space import Parameter, Space
from muster.tune.spec import StudySpec

KILLS, TRIALS = 100, 80
RESUMED = 10_000  # trials
EXPLOITS = 1_000
SPACE = Space(tuple(Parameter(f"x{index}", "float", 0.0, 1.0) for index in range(6)))
TASK = FunctionTask(KNOWN.get("hartmann"), SPACE, "loss")
EVERY = 600.0  # seconds between two checkpoints
PRICE = 3_600_000  # millionths for an hour of an accelerator
PRICES = PriceBook(version=1, currency="EUR", pools={"gpu": (Price(accelerator=PRICE * 1000),)}, assumed_run=4000.0)
LEVELS = {"by": "step", "min": 1, "max": STEPS, "eta": 3.0}
RULES: dict[str, dict[str, Any]] = {"asha": LEVELS, "hyperband": LEVELS, "pbt": {"by": "step", "interval": 9}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=RESUMED, help="of the study that is resumed")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    args = parser.parse_args()
    result: dict[str, Any] = {}
    for name in args.only:
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            result[name] = PARTS[name](Path(folder), args.trials)
        print(f"{name}: {result[name]} in {time.perf_counter() - began:.0f} s", flush=True)
    write("tune_sound", result)


def killed(folder: Path, trials: int) -> dict[str, Any]:
    """The server killed at random commits."""
    found: dict[str, Any] = {"kills_of_each": KILLS, "trials": TRIALS, "search": "auto"}
    for rule, options in RULES.items():
        setup = _setup(study(rule, SPACE, search="auto", trials=TRIALS, parallel=16, options=options))
        whole = tell(setup, MemoryStore(), trace=others(1))
        random = Random(rule)
        places = random.sample(range(1, whole.commit.count + 1), KILLS)
        kills: dict[int, When] = {place: random.choice(("before", "after")) for place in places}
        store = open_store(f"sqlite:///{folder}/{rule}.db")
        story = tell(setup, store, kills, others(1))
        found[rule] = {
            "commits": whole.commit.count, "killed": story.commit.killed, "trials": len(story.trials),
            "decisions": len(story.decisions()), "same_decisions": story.decisions() == whole.decisions(),
            "lost": story.lost(), "doubled": story.doubled(),
        }  # fmt: skip
        store.close()
    return found


def resumed(folder: Path, trials: int) -> dict[str, Any]:
    """A server takes over the database of a study with so many trials, of which 256 run: until it has all of the state,
    and until it has decided a round."""
    store = open_store(f"sqlite:///{folder}/many.db")
    spec = study("asha", SPACE, trials=trials + 256, parallel=256, options=LEVELS)
    setup = _setup(spec, cluster=Cluster((PoolShape("gpu", 32, 8),)), costs=Costs(checkpoint_every=EVERY))
    simulation = Simulation([], setup, store=store)
    simulation.open()
    while sum(map(len, store.state().trials.values())) < trials:
        assert simulation.step()
    (before,) = [dict(one) for one in store.state().trials.values()]
    events, size = store.state().version, (folder / "many.db").stat().st_size
    gc.collect()
    began = time.perf_counter()
    simulation.restart(SerialCommit(store, simulation.committed))
    loaded = time.perf_counter() - began
    assert simulation.studies is not None
    simulation.studies.look()
    decided = time.perf_counter() - began
    (after,) = store.state().trials.values()
    same = sum(after[number] == trial for number, trial in before.items())
    store.close()
    return {
        "trials": len(before), "trials_as_they_were": same, "events": events, "database_mib": round(size / 2**20, 1),
        "loaded_s": round(loaded, 3), "decided_s": round(decided, 3),
    }  # fmt: skip


def exploited(folder: Path, trials: int) -> dict[str, Any]:
    """Trials that start from the checkpoints of others, which keep only their newest one."""
    options = {"by": "step", "interval": 2, "quantile": 0.25}
    spec = study("pbt", SPACE, trials=128, parallel=128, options=options)
    cluster = Cluster((PoolShape("gpu", 16, 8),))
    setup = _setup(spec, cluster=cluster)
    kills: dict[int, When] = dict.fromkeys(range(50, 100_000, 97), "after")
    story = tell(setup, MemoryStore(), kills, others(2))
    assert story.simulation.studies is not None
    tally = story.simulation.studies.trials.tally
    started = [one.data for one in story.events if isinstance(one.data, TrialStarted) and one.data.origin == "exploit"]
    assert len(started) >= EXPLOITS, len(started)
    return {
        "exploits": len(started), "missing_checkpoints": tally.missing + sum(not one.step for one in started),
        "attempts_lost_with_nodes": tally.failures, "server_killed": story.commit.killed,
        "lost": story.lost(), "doubled": story.doubled(),
    }  # fmt: skip


def limited(folder: Path, trials: int) -> dict[str, Any]:
    """What studies spend beyond their limit, of what all trials that run cost between two checkpoints."""
    parallel, over, rules = 8, dict[str, float](), {"fifo": {}, **RULES}
    every = parallel * EVERY * PRICE / 3600
    runs = 0
    for rule, options in rules.items():
        for seed in range(5):
            cost = Random(seed).randint(20, 200) * PRICE
            spec = study(rule, SPACE, trials=400, parallel=parallel, cost=cost, options=options)
            story = tell(_setup(spec, seed, prices=PRICES), MemoryStore(), trace=others(seed))
            spent = sum(one.cost for one in story.trials.values())
            over[rule] = max(over.get(rule, 0.0), round(max(spent - cost, 0) / every, 4))
            runs += 1
    return {"studies": runs, "most_overspent_of_a_checkpoint_interval": over}


def _setup(
    spec: StudySpec, seed: int = 0, cluster: Cluster | None = None, costs: Costs | None = None, **given: Any
) -> Setup:
    """By default 16 accelerators whose nodes fail twice a day, and programs that fail."""
    costs = costs or Costs(checkpoint_every=EVERY, checkpoint_cost=5.0, node_failures=2.0, repair=600.0, seed=seed)
    cluster = cluster or Cluster((PoolShape("gpu", 4, 4),))
    rules = Rules(preemption=Preemption(min_run=60.0))
    return Setup("sound", rules, cluster, costs, studies=(SimStudy(spec, Troubled(TASK), seed=seed),), **given)


PARTS = {
    "killed": killed,
    "resumed": resumed,
    "exploited": exploited,
    "limited": limited,
    "killed_for_real": killed_for_real,
}


if __name__ == "__main__":
    main()
