"""Trials of HyperOpt as runs below the run of the program that calls `fmin`.

    fmin(MusterObjective(objective), space, algo=tpe.suggest, max_evals=50)

In a job of Muster they belong to the job's run, elsewhere to a run that is opened as by `muster.start_run`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from numbers import Real
from typing import Any, Final

from muster.runtime import rank_info
from muster.runtime.child_runs import ChildRun
from muster.runtime.tracker import Tracker, start_run

_FAILED: Final = "fail"  # the status of a result without a loss


class MusterObjective:
    """The objective, each of whose calls is a trial: its parameters, the numbers that it returned, and how it ended.

    `trial` is the run of the call that is under way, for curves: `objective.trial.log({"loss": loss}, step)`. `name`
    and `project` are of the run that is opened outside of jobs.
    """

    trial: ChildRun

    def __init__(self, objective: Callable[[Any], Any], name: str = "hyperopt", project: str = "default") -> None:
        self._objective, self._name, self._project = objective, name, project
        self._run: Tracker | None = None
        self._numbers = count()

    def __call__(self, params: Any) -> Any:
        if self._run is None:
            self._run = start_run(self._name, self._project)
        attempt, number = rank_info.attempt(), next(self._numbers)
        ident = f"{number}" if attempt == 1 else f"{attempt}-{number}"  # each attempt of a job calls `fmin` anew
        given = params if isinstance(params, Mapping) else {"x": params}
        self.trial = self._run.child_run(ident, f"{self._name} {ident}", given, {"tool": "hyperopt"})
        with self.trial:
            result = self._objective(params)
            found = result if isinstance(result, Mapping) else {"loss": result}
            if values := {name: float(value) for name, value in found.items() if isinstance(value, Real)}:
                self.trial.log(values)
            if found.get("status") == _FAILED:
                self.trial.close("failed", str(found.get("failure") or ""))
        return result
