"""The wait for other ranks: measured on every rank of a run with several, and least on the slow one."""

from __future__ import annotations

import time
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from loop_kit import PATIENCE, Run, make_tokens, settings

from gang_kit import gang
from muster.monitor.straggler import RankTimes, slow_ones
from muster.train import waiting
from muster.train.feed import Feed
from muster.train.session import Session

SLOW = 1  # the rank
TURN = 8  # the step from which on it is slow in another way


def delay(owner: type, name: str, seconds: float, steps: range) -> None:
    """Makes a method take longer in these steps."""
    before, calls = getattr(owner, name), count()

    def slow(*args: Any, **named: Any) -> Any:
        time.sleep(seconds if next(calls) in steps else 0.0)
        return before(*args, **named)

    setattr(owner, name, slow)


class SlowRun(Run):
    """A run of which one rank takes half a second longer for each loss."""

    slow = ((Session, "loss", 0.5, range(1000)),)

    def _enter(self, rank: int, port: int) -> None:
        super()._enter(rank, port)
        for one in self.slow if rank == SLOW else ():
            delay(*one)


class SlowDataThenPasses(SlowRun):
    """A run of which one rank is slow in its data first, and then in its passes."""

    slow = ((Feed, "ask", 0.6, range(1, TURN)), (Session, "loss", 0.6, range(TURN, 1000)))

    def _enter(self, rank: int, port: int) -> None:
        super()._enter(rank, port)
        waiting.FIRST = tuple(range(TURN, TURN + 3))


def with_a_slow_rank(root: Path) -> dict[str, Any]:
    config = settings(root, root / "data", steps=12, data={"batch": 9}, checkpoint={"every": 100, "at_end": False})
    run = SlowRun(root, config, 3).start().end()
    spent = [[doc.get("spent", {}).get("waiting") for doc in run.docs("phase", rank)] for rank in range(3)]
    return {"codes": run.codes, "spent": spent, "wait": run.metric("wait_s"), "step": run.metric("step_s")}


def sharded_with_a_slow_rank(root: Path) -> dict[str, Any]:
    checkpoint = {"every": 100, "at_end": False}
    config = settings(root, root / "data", steps=20, mesh={"fsdp": 2}, model={"layers": 2}, checkpoint=checkpoint)
    run = SlowDataThenPasses(root, config, 2).start().end()
    shares = {rank: own_share(run.docs("phase", rank)) for rank in range(2)}
    return {"codes": run.codes, "shares": shares, "wait": run.metric("wait_s"), "step": run.metric("step_s")}


def own_share(docs: list[dict[str, Any]]) -> float:
    """What the server makes of a rank's reports."""
    times = RankTimes(0)
    for doc in docs:
        times.report(doc["time"], doc["name"], doc.get("spent", {}))
    return times.own / (times.own + times.waited)


def test_the_slow_rank_waits_least(tmp_path: Path) -> None:
    make_tokens(tmp_path / "data")
    (found,) = gang(1, with_a_slow_rank, tmp_path, group=False, timeout=PATIENCE)
    assert found["codes"] == [0, 0, 0]
    waited = [sum(one for one in rank if one is not None) for rank in found["spent"]]
    assert all(any(one is not None for one in rank) for rank in found["spent"]), "every rank reports it"
    assert waited[SLOW] < min(waited[0], waited[2])
    assert sorted(found["wait"]) == sorted(found["step"]) == list(range(1, 13))
    assert all(found["wait"][step] <= found["step"][step] for step in found["step"])


def test_the_slow_rank_is_found_where_weights_are_sharded(tmp_path: Path) -> None:
    make_tokens(tmp_path / "data")
    (found,) = gang(1, sharded_with_a_slow_rank, tmp_path, group=False, timeout=PATIENCE)
    assert found["codes"] == [0, 0]
    assert slow_ones(found["shares"]) == {SLOW}, found["shares"]
    parts = {number: found["wait"][number] / found["step"][number] for number in found["step"]}
    assert all(0 <= part <= 1 for part in parts.values())
    for steps in (range(3, TURN), range(TURN + 4, 20)):  # the first rank waits for the data, then in the passes
        assert median(parts[number] for number in steps) > 0.3, parts
