"""Copies a step's batches to the device while it runs the step before: from pinned buffers, on a stream of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from muster.data.collate import Arrays
from muster.train.task import Tensors


class Ends(Protocol):
    """A CUDA event: recorded after the copies."""

    def synchronize(self) -> None: ...


@dataclass(slots=True)
class _Set:
    tensors: dict[tuple[int, str], Tensor] = field(default_factory=dict)  # by micro-batch and name
    copied: Ends | None = None  # when the copies from it end


@dataclass(slots=True)
class Buffers:
    """Two sets of host memory that are filled in turn. A set is only filled again when the copies from it have ended,
    which they have long: they were begun two steps before."""

    pinned: bool  # as a copy must have it to be asynchronous; pinning costs more than copying, so it is done once
    _sets: tuple[_Set, _Set] = field(default_factory=lambda: (_Set(), _Set()))
    _turn: int = 0

    def fill(self, batches: Sequence[Arrays]) -> list[Tensors]:
        """The batches in the next set. Its tensors are valid until the call after the next one."""
        self._turn = 1 - self._turn
        this = self._sets[self._turn]
        if this.copied is not None:
            this.copied.synchronize()
        this.copied = None
        old = this.tensors
        this.tensors = {
            (number, name): self._filled(old.get((number, name)), array)
            for number, arrays in enumerate(batches)
            for name, array in arrays.items()
        }
        return [{name: this.tensors[number, name] for name in arrays} for number, arrays in enumerate(batches)]

    def copying(self, until: Ends) -> None:
        """Copies from the set that was filled last run until then."""
        self._sets[self._turn].copied = until

    def _filled(self, buffer: Tensor | None, array: NDArray[np.generic]) -> Tensor:
        given = host_tensor(array)
        if buffer is None or buffer.shape != given.shape or buffer.dtype != given.dtype:
            buffer = torch.empty(given.shape, dtype=given.dtype, pin_memory=self.pinned)
        return buffer.copy_(given)


@dataclass(slots=True)
class Prefetch:
    """`send` begins to copy the batches of a step, `take` returns them. One step at a time: what was sent and not taken
    is dropped by the next `send`."""

    device: torch.device
    _buffers: Buffers = field(default_factory=lambda: Buffers(pinned=True))
    _stream: torch.cuda.Stream | None = None
    _sent: list[Tensors] = field(default_factory=list)
    _copied: torch.cuda.Event | None = None

    def send(self, batches: Sequence[Arrays]) -> None:
        """From here on the arrays may change, except on a CPU, where they are the batches."""
        if self.device.type != "cuda":
            self._sent = [to_device(arrays, self.device) for arrays in batches]
            return
        if self._stream is None:
            self._stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        hosts = self._buffers.fill(batches)
        # It waits for nothing on the device. The copies' memory belongs to this stream: what a step before has left is
        # used again when that step has ended, since `take` recorded the step's stream as a user of it.
        with torch.cuda.stream(self._stream):
            self._sent = [
                {name: tensor.to(self.device, non_blocking=True) for name, tensor in host.items()} for host in hosts
            ]
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._copied.record(self._stream)
        self._buffers.copying(self._copied)

    def take(self) -> list[Tensors]:
        """The batches that were sent, for work on the current stream: it waits for the copies, the host does not."""
        sent, self._sent = self._sent, []
        if self._copied is not None:
            stream = torch.cuda.current_stream(self.device)
            stream.wait_event(self._copied)
            for batch in sent:
                for tensor in batch.values():
                    tensor.record_stream(stream)
        return sent


def to_device(arrays: Arrays, device: torch.device) -> Tensors:
    """Arrays on the device, as tensors for the current stream; on a CPU the arrays' own memory."""
    tensors = {name: host_tensor(array) for name, array in arrays.items()}
    if device.type == "cpu":
        return tensors
    return {name: tensor.pin_memory().to(device, non_blocking=True) for name, tensor in tensors.items()}


def host_tensor(array: NDArray[np.generic]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))
