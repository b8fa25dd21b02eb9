"""The wait for other ranks: measured on every rank of a data-parallel run, and least on the slow one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from loop_kit import PATIENCE, Run, make_tokens, settings

from gang_kit import gang
from muster.train.session import Session

SLOW = 1  # the rank


class SlowRun(Run):
    """A run of which one rank takes half a second longer for each loss."""

    def _enter(self, rank: int, port: int) -> None:
        super()._enter(rank, port)
        loss = Session.loss

        def slow(self: Session, output: Any, batch: Any) -> Any:
            time.sleep(0.5)
            return loss(self, output, batch)

        if rank == SLOW:
            Session.loss = slow  # type: ignore[method-assign]


def with_a_slow_rank(root: Path) -> dict[str, Any]:
    config = settings(root, root / "data", steps=12, data={"batch": 9}, checkpoint={"every": 100, "at_end": False})
    run = SlowRun(root, config, 3).start().end()
    spent = [[doc.get("spent", {}).get("waiting") for doc in run.docs("phase", rank)] for rank in range(3)]
    return {"codes": run.codes, "spent": spent, "wait": run.metric("wait_s"), "step": run.metric("step_s")}


def test_the_slow_rank_waits_least(tmp_path: Path) -> None:
    make_tokens(tmp_path / "data")
    (found,) = gang(1, with_a_slow_rank, tmp_path, group=False, timeout=PATIENCE)
    assert found["codes"] == [0, 0, 0]
    waited = [sum(one for one in rank if one is not None) for rank in found["spent"]]
    assert all(any(one is not None for one in rank) for rank in found["spent"]), "every rank reports it"
    assert waited[SLOW] < min(waited[0], waited[2])
    assert sorted(found["wait"]) == sorted(found["step"]) == list(range(1, 13))
    assert all(found["wait"][step] <= found["step"][step] for step in found["step"])
