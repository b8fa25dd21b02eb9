"""Reads a step's few device scalars without stopping the device, and reports the step when they have arrived."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor

from muster import runtime
from muster.train.throughput import Laps, Meter, memory

LEDGER_BITS: Final = 48  # of the ledger in a report: exact in the float64 that reports are made of


@dataclass(frozen=True, slots=True)
class Step:
    """What the host knows about a step when it has queued it; `number` counts from 1."""

    number: int
    position: int  # in the data: which batch it was
    lr: float
    items: int
    ledger: int


@dataclass(frozen=True, slots=True)
class Read:
    """A step and its scalars, on the host."""

    step: Step
    loss: float
    norm: float
    code: float  # the guard's verdict
    laps: Laps


@dataclass(slots=True)
class Readings:
    """A queue of steps whose scalars are on their way from the device."""

    device: torch.device
    _waiting: deque[tuple[Step, Tensor, Any, Laps]] = field(default_factory=deque)

    def put(self, step: Step, loss: Tensor, norm: Tensor, code: Tensor, laps: Laps) -> None:
        scalars = torch.stack([loss.detach().double(), norm.detach().double(), code.double()])
        event = None
        if self.device.type == "cuda":
            scalars = scalars.to("cpu", non_blocking=True)  # pinned by torch: the copy stops nobody
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record()
        self._waiting.append((step, scalars, event, laps))

    def take(self, leave: int) -> list[Read]:
        """All but the last `leave` steps, once their scalars have arrived. With `leave=1` the device has a step left
        to work on meanwhile, so nobody waits for the host."""
        taken = []
        while len(self._waiting) > leave:
            step, scalars, event, laps = self._waiting.popleft()
            if event is not None:
                event.synchronize()
            loss, norm, code = scalars.tolist()
            taken.append(Read(step, loss, norm, code, laps))
        return taken

    def drop(self) -> None:
        """Forgets what is on its way: the run goes back behind it."""
        self._waiting.clear()


@dataclass(slots=True)
class Reporter:
    """Tells the platform about every step, and whoever reads the output about some. For the first rank alone."""

    meter: Meter
    device: torch.device
    steps: int
    print_every: int
    last: dict[str, float] = field(default_factory=dict)

    def step(self, read: Read) -> None:
        step = read.step
        figures = {"loss": read.loss, "lr": step.lr, "grad_norm": read.norm}
        figures |= self.meter.figures(step.items, read.laps)
        figures |= {"memory": memory(self.device), "ledger": float(step.ledger & ((1 << LEDGER_BITS) - 1))}
        runtime.report(step=step.number, **figures)
        runtime.progress(step.number, total=self.steps)
        self.last = figures
        if step.number % self.print_every == 0 or step.number == self.steps:
            self._line(step.number, figures)

    def evaluation(self, step: int, figures: dict[str, float]) -> None:
        runtime.report(step=step, **{f"eval_{name}": value for name, value in figures.items()})
        say(f"step {step}  evaluation: " + "  ".join(f"{name} {value:.4f}" for name, value in figures.items()))

    def _line(self, step: int, figures: dict[str, float]) -> None:
        unit = self.meter.unit
        words = [f"step {step}/{self.steps}", f"loss {figures['loss']:.4f}", f"lr {figures['lr']:.2e}"]
        words += [f"grad norm {figures['grad_norm']:.3f}", f"{figures[f'{unit}_per_s']:,.0f} {unit}/s"]
        if "mfu" in figures:
            words.append(f"MFU {figures['mfu']:.1%}")
        say("  ".join(words))


def say(text: str) -> None:
    """A plain line for whoever reads the run's output."""
    print(text, flush=True)  # noqa: T201 - the output of a run is its lines


def noted(text: str) -> None:
    """Into the run's logbook and its output."""
    runtime.note(text)
    say(text)
