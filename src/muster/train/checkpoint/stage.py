"""Host memory for snapshots: one image, reused for every save, into which a snapshot is copied."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from muster.train.checkpoint.plan import Plan, local


@dataclass
class Stage:
    """One image. On a GPU the copies are queued after the step's kernels, and the caller doesn't wait for them."""

    image: Tensor | None = None  # u8[size]
    pinned: bool = False
    device_seconds: float = 0.0  # seconds for which the last copy blocked the device; known once it is complete
    _making: threading.Thread | None = None

    def prepare(self, plan: Plan, tensors: dict[str, Tensor]) -> None:
        """Makes the image in the background: to pin 10 GB takes seconds. A copy waits for it."""
        self.release()
        device = next((each.device for each in (local(tensors[item.key]) for item in plan.items) if each.is_cuda), None)
        self._making = threading.Thread(target=self._make, args=(plan.size, device), name="muster-image")
        self._making.start()

    def copy(self, plan: Plan, tensors: dict[str, Tensor]) -> Callable[[], None]:
        """Starts to copy this rank's data. The returned function blocks until the image is complete."""
        parts = {item.key: local(tensors[item.key]).detach() for item in plan.items}
        cuda = any(part.is_cuda for part in parts.values())
        self._made()
        if self.image is None or self.image.numel() != plan.size or (cuda and not self.pinned):
            self.prepare(plan, tensors)
            self._made()
        if self.image is None:
            raise MemoryError(f"no memory for the image of {plan.size:,} bytes from which a save is written")
        self.device_seconds = 0.0
        begun = _mark() if cuda else None
        for item in plan.items:
            if item.bytes:
                place = self.image[item.at : item.at + item.bytes].view(item.dtype).view(item.sizes)
                part = parts[item.key]
                whole = part.shape == place.shape
                place.copy_(part if whole else part.narrow(0, item.row, item.sizes[0]), non_blocking=True)
        return partial(self._finish, begun, _mark()) if cuda else _ready

    def bytes(self) -> memoryview:
        """The bytes of the image."""
        assert self.image is not None
        return memoryview(self.image.numpy())  # type: ignore[arg-type]

    def _finish(self, begun: Any, ended: Any) -> None:
        ended.synchronize()
        self.device_seconds = begun.elapsed_time(ended) / 1000

    def _make(self, size: int, device: torch.device | None) -> None:
        """In the thread. Without an image a copy tries once more, and then says so."""
        with suppress(RuntimeError, MemoryError):
            image = torch.zeros(size, dtype=torch.uint8)  # gaps between items are written too
            if device is not None:
                torch.cuda.set_device(device)  # each thread has its own; another rank's is not to be touched
                self.pinned = _pin(image)
            self.image = image

    def _made(self) -> None:
        making, self._making = self._making, None
        if making is not None:
            making.join()

    def release(self) -> None:
        self._made()
        if self.image is not None and self.pinned:
            _cudart().cudaHostUnregister(self.image.data_ptr())
        self.image, self.pinned = None, False


def _ready() -> None:
    """Does nothing: copies between host tensors are synchronous."""


def _mark() -> Any:
    """Records an event in the device's stream."""
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


def _pin(image: Tensor) -> bool:
    """Pins the memory. Unlike torch's allocator, it doesn't round 10 GB up to 16 GB."""
    if image.numel() == 0:
        return False
    return int(_cudart().cudaHostRegister(image.data_ptr(), image.numel(), 0)) == 0


def _cudart() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]
