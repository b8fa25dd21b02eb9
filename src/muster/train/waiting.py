"""Measures how long a rank waits for others inside a step, where weights are sharded or split (FSDP, tensor parallel).

There the ranks wait for each other in the collectives of every block, which can't be told from their own work. So in a
few steps all ranks meet before these collectives: before the weights of a block are gathered, in both passes, and
before its gradients are reduced. While a rank waits there, others still work; the slow rank waits least. Between these
steps the median share of the last of them holds. A step with meetings takes up to twice as long, so one in 200 has
them, and three near the start.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor, nn

EVERY: Final = 200  # steps
FIRST: Final = (10, 20, 30)  # steps after the start
KEPT: Final = 3  # shares of which the median counts: one odd step is no sign


@dataclass(slots=True)
class WaitProbe:
    """Meetings of all ranks in some steps. All ranks make the same calls."""

    device: torch.device
    talk: dist.ProcessGroup | None  # None: nothing is measured
    _on: bool = False
    _began: float = field(default_factory=time.perf_counter)
    _waited: float = 0.0
    _met: float = 0.0  # seconds that the meetings took by themselves
    _barrier: float = 0.0  # seconds of one at which all ranks are already
    _shares: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))

    def attach(self, model: nn.Module, blocks: Sequence[nn.Module]) -> None:
        """To a model that is sharded already, and its blocks: hooks that run before FSDP's gather weights or reduce
        gradients."""
        model.register_forward_hook(self._forward_ended, prepend=True)
        for block in blocks:
            block.register_forward_pre_hook(self._forward_begins, prepend=True)
            block.register_forward_pre_hook(self._forward_began)
            block.register_forward_hook(self._forward_ended, prepend=True)

    def begin(self, steps: int) -> None:
        """Before the passes of a step. `steps`: how many were made since the start."""
        self._on = self.talk is not None and (steps in FIRST or (steps > 0 and steps % EVERY == 0))
        if self._on:
            self._finish_device()
            dist.barrier(group=self.talk)
            self._barrier = self._waited = 0.0
            self._meet()  # all ranks are here
            self._barrier, self._began, self._waited, self._met = self._waited, time.perf_counter(), 0.0, 0.0

    def end(self) -> None:
        """After the passes."""
        if self._on:
            self._meet()
            self._on = False
            passes = time.perf_counter() - self._began - self._met
            self._shares.append(self._waited / max(passes, self._waited, 1e-9))

    @property
    def share(self) -> float:
        """The part of the passes in which this rank waits; 0 until it is known."""
        return median(self._shares) if len(self._shares) == KEPT else 0.0

    def _forward_begins(self, *_: object) -> None:
        if self._on and torch.is_grad_enabled():
            self._meet()

    def _forward_began(self, block: nn.Module, args: tuple[Any, ...]) -> None:
        """FSDP reduces a block's gradients after that of its input, as FSDP has changed it for that."""
        self._meet_at_gradient(args)

    def _forward_ended(self, block: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        """FSDP gathers a block's weights again when the gradient of its output is known."""
        self._meet_at_gradient(output if isinstance(output, tuple) else (output,))

    def _meet_at_gradient(self, values: tuple[Any, ...]) -> None:
        known = next((one for one in values if isinstance(one, Tensor) and one.requires_grad), None)
        if self._on and known is not None:
            known.register_hook(self._meet)  # type: ignore[no-untyped-call]

    def _finish_device(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()

    def _meet(self, *_: object) -> None:
        self._finish_device()
        took = -time.perf_counter()
        dist.barrier(group=self.talk)
        took += time.perf_counter()
        self._waited += max(0.0, took - self._barrier)
        self._met += min(took, self._barrier)
