"""How the winners of a study hold up: each is run again with other seeds, and their values are tested.

The value that made a trial a winner is not among its group: it is the best of many, and so better than what the same
parameters give on average. Statements that one configuration beats another are, all of one study together, wrong with
a probability of at most `ERROR` (Welch's t-test of every pair, with Holm's correction).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from muster.core.entities.study import Trial
from muster.core.significance import Difference, Estimate, compare_groups, estimate
from muster.tune.space import key_of
from muster.tune.view import StudyView

ERROR: Final = 0.05


@dataclass(frozen=True, slots=True)
class Held:
    """One configuration. `found`: the value by which it was chosen; `values`: of the runs with other seeds."""

    number: int
    found: float
    values: tuple[float, ...]
    failed: int  # runs with other seeds that ended without a value
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class HeldUp:
    """Configurations that have values, the best mean first. `beats`: whether the first is better than the second; None
    if that can't be tested."""

    groups: tuple[Held, ...]
    differences: tuple[Difference, ...]  # `first` and `second` are places among the groups
    beats: bool | None
    p: float | None  # corrected
    words: str

    def to_doc(self) -> dict[str, Any]:
        groups = [
            {
                "number": one.number, "found": one.found, "values": list(one.values), "failed": one.failed,
                "mean": one.estimate.mean, "deviation": one.estimate.deviation,
                "low": one.estimate.low, "high": one.estimate.high,
            }
            for one in self.groups
        ]  # fmt: skip
        return {"groups": groups, "beats": self.beats, "p": self.p, "words": self.words}


def winners(view: StudyView, top: int) -> list[Trial]:
    """The best complete trials, each configuration once; of several objectives first those that no other one beats in
    all of them."""
    found: dict[object, Trial] = {}
    best = front(view) if len(view.spec.objectives) > 1 else []
    for trial in [*best, *view.complete()]:
        found.setdefault(key_of(trial.params), trial)
    return list(found.values())[:top]


def front(view: StudyView) -> list[Trial]:
    """The complete trials that no other one beats in one objective without losing in another, by the first."""
    kept: list[tuple[tuple[float, ...], Trial]] = []
    complete = [(view.losses(one.values), one) for one in view.complete() if one.values is not None]
    for losses, trial in sorted(complete, key=lambda one: one[0]):
        if not any(other != losses and all(a <= b for a, b in zip(other, losses, strict=True)) for other, _ in kept):
            kept.append((losses, trial))
    return [trial for _, trial in kept]


def held_up(view: StudyView) -> HeldUp | None:
    """None if nothing was run again."""
    sign = view.spec.objective.sign
    groups: dict[int, list[Trial]] = {}
    for trial in view.trials.values():
        if trial.origin == "confirm" and trial.of is not None and trial.phase == "ended" and trial.outcome != "lost":
            groups.setdefault(trial.of, []).append(trial)
    held = [_held(view.trials[number], runs) for number, runs in groups.items()]
    held = sorted((one for one in held if one.values), key=lambda one: (sign * (one.estimate.mean or 0.0), one.number))
    if not held:
        return None
    differences = compare_groups([one.values for one in held])
    if len(held) == 1:
        return HeldUp(tuple(held), (), None, None, f"{_figures(held[0])}. No other configuration was run again.")
    first = next(one for one in differences if {one.first, one.second} == {0, 1})
    beats = None if first.adjusted is None else first.adjusted <= ERROR
    return HeldUp(tuple(held), tuple(differences), beats, first.adjusted, _words(held, beats, first))


def _held(trial: Trial, runs: Sequence[Trial]) -> Held:
    values = tuple(
        one.values[0]
        for one in sorted(runs, key=lambda one: (one.seed or 0, one.number))
        if one.outcome == "complete" and one.values is not None
    )
    found = trial.values[0] if trial.values else float("nan")
    return Held(trial.number, found, values, len(runs) - len(values), estimate(values))


def _words(held: Sequence[Held], beats: bool | None, test: Difference) -> str:
    figures = f"{_figures(held[0])}; {_figures(held[1])}"
    if beats is None:
        if all(one.estimate.deviation == 0 for one in held[:2]):
            return f"{figures}. The values do not vary: does the program read its seed?"
        return f"{figures}. This can't be tested: {test.why}."
    p = f"p = {test.adjusted:.2g}"
    if beats:
        return f"{figures}. Trial {held[0].number} is better ({p})."
    return f"{figures}. Which of them is better can't be told ({p}): run them with more seeds, or take the cheaper one."


def _figures(one: Held) -> str:
    mean, deviation = one.estimate.mean, one.estimate.deviation
    spread = f" ± {deviation:.3g}" if deviation is not None else ""
    return f"trial {one.number}: {mean:.5g}{spread} over {len(one.values)} seeds".replace("1 seeds", "1 seed")
