"""Which trials' checkpoints may go first when a disk is nearly full: those of the losers, the worst first. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from muster.core.entities.study import Trial
from muster.tune.confirm import winners
from muster.tune.spec import StudySpec
from muster.tune.view import StudyView

KEPT: Final = 5  # of the best trials, in any case
# Without a value first, then those that were stopped early, those whose place another took, and those that are whole.
_ORDER: Final[Mapping[str, int]] = {
    "failed": 0, "infeasible": 0, "diverged": 0, "lost": 0, "replaced": 1, "stopped": 1, "complete": 2,
}  # fmt: skip


def losers(view: StudyView) -> list[Trial]:
    """Trials that are over and will not go on, the first to lose their checkpoints first. The best are not among them,
    nor those that a trial which is not over started from, or whose winners' repetitions are not over."""
    kept = {one.number for one in winners(view, max(KEPT, _top(view.spec)))}
    kept |= {one.of for one in view.trials.values() if one.of is not None and one.phase != "ended"}
    found = [one for one in view.trials.values() if one.phase == "ended" and one.job and one.number not in kept]
    return sorted(found, key=lambda one: (_ORDER.get(one.outcome, 0), -_loss(view, one), one.number))


def _top(spec: StudySpec) -> int:
    return spec.confirm.top if spec.confirm is not None else 0


def _loss(view: StudyView, trial: Trial) -> float:
    loss = view.loss(trial)
    return float("inf") if loss is None else loss
