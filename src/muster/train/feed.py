"""Provides the loop's input: each step's micro-batches on the device, and the totals of the step over all ranks.

The samples of the next step are loaded, counted and copied to the device while it still runs the current step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from muster.data.collate import Arrays
from muster.data.ledger import signed, unsigned
from muster.data.loader import Loader
from muster.data.order import Order, Source
from muster.train.config import Config
from muster.train.gang import Agreement, Gang, PendingRequests, Requests
from muster.train.mesh import Mesh
from muster.train.parallel import Micro
from muster.train.prefetch import Prefetch, to_device
from muster.train.task import Data, Task, Tensors


@dataclass(frozen=True, slots=True)
class StepInput:
    """The input of one step. Only the micro-batches differ between ranks."""

    micros: list[Micro]
    items: int  # in the global batch
    hash: int  # of every sample in it, mod 2**64
    asked: PendingRequests  # of any rank


@dataclass(slots=True)
class Feed:
    """Prefetches one step: `ask` starts, `take` returns the result. Only one step at a time."""

    loader: Loader
    task: Task
    mesh: Mesh
    gang: Gang
    requests: Requests
    _agreement: Agreement = field(init=False)
    _prefetch: Prefetch = field(init=False)

    def __post_init__(self) -> None:
        self._agreement = Agreement(self.gang.talk)
        self._prefetch = Prefetch(self.mesh.device)

    def ask(self, position: int, save: bool = False, keep: bool = False) -> None:
        """Starts to load the step at this position of the data. `save`, `keep`: this rank requests a save before it, on
        disk or in memory."""
        batches = self.loader.at(position)
        self._prefetch.send([batch.arrays for batch in batches])
        items, hashed = sum(self.task.items(batch.arrays) for batch in batches), sum(batch.hash for batch in batches)
        if self.mesh.place["tp"] or self.mesh.place["pp"]:
            items = hashed = 0  # tensor and pipeline peers read the same samples, which count once
        asked = self.requests.look()
        flags = (asked.stop, asked.term, asked.spot, asked.save or save, asked.profile, keep)
        self._agreement.start([items, signed(hashed), *(int(bool(flag)) for flag in flags)])

    def take(self) -> StepInput:
        """The requested step, once every rank has requested it."""
        items, hashed, *flags = self._agreement.result()
        micros = [_micro(self.task, batch) for batch in self._prefetch.take()]
        return StepInput(micros, items, unsigned(hashed), PendingRequests(*flags))


def order_of(config: Config, data: Data, batch: int) -> Order:
    """The order of a task's data."""
    sources = tuple(Source(each.name, len(each.samples), each.weight) for each in data.supplies)
    seed = config.seed if config.data.seed is None else config.data.seed
    return Order(sources, batch, seed, config.data.shuffle)


def described(order: Order) -> dict[str, Any]:
    """The properties of the data that must be equal in a checkpoint and the run that resumes it."""
    sources = [[source.name, source.size, source.weight] for source in order.sources]
    return {"sources": sources, "batch": order.batch, "seed": order.seed, "shuffle": order.shuffle}


def micro(task: Task, arrays: Arrays, device: torch.device) -> Micro:
    """A micro-batch in the form of the model's input."""
    return _micro(task, to_device(arrays, device))


def _micro(task: Task, batch: Tensors) -> Micro:
    return Micro(task.inputs(batch), batch)
