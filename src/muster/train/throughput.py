"""Throughput and the time of each part of a step, from device events, without a host sync.

MFU (model FLOP/s utilisation) = `flops` × items/s ÷ (the peak of one device × devices), with `flops` those of the model
for forward and backward an item. For the decoder an item is a token and
`flops` = 6 × (parameters without the input embedding) + 6 × layers × sequence × width: causal attention counted once.
Recomputed activations don't count.
"""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass, field
from typing import Final

import torch

# Dense peaks in FLOP/s by a part of the device's name: 16-bit with 32-bit accumulation, the longest match counts.
PEAKS: Final = {
    "B200": 2250e12,
    "GH200": 989.5e12,
    "H200": 989.5e12,
    "H100": 989.5e12,
    "H100 PCIe": 756e12,
    "A100": 312e12,
    "A800": 312e12,
    "L40S": 362e12,
    "L4": 121e12,
    "A10G": 70e12,
    "V100": 125e12,
    "T4": 65e12,
}


# Parts of every step. In a pipeline, forward and backward overlap and are reported as `forward_backward`.
# `wait`: for the other ranks: before the step, for those whose data or host is slower; with DDP from the last gradient
# of its own until those of all are there; with other layouts the share that `waiting` measures.
PARTS: Final = ("data", "forward", "backward", "wait", "optimizer", "save", "evaluate")
STALLS: Final = (("save", "saving"), ("evaluate", "evaluating"))
NOTABLE: Final = 0.01  # of a window: a stall that its line tells of


def peak_flops(device: torch.device) -> float | None:
    """The peak of one device at 16 bits; None if it isn't in the table, such as a CPU: then there is no MFU."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    found = [key for key in PEAKS if key in name]
    return PEAKS[max(found, key=len)] if found else None


def memory(device: torch.device) -> float:
    """The peak memory in bytes: of the GPU's allocator, or of this process on a CPU."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


@dataclass(slots=True)
class Stopwatch:
    """Records time marks in a step; the time between two marks is counted for the second one's name."""

    device: torch.device
    marks: list[tuple[str, float | torch.cuda.Event]] = field(default_factory=list)
    paused: bool = False  # during an evaluation
    waits: bool = False  # the wait for other ranks is measured in every backward pass; see `own_work_ends`
    host: float = 0.0  # seconds that the host waited for other ranks before this step
    share: float = 0.0  # of the passes that is a wait for other ranks; see `waiting`

    def mark(self, name: str) -> None:
        """Records a mark: on a GPU an event in its stream, on a CPU the current time."""
        if self.paused:
            return
        if self.device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record()
            self.marks.append((name, event))
        else:
            self.marks.append((name, time.perf_counter()))

    def forward_begins(self, *_: object) -> None:
        """A forward pre-hook: the time before it is the backward pass of the previous micro-batch, if any."""
        last = self.marks[-1][0] if self.marks else ""
        self.mark("backward" if last in ("forward", "backward") else "data")

    def own_work_ends(self, *_: object) -> None:
        """A hook on the gradient that is computed last: what follows in the backward pass is a wait for other ranks."""
        self.mark("backward")

    def take(self) -> Laps:
        """The marks so far; the next step starts at the last of them."""
        taken, self.marks = self.marks, self.marks[-1:]
        host, self.host = self.host, 0.0
        return Laps(taken, host, self.share)


@dataclass(frozen=True, slots=True)
class Laps:
    """The marks of one step; they can be read once the device has passed them."""

    marks: list[tuple[str, float | torch.cuda.Event]]
    host: float = 0.0
    share: float = 0.0

    def seconds(self) -> dict[str, float]:
        spent: dict[str, float] = {}
        for (_, begin), (name, end) in zip(self.marks, self.marks[1:], strict=False):
            if isinstance(end, torch.cuda.Event):
                seconds = begin.elapsed_time(end) / 1000 if isinstance(begin, torch.cuda.Event) else 0.0
            else:
                seconds = end - begin if isinstance(begin, float) else 0.0
            spent[name] = spent.get(name, 0.0) + seconds
        # On a GPU the host may wait while the device still runs the step before: only what the device idled counts.
        waits = {"data": min(self.host, spent.get("data", 0.0))}
        waits |= {name: self.share * spent.get(name, 0.0) for name in ("forward", "backward", "forward_backward")}
        for name, seconds in waits.items():
            if seconds:
                spent[name] -= seconds
                spent["wait"] = spent.get("wait", 0.0) + seconds
        return spent


@dataclass(slots=True)
class Window:
    """What the steps since the last line had and took. Their laps follow each other without a gap, so this is the wall
    clock's time: with saves, evaluations, and every wait."""

    items: int = 0
    seconds: float = 0.0
    spent: dict[str, float] = field(default_factory=dict)

    def add(self, items: int, spent: dict[str, float]) -> None:
        self.items += items
        self.seconds += sum(spent.values())
        for name, seconds in spent.items():
            self.spent[name] = self.spent.get(name, 0.0) + seconds

    @property
    def rate(self) -> float:
        """Items a second."""
        return self.items / self.seconds if self.seconds else 0.0

    def stalls(self) -> list[str]:
        """What stopped training for a notable part of the time, in words."""
        found = ((word, self.spent.get(name, 0.0)) for name, word in STALLS)
        notable = ((word, spent) for word, spent in found if spent >= NOTABLE * self.seconds and spent > 0)
        return [f"{word} took {spent:.1f} of {self.seconds:.1f} s" for word, spent in notable]


@dataclass(slots=True)
class Meter:
    """Converts the laps of steps to the figures of their reports."""

    unit: str  # the name of an item: tokens, images
    flops: float | None  # of the model per item, forward and backward
    peak: float | None  # FLOP/s of one device
    world: int
    window: Window = field(default_factory=Window)

    def figures(self, items: int, laps: Laps) -> dict[str, float]:
        """`step_s` and `<part>_s` of this step; `<items>_per_s`, and `mfu` where it is known, since the last line."""
        spent = laps.seconds()
        self.window.add(items, spent)
        rate = self.window.rate
        parts = {f"{name}_s": spent.get(name, 0.0) for name in PARTS}
        parts |= {f"{name}_s": seconds for name, seconds in spent.items()}
        figures = {f"{self.unit}_per_s": rate, "step_s": sum(spent.values()), **parts}
        if self.flops and self.peak:
            figures["mfu"] = self.flops * rate / (self.peak * self.world)
        return figures

    def line(self) -> None:
        """A line was printed: the next window begins."""
        self.window = Window()
