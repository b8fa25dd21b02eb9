"""Host memory for snapshots: one image, reused for every save, into which a snapshot is copied.

On a GPU with memory to spare there is a second image on the device. Then training stops for the copy into that one, at
the device's own speed, and the way to the host goes on beside the next steps.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor

from muster.train.checkpoint.plan import Plan, local

LEFT: Final = 0.05  # of the device's memory, which has to stay free beside the image there


@dataclass
class Stage:
    """One image. On a GPU the copies are queued after the step's kernels, and the caller doesn't wait for them."""

    image: Tensor | None = None  # u8[size]
    pinned: bool = False
    spare: Tensor | None = None  # u8[size] on the device; made after a step, which has the memory that it needs by then
    device_seconds: float = 0.0  # seconds for which the last copy blocked the device; known once it is complete
    _making: threading.Thread | None = None
    _since: int = 0  # the step for which the image was made
    _tried: bool = False  # to make the one on the device
    _side: Any = None  # the stream beside that of training

    def prepare(self, plan: Plan, tensors: dict[str, Tensor], step: int) -> None:
        """Makes the image in the background: to pin 10 GB takes seconds. A copy waits for it."""
        self.release()
        self._since = step
        device = next((each.device for each in (local(tensors[item.key]) for item in plan.items) if each.is_cuda), None)
        self._making = threading.Thread(target=self._make, args=(plan.size, device), name="muster-image")
        self._making.start()

    def copy(self, plan: Plan, tensors: dict[str, Tensor], step: int) -> Callable[[], None]:
        """Starts to copy this rank's data, as it is after `step`. The returned function blocks until the image is
        complete."""
        parts = {item.key: local(tensors[item.key]).detach() for item in plan.items}
        cuda = any(part.is_cuda for part in parts.values())
        self._made()
        if self.image is None or self.image.numel() != plan.size or (cuda and not self.pinned):
            self.prepare(plan, tensors, step)
            self._made()
        if self.image is None:
            raise MemoryError(f"no memory for the image of {plan.size:,} bytes from which a save is written")
        self.device_seconds = 0.0
        if not cuda:
            self._fill(self.image, plan, parts)
            return _ready
        begun = _mark()
        beside = all(part.is_cuda for part in parts.values()) and self._has_spare(plan.size, step)
        self._fill(self.spare if beside and self.spare is not None else self.image, plan, parts)
        ended = _mark()
        return partial(self._finish, begun, ended, self._sent(ended) if beside else ended)

    @staticmethod
    def _fill(image: Tensor, plan: Plan, parts: dict[str, Tensor]) -> None:
        places, sources = [], []
        for item in plan.items:
            if item.bytes:
                place = image[item.at : item.at + item.bytes].view(item.dtype).view(item.sizes)
                part = parts[item.key]
                whole = part.shape == place.shape
                places.append(place)
                sources.append(part if whole else part.narrow(0, item.row, item.sizes[0]))
        if places:
            torch._foreach_copy_(places, sources, non_blocking=True)

    def _has_spare(self, size: int, step: int) -> bool:
        """Whether there is an image on the device; made if steps leave the memory for it."""
        if not self._tried and step > self._since and size:
            self._tried = True
            free, whole = torch.cuda.mem_get_info()
            if free >= size + LEFT * whole:
                with suppress(torch.OutOfMemoryError):
                    self.spare = torch.zeros(size, dtype=torch.uint8, device="cuda")
        return self.spare is not None

    def _sent(self, ended: Any) -> Any:
        """Queues the copy to the host in a stream of its own: the next steps don't wait for it."""
        assert self.image is not None
        assert self.spare is not None
        self._side = self._side or torch.cuda.Stream()  # type: ignore[no-untyped-call]
        with torch.cuda.stream(self._side):
            self._side.wait_event(ended)
            self.image.copy_(self.spare, non_blocking=True)
            return _mark()

    def bytes(self) -> memoryview:
        """The bytes of the image."""
        assert self.image is not None
        return memoryview(self.image.numpy())  # type: ignore[arg-type]

    def _finish(self, begun: Any, ended: Any, arrived: Any) -> None:
        arrived.synchronize()
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
        self.image, self.pinned, self.spare, self._tried = None, False, None, False


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
