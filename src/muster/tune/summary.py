"""What is written down of a study when it is over: why it ended, its best trials, and how they held up."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from muster.tune.confirm import held_up, winners
from muster.tune.view import StudyView

BEST: Final = 3  # trials that are named, unless more were to be confirmed


def summary(view: StudyView, why: str) -> dict[str, Any]:
    """JSON. `best` are complete trials; of several objectives, first those that no other one beats in all of them."""
    top = max(view.spec.confirm.top if view.spec.confirm is not None else 0, BEST)
    best = [
        {"number": one.number, "values": list(one.values or ()), "params": dict(one.params)}
        for one in winners(view, top)
    ]
    outcomes = Counter(one.outcome or one.phase for one in view.trials.values() if one.origin != "confirm")
    held = held_up(view)
    found = {"why": why, "trials": dict(sorted(outcomes.items())), "best": best}
    return {**found, "held_up": held.to_doc()} if held is not None else found
