"""Studies for tests of searchers: spaces that hypothesis draws, and trials that end as the test says."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from muster.core.entities.study import Rung, Trial
from muster.tune.plugin import Suggestion
from muster.tune.searchers import make_searcher
from muster.tune.searchers.base import Searcher
from muster.tune.space import Parameter, Params, Space
from muster.tune.spec import Objective, Plugin, StudySpec
from muster.tune.view import Prior, StudyView

ENDS = ("complete", "complete", "complete", "failed", "diverged", "infeasible", "violated", "lost", "stopped", "paused")
MIXED = Space((
    Parameter("lr", "float", 1e-5, 1e-1, log=True),
    Parameter("model", "choice", choices=("deep", "wide", "odd")),
    Parameter("depth", "int", 4, 24, step=4, when="model == 'deep'"),
    Parameter("width", "int", 16, 512, log=True, step=1),
    Parameter("batch", "choice", choices=(16, 32, 64)),
    Parameter("decay", "float", 0.0, 1.0, step=0.25),
))  # fmt: skip


@st.composite
def parameters(draw: st.DrawFn, name: str, before: Sequence[Parameter], counted: bool) -> Parameter:
    kinds = ["steps", "whole", "text", "numbers"] + ([] if counted else ["plain", "log", "whole log"])
    chooser = [one for one in before if one.kind == "choice" and not one.ordered]
    when = ""
    if chooser and draw(st.booleans()):
        on = draw(st.sampled_from(chooser))
        when = f"{on.name} == {draw(st.sampled_from(on.choices))!r}"
    match draw(st.sampled_from(kinds)):
        case "plain":
            return Parameter(name, "float", -2.0, draw(st.sampled_from([-1.0, 5.0])), when=when)
        case "log":
            return Parameter(name, "float", 1e-6, draw(st.sampled_from([1e-5, 10.0])), log=True, when=when)
        case "steps":
            return Parameter(name, "float", 0.0, draw(st.sampled_from([0.5, 0.7])), step=0.25, when=when)
        case "whole":
            return Parameter(name, "int", -1, draw(st.integers(-1, 4)), step=draw(st.sampled_from([1, 2])), when=when)
        case "whole log":
            return Parameter(name, "int", 1, draw(st.sampled_from([2, 300])), log=True, step=1, when=when)
        case "text":
            return Parameter(name, "choice", choices=("a", "b", "c")[: draw(st.integers(1, 3))], when=when)
        case _:
            return Parameter(name, "choice", choices=(1, 2, 4, 8)[: draw(st.integers(1, 4))], when=when)


@st.composite
def spaces(draw: st.DrawFn, counted: bool = False, most: int = 4) -> Space:
    """`counted`: every parameter's values can be listed."""
    found: list[Parameter] = []
    for index in range(draw(st.integers(1, most))):
        found.append(draw(parameters(f"p{index}", tuple(found), counted)))
    return Space(tuple(found))


def loss_of(space: Space, params: Params) -> float:
    """Smooth, lowest at a third of each parameter."""
    return sum((one.place(params[one.name]) - 0.3) ** 2 for one in space.parameters if one.name in params)


class Study:
    """A study that a searcher is asked for, one trial after another."""

    def __init__(self, space: Space, *search: Plugin, seed: int = 3, objectives: int = 1, **spec: Any) -> None:
        metrics = tuple(Objective(f"loss{index}" if index else "loss") for index in range(objectives))
        self.spec = StudySpec("study", space, metrics, search=search or (Plugin("random"),), **spec)
        self.seed, self.trials, self.prior = seed, dict[int, Trial](), tuple[Prior, ...]()
        self.searcher = self.fresh()

    def fresh(self) -> Searcher:
        return make_searcher(self.spec)

    def view(self) -> StudyView:
        return StudyView("study", self.spec, self.seed, dict(self.trials), self.prior)

    def ask(self) -> Suggestion | None:
        """The next trial starts with what is suggested, if anything is."""
        number = len(self.trials)
        found = self.searcher.ask(self.view(), number)
        if found is not None:
            self.trials[number] = Trial("study", number, dict(found.params), by=found.by)
        return found

    def end(self, number: int, how: str = "complete", loss: float | None = None, seconds: float = 1.0) -> None:
        trial = self.trials[number]
        assert trial.phase == "running", "a trial that has ended never changes"
        value = loss_of(self.spec.space, trial.params) if loss is None else loss
        values = (value,) * len(self.spec.objectives)
        ended = replace(trial, phase="ended", outcome="complete", ended_at=float(len(self.trials)), seconds=seconds)
        rungs = (Rung(1.0, 1, values), Rung(3.0, 3, tuple(one * 0.9 for one in values)))
        self.trials[number] = {
            "complete": replace(ended, values=values, rungs=rungs),
            "failed": replace(ended, outcome="failed"),
            "diverged": replace(ended, outcome="diverged", values=(math.nan,) * len(values)),
            "infeasible": replace(ended, outcome="infeasible"),
            "violated": replace(ended, values=values, violated=("memory < 1",)),
            "lost": replace(ended, outcome="lost"),
            "stopped": replace(ended, outcome="stopped", rungs=rungs[:1]),
            "paused": replace(trial, phase="paused", rungs=rungs[:1], saved=1),
        }[how]

    def run(self, trials: int, loss: Callable[[Mapping[str, Any]], float] | None = None) -> float:
        """One trial after another; the best loss."""
        losses = [math.inf]
        for _ in range(trials):
            found = self.ask()
            assert found is not None
            losses.append(loss(found.params) if loss else loss_of(self.spec.space, found.params))
            self.end(len(self.trials) - 1, loss=losses[-1])
        return min(losses)
