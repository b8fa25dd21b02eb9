"""Sweeps that stopped paying: the last third of their money did not improve the best result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from muster.cost.advice.facts import Advice, AdviceFacts

TRIALS: Final = 6  # from which on a sweep is judged
THIRD: Final = 2 / 3  # of the money


def sweeps(facts: AdviceFacts) -> Iterator[Advice]:
    for sweep in facts.sweeps:
        trials = sorted(
            [one for one in facts.runs if one.parent == sweep.run and one.score is not None], key=lambda one: one.end
        )
        total, spent, first = sum(one.amount for one in trials), 0, 0
        if len(trials) < TRIALS or total <= 0:
            continue
        while first < len(trials) and spent < THIRD * total:
            spent += trials[first].amount
            first += 1
        late = trials[first:]
        best = min(trials[:first], key=lambda one: one.score or 0.0)
        assert best.score is not None
        if not late or any(one.score is not None and one.score < best.score for one in late):
            continue
        saved = total - spent
        command = f"muster stop {sweep.run}"
        if not sweep.running:
            command = f"muster note {sweep.run} 'stop after {first} trials: later ones were no better'"
            if sweep.array:
                command = f"muster runs reproduce {sweep.run} -o array=0-{first - 1}"
        yield Advice(
            "sweep", sweep.run, sweep.project, facts.monthly(saved),
            f"of {len(trials)} trials for {facts.money(total)} the best is {best.run}, among the first {first}, which "
            f"cost {facts.money(spent)}; {len(late)} later ones cost {facts.money(saved)} and none was better",
            command, (best.run, *(one.run for one in late[-4:])), "measured",
        )  # fmt: skip
