"""Trials of Ray Tune as runs below the run of the program that calls it.

    tuner = tune.Tuner(objective, run_config=tune.RunConfig(callbacks=[MusterLogger()]), ...)

In a job of Muster they belong to the job's run, elsewhere to a run that is opened as by `muster.start_run`.
"""

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING, Any, Final

from ray.tune.experiment import Trial
from ray.tune.logger import LoggerCallback
from ray.tune.result import AUTO_RESULT_KEYS, DONE, TRAINING_ITERATION
from ray.tune.utils import flatten_dict

from muster.runtime.tracker import start_run

if TYPE_CHECKING:
    from muster.runtime.child_runs import ChildRun
    from muster.runtime.tracker import Tracker

# Ray adds these to every result; of them, only how long a trial has run so far is a metric.
_LEFT_OUT: Final = frozenset((*AUTO_RESULT_KEYS, "config", DONE, "checkpoint_dir_name")) - {"time_total_s"}


class MusterLogger(LoggerCallback):  # type: ignore[misc]
    """Every trial with its configuration, what it reports, and whether it failed: Ray does not tell which trials its
    scheduler ended early. `name` and `project` are of the run that is opened outside of jobs."""

    def __init__(self, name: str = "ray-tune", project: str = "default") -> None:
        self._name, self._project = name, project
        self._run: Tracker | None = None
        self._children: dict[str, ChildRun] = {}

    def log_trial_start(self, trial: Trial) -> None:
        """Called again when the trial goes on, perhaps with another configuration, as in population-based training."""
        if self._run is None:
            self._run = start_run(self._name, self._project)
        config = flatten_dict(trial.config, delimiter=".")
        self._children[trial.trial_id] = self._run.child_run(trial.trial_id, str(trial), config, {"tool": "ray-tune"})

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        flat = flatten_dict({name: value for name, value in result.items() if name not in _LEFT_OUT})
        values = {name: float(value) for name, value in flat.items() if isinstance(value, Real)}
        if values and trial.trial_id in self._children:
            self._children[trial.trial_id].log(values, int(result[TRAINING_ITERATION]))

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        if child := self._children.pop(trial.trial_id, None):
            if failed:
                child.close("failed", str(trial.get_error() or ""))
            else:
                child.close()

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        if self._run is not None:
            self._run.close()

    def __getstate__(self) -> dict[str, Any]:
        """Ray keeps the callbacks of an experiment with it, and a restored one opens its run anew."""
        return {**self.__dict__, "_run": None, "_children": {}}
