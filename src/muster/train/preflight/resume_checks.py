"""What three trainings say about saving and resuming: one never saved, one saved and killed, one resumed from that."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from muster.checks.findings import Check, Finding, Result, failed, not_applicable, ok, some
from muster.train.preflight.rung import judged
from muster.train.preflight.traces import StepTrace, Trace

_ROUNDING: Final = 1e-6  # relative difference of metrics that is not told


@dataclass(frozen=True, slots=True)
class Evidence:
    """Three trainings, each of a process of its own. A text instead of one says how it failed."""

    straight: Trace | str  # never saved
    saved: Trace | str  # saved after BEFORE steps, went on, and was killed
    resumed: Trace | str  # loaded that in a new process

    def pairs(self) -> list[tuple[StepTrace, StepTrace]]:
        """The steps after the save: of the training that was saved, and of the one that resumed."""
        assert isinstance(self.saved, Trace)
        assert isinstance(self.resumed, Trace)
        steps = self.saved.steps[len(self.saved.steps) - len(self.resumed.steps) :]
        return list(zip(steps, self.resumed.steps, strict=True))


def judge(evidence: Any, checks: Sequence[Check], skip: Sequence[str] = ()) -> list[Result]:
    """The results of checks of what was gathered before."""
    found: dict[str, Finding] = {}
    results = []
    for check in checks:
        began = time.monotonic()
        left_out = check.name in skip
        found[check.name] = not_applicable("left out: by skip=") if left_out else judged(check, evidence, found)
        results.append(Result("resume", check.name, check.proves, found[check.name], time.monotonic() - began))
    return results


def check_save(evidence: Evidence) -> Finding:
    if isinstance(evidence.saved, str):
        return failed(
            f"the training that saves {evidence.saved}", "Let save(path) write a file or folder of that name."
        )
    size = evidence.saved.notes.get("bytes", 0)
    if not size:
        return failed("save(path) left nothing at the path", "Let it write a file or folder of that name.")
    return ok(f"{size:,} bytes", bytes=size)


def check_load(evidence: Evidence) -> Finding:
    if isinstance(evidence.resumed, str):
        return failed(f"the new process {evidence.resumed}", "A new process must load what another one saved.")
    return ok(f"a new process loads it and makes {len(evidence.resumed.steps)} steps")


def check_steady(evidence: Evidence) -> Finding:
    if isinstance(evidence.straight, str):
        return failed(f"a training that is never saved {evidence.straight}", "It must make a few steps by itself.")
    assert isinstance(evidence.saved, Trace)
    apart = _differing(list(zip(evidence.straight.steps, evidence.saved.steps, strict=True)))
    if apart is None:
        return ok(f"{len(evidence.saved.steps)} steps are the same with a save among them and without")
    step, words = apart
    before = int(evidence.saved.notes["before"])
    hint = "Set the seeds in the program." if step <= before else "A save must not draw random numbers or read data."
    return failed(f"two trainings differ from step {step} on: {words}", hint)


def check_weights(evidence: Evidence) -> Finding:
    return _states("weights", evidence, "the model", "Save `model.state_dict()` with its buffers, and load it.")


def check_optimizer(evidence: Evidence) -> Finding:
    return _states(
        "optimizer",
        evidence,
        "the optimizer",
        "Save `optimizer.state_dict()`, and load it into the new one.",
    )


def check_schedule(evidence: Evidence) -> Finding:
    pairs = evidence.pairs()
    if any(one.rates is None for one, _ in pairs):
        return not_applicable("no optimizer was found in the training", "Keep it as an attribute, as self.optimizer.")
    for step, (one, two) in enumerate(pairs, 1):
        if one.rates != two.rates:
            return failed(
                f"in step {step} after the save the learning rate is {_list(two.rates)} instead of {_list(one.rates)}",
                "Save the schedule's `state_dict()`, or compute the rate from the step, and save the step.",
            )
    assert isinstance(evidence.saved, Trace)
    if len({tuple(each.rates or ()) for each in evidence.saved.steps}) == 1:
        return ok(f"the learning rate stays at {_list(pairs[0][0].rates)}")
    return ok(f"learning rates go on: {', '.join(_list(one.rates) for one, _ in pairs)}")


def check_generators(evidence: Evidence) -> Finding:
    assert isinstance(evidence.saved, Trace)
    if len({each.generators for each in evidence.saved.steps}) == 1:
        return not_applicable("training draws no random numbers")
    pairs = evidence.pairs()
    if pairs[-1][0].generators == pairs[-1][1].generators:
        return ok("Python's, NumPy's and torch's generators go on")
    return failed(
        "random numbers after the load are not those that would have come",
        "Save `torch.get_rng_state()`, `random.getstate()`, `numpy.random.get_state()` and the device's, and set them.",
    )


def check_data(evidence: Evidence) -> Finding:
    pairs = evidence.pairs()
    if any(one.batch is None for one, _ in pairs):
        return not_applicable("the training has no attribute `batch`", "Keep the last batch as self.batch in step().")
    assert isinstance(evidence.saved, Trace)
    every = [each.batch for each in evidence.saved.steps]
    for step, (one, two) in enumerate(pairs, 1):
        if one.batch != two.batch:
            number = every.index(two.batch) + 1 if two.batch in every else None
            what = f"that of step {number}" if number else "another one"
            return failed(
                f"in step {len(every) - len(pairs) + step} the batch is {what}",
                "Save the place in the data and its order, and go on there: seed the order by the epoch and skip.",
            )
    return ok(f"the next {len(pairs)} batches are those that would have come")


def check_metrics(evidence: Evidence) -> Finding:
    pairs = evidence.pairs()
    assert isinstance(evidence.saved, Trace)
    apart = _differing(pairs)
    if apart is None:
        names = some(sorted(pairs[0][0].metrics))
        return ok(f"{names} of {len(pairs)} steps after the load are those that would have come")
    step, words = apart
    step += len(evidence.saved.steps) - len(pairs)
    return failed(f"from step {step} on: {words}", "Something else of its state is not saved: look at step().")


def _states(part: str, evidence: Evidence, what: str, hint: str) -> Finding:
    assert isinstance(evidence.saved, Trace)
    assert isinstance(evidence.resumed, Trace)
    before, after = getattr(evidence.saved.saved, part), getattr(evidence.resumed.saved, part)
    if before is None or after is None:
        return not_applicable(f"{what} was not found in the training", f"Keep it as an attribute, as self.{part}.")
    if not before:
        return not_applicable(f"{what} keeps no state")
    if lost := [name for name in before if name not in after]:
        return failed(f"{len(lost)} of {len(before)} parts are not there after the load: {some(lost)}", hint)
    if other := [name for name in before if before[name] != after[name]]:
        return failed(f"{len(other)} of {len(before)} parts differ after the load: {some(other)}", hint)
    return ok(f"{len(before)} parts are as they were saved")


def _differing(pairs: list[tuple[StepTrace, StepTrace]]) -> tuple[int, str] | None:
    """The first step with other metrics, and in words which."""
    for step, (one, two) in enumerate(pairs, 1):
        for name, value in one.metrics.items():
            other = two.metrics.get(name, math.nan)
            same = value == other or (math.isnan(value) and math.isnan(other) and name in two.metrics)
            if not same and not abs(value - other) <= _ROUNDING * abs(value):
                return step, f"{name} is {other:.9g} instead of {value:.9g}"
    return None


def _list(rates: list[float] | None) -> str:
    return " and ".join(f"{each:.6g}" for each in sorted(set(rates or [])))


_LOADED: Final = ("save", "load")
RESUME: Final[tuple[Check, ...]] = (
    Check("save", "The training can be saved.", check_save),
    Check("load", "A new process can load what was saved, and train on.", check_load, ("save",)),
    Check("steady", "Saving changes nothing in a training, and its numbers can be repeated.", check_steady, ("save",)),
    Check("weights", "Weights and buffers are as they were saved.", check_weights, _LOADED),
    Check("optimizer", "The optimizer's state is as it was saved.", check_optimizer, _LOADED),
    Check("schedule", "The learning rate goes on where it was.", check_schedule, _LOADED),
    Check("generators", "Random numbers go on where they were.", check_generators, _LOADED),
    Check("data", "The next batches are those that would have come.", check_data, _LOADED),
    Check(
        "metrics",
        "Metrics go on as if the training had not been killed.",
        check_metrics,
        (*_LOADED, "steady", "weights", "optimizer", "schedule", "generators", "data"),
    ),
)
