"""A rank's samples of many steps, computed at once: step by step it would cost as much as reading them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from muster.data.ledger import sample_hash
from muster.data.order import Order, Samples
from muster.data.world import share

_MANY: Final = 16384  # samples of a span that follows on another: two milliseconds
_FEW: Final = 512  # of one where a run begins or jumps


@dataclass(frozen=True, slots=True)
class Span:
    """This rank's samples of the steps [first, last), one step after the other."""

    first: int
    last: int
    samples: Samples
    hashes: NDArray[np.uint64]  # [samples]
    totals: list[int]  # of each micro-batch, for the ledger


@dataclass(eq=False)
class Spans:
    """The last span that was computed, and the next one when it is needed."""

    order: Order
    world: int
    rank: int
    micros: int
    mine: int = field(init=False)  # samples of this rank in a step
    parts: list[tuple[int, int]] = field(init=False)  # begin and end of each micro-batch among them
    _span: Span | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        slices = share(self.order.batch, self.world, self.rank, self.micros)
        self._positions = np.concatenate([np.arange(part.start, part.stop) for part in slices])
        ends = np.cumsum([part.stop - part.start for part in slices]).tolist()
        self.mine, self.parts = ends[-1], list(zip([0, *ends[:-1]], ends, strict=True))

    def of(self, steps: range) -> Span:
        """A span that holds these steps. Callers in several threads may compute the same one twice."""
        span = self._span
        if span is None or steps.start < span.first or steps.stop > span.last:
            follows = span is not None and span.first < steps.start <= span.last
            count = (_MANY if follows else _FEW) // self.mine
            span = self._span = self._computed(steps.start, max(len(steps), count))
        return span

    def part(self, span: Span, step: int, number: int = 0) -> tuple[int, int]:
        """Where a micro-batch begins in a span, and where it ends."""
        before = (step - span.first) * self.mine
        begin, end = self.parts[number]
        return before + begin, before + end

    def total(self, span: Span, step: int, number: int) -> int:
        """A micro-batch's part of its step's total in the ledger."""
        return span.totals[(step - span.first) * self.micros + number]

    def _computed(self, first: int, steps: int) -> Span:
        samples = self.order.span(first, first + steps, self._positions)
        hashes = sample_hash(samples)
        begins = np.add.outer(np.arange(steps) * self.mine, [begin for begin, _ in self.parts])
        totals = np.add.reduceat(hashes, begins.ravel()).tolist()
        return Span(first, first + steps, samples, hashes, totals)
