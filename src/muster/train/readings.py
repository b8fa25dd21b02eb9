"""Copies a step's scalars from the device asynchronously, and reports the step when they have arrived."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor

from muster import runtime
from muster.train.startup import Startup
from muster.train.throughput import Laps, Meter, memory

LEDGER_BITS: Final = 48  # of the ledger in a report: exact in a report's float64


@dataclass(frozen=True, slots=True)
class Step:
    """What the host knows about a queued step; `number` counts from 1."""

    number: int
    position: int  # position in the data: the number of its batch
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
    """The steps whose scalars are being copied from the device."""

    device: torch.device
    _waiting: deque[tuple[Step, Tensor, Any, Laps]] = field(default_factory=deque)

    def put(self, step: Step, loss: Tensor, norm: Tensor, code: Tensor, laps: Laps) -> None:
        scalars = torch.stack([loss.detach().double(), norm.detach().double(), code.double()])
        event = None
        if self.device.type == "cuda":
            scalars = scalars.to("cpu", non_blocking=True)  # pinned by torch: the copy is asynchronous
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record()
        self._waiting.append((step, scalars, event, laps))

    def take(self, leave: int) -> list[Read]:
        """All steps except the last `leave`, once their scalars have arrived. With `leave=1` the device has a step to
        run meanwhile, so it doesn't wait for the host."""
        taken = []
        while len(self._waiting) > leave:
            step, scalars, event, laps = self._waiting.popleft()
            if event is not None:
                event.synchronize()
            loss, norm, code = scalars.tolist()
            taken.append(Read(step, loss, norm, code, laps))
        return taken

    def drop(self) -> None:
        """Drops all pending steps, because of a rollback."""
        self._waiting.clear()


@dataclass(slots=True)
class Reporter:
    """Reports every step to the platform, and prints some steps. Only on the first rank."""

    meter: Meter
    device: torch.device
    steps: int
    print_every: int
    startup: Startup = field(default_factory=Startup)
    last: dict[str, float] = field(default_factory=dict)
    _first: float | None = None  # seconds from the start to the first step, until a line has told it

    def step(self, read: Read) -> None:
        step, is_first = read.step, not self.last
        figures = {"loss": read.loss, "lr": step.lr, "grad_norm": read.norm}
        figures |= self.meter.figures(step.items, read.laps)
        figures |= {"memory": memory(self.device), "ledger": float(step.ledger & ((1 << LEDGER_BITS) - 1))}
        runtime.report(step=step.number, **figures)
        runtime.spent("data", figures["data_s"])
        runtime.progress(step.number, total=self.steps)
        self.last = figures
        if is_first:
            self._first = self.startup.stepped()
            runtime.log({f"start/{name}_s": seconds for name, seconds in self.startup.parts.items()}, step.number)
        if step.number % self.print_every == 0 or step.number == self.steps:
            self._line(step.number, figures)
            self.meter.line()
        elif is_first:
            self.meter.line()  # it compiled and warmed up: the line tells that apart

    def evaluation(self, step: int, figures: dict[str, float]) -> None:
        runtime.report(step=step, **{f"eval_{name}": value for name, value in figures.items()})
        say(f"step {step}  evaluation: " + "  ".join(f"{name} {value:.4f}" for name, value in figures.items()))

    def _line(self, step: int, figures: dict[str, float]) -> None:
        unit = self.meter.unit
        words = [f"step {step}/{self.steps}", f"loss {figures['loss']:.4f}", f"lr {figures['lr']:.2e}"]
        words += [f"grad norm {figures['grad_norm']:.3f}", f"{figures[f'{unit}_per_s']:,.0f} {unit}/s"]
        if "mfu" in figures:
            words.append(f"MFU {figures['mfu']:.1%}")
        words += self.meter.window.stalls()
        if self._first is not None:
            words.append(f"first step {self._first:.1f} s")
            self._first = None
        say("  ".join(words))


def say(text: str) -> None:
    """Prints a line to the run's output."""
    print(text, flush=True)  # noqa: T201 - the output of a run is its lines


def noted(text: str) -> None:
    """Writes to the run's logbook and its output."""
    runtime.note(text)
    say(text)
