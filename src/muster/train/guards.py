"""Guards against NaN, exploding gradients and loss spikes: evaluated on the device, handled by the host one step later.

A step's loss and gradient norm are the same on every rank, so all ranks compute the same verdict without
communication. The verdict is a device tensor that masks the optimizer's step, so a bad step never changes the weights.
The host reads it one step later, when the asynchronous copy is complete, and acts by the policy:

    skip        does nothing more: the batch had no effect
    rollback    loads the newest checkpoint, and continues with data that was not used yet
    stop        ends the run with an error, without a save; earlier checkpoints stay
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import torch
from torch import Tensor

from muster.train.settings import bounded

Policy = Literal["off", "skip", "rollback", "stop"]
Action = Literal["go", "skip", "rollback", "stop"]
NAN: Final = 1
GRADIENT: Final = 2
SPIKE: Final = 3


@dataclass(frozen=True, slots=True)
class Guards:
    """The section `guards`. A spike is a loss of `spike_sigmas` standard deviations over its running mean."""

    nan: Policy = "stop"  # the loss or the gradient norm is NaN or infinite
    gradient: Policy = "off"  # the gradient norm, before clipping, is above `gradient_limit`
    gradient_limit: float = bounded(100.0, above=0)
    spike: Policy = "off"
    spike_sigmas: float = bounded(6.0, above=0)
    spike_window: int = bounded(100, low=2)  # window of the running mean; also the steps before the first check
    patience: int = bounded(10, low=1)  # consecutive bad steps; one more stops the run under any policy
    rollbacks: int = bounded(3, low=0)  # per process; one more stops the run
    replicas: Literal["off", "note", "stop"] = "note"  # weights of the replicas (dp) that differ
    replicas_every: int = bounded(500, low=1)  # steps between two comparisons


@dataclass(slots=True)
class Verdict:
    """The host's decision about one step: the action, and a logbook note if something was wrong."""

    action: Action
    text: str = ""


@dataclass(slots=True)
class Guard:
    """The guards of one run. `judge` runs on the device, `act` on the host, in the order of the steps."""

    settings: Guards
    device: torch.device
    scaled: bool = False  # fp16: an infinite gradient is handled by the scaler, which lowers its scale
    running: Tensor = field(init=False)  # f64[3]: good steps, mean of the loss, variance of the loss
    in_a_row: int = field(init=False, default=0)
    replicas_differ: bool = field(init=False, default=False)
    rolled_back: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.running = torch.zeros(3, dtype=torch.float64, device=self.device)

    def judge(self, loss: Tensor, norm: Tensor) -> Tensor:
        """0 for a good step, else NAN, GRADIENT or SPIKE, as a device scalar. No host synchronization."""
        settings, loss, norm = self.settings, loss.double(), norm.double()
        code = torch.zeros((), dtype=torch.float64, device=self.device)
        finite = loss.isfinite() if self.scaled else loss.isfinite() & norm.isfinite()
        if settings.spike != "off":
            code = torch.where(self._spike(loss), SPIKE, code)
        if settings.gradient != "off":
            code = torch.where(norm.isfinite() & (norm > settings.gradient_limit), GRADIENT, code)
        if settings.nan != "off":
            code = torch.where(finite, code, NAN)
        if settings.spike != "off":
            self._remember(loss, (code == 0) & loss.isfinite())
        return code

    def act(self, step: int, code: float, loss: float, norm: float) -> Verdict:
        """The action for a step whose verdict has arrived. `step` is counted from 1."""
        if code == 0:
            self.in_a_row = 0
            return Verdict("go")
        policy, what = self._found(int(code), loss, norm)
        self.in_a_row += 1
        text, limits = f"step {step}: {what}; its update was not made", self.settings
        if policy == "rollback" and self.rolled_back >= limits.rollbacks:
            limit = f"It would be rollback {self.rolled_back + 1}; guards.rollbacks allows {limits.rollbacks}"
            return Verdict("stop", f"{text}. {limit}")
        if policy == "skip" and self.in_a_row > limits.patience:
            limit = f"It is bad step {self.in_a_row} in a row; guards.patience allows {limits.patience}"
            return Verdict("stop", f"{text}. {limit}")
        if policy == "rollback":
            self.rolled_back, self.in_a_row = self.rolled_back + 1, 0
        return Verdict(policy, text)

    def state(self) -> dict[str, Any]:
        """The state for an exact resume. Synchronizes with the device, so it is only for saves."""
        return {"running": self.running.tolist(), "in_a_row": self.in_a_row}

    def load(self, state: Mapping[str, Any]) -> None:
        running: Sequence[float] = state["running"]
        self.running.copy_(torch.tensor(running, dtype=torch.float64))
        self.in_a_row = int(state["in_a_row"])

    def _spike(self, loss: Tensor) -> Tensor:
        count, mean, variance = self.running.unbind()
        limit = mean + self.settings.spike_sigmas * variance.sqrt()
        return (count >= self.settings.spike_window) & (loss > limit)

    def _remember(self, loss: Tensor, good: Tensor) -> None:
        """Updates the exponential mean and variance (West); the first steps use the plain mean."""
        count, mean, variance = self.running.unbind()
        share = 1 / (count + 1).clamp(max=(self.settings.spike_window + 1) / 2)
        off = loss - mean
        new = torch.stack([count + 1, mean + share * off, (1 - share) * (variance + share * off * off)])
        self.running.copy_(torch.where(good, new, self.running))

    def _found(self, code: int, loss: float, norm: float) -> tuple[Any, str]:
        if code == NAN:
            return self.settings.nan, f"loss {loss:g}, gradient norm {norm:g}: not finite"
        if code == GRADIENT:
            limit = self.settings.gradient_limit
            return self.settings.gradient, f"gradient norm {norm:g} is above guards.gradient_limit {limit:g}"
        sigmas = self.settings.spike_sigmas
        return self.settings.spike, f"loss {loss:g} is more than {sigmas:g} standard deviations above its running mean"
