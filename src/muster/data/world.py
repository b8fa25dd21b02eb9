"""Divides the global batch: which positions belong to one data-parallel rank, for each micro-batch."""

from __future__ import annotations

from muster.data.errors import DataError


def share(batch: int, world: int, rank: int, micros: int = 1) -> list[slice]:
    """One slice of the global batch for each micro-batch of a rank.

    Micro-batch m of all ranks together is the m-th part of the global batch, for any number of ranks.
    """
    check(batch, world, micros)
    if not 0 <= rank < world:
        raise DataError(f"data rank {rank} of {world}: give a rank from 0 to {world - 1}.")
    size = batch // (world * micros)
    starts = ((micro * world + rank) * size for micro in range(micros))
    return [slice(start, start + size) for start in starts]


def check(batch: int, world: int, micros: int = 1) -> None:
    """Raises DataError, with the numbers and the nearest possible batches, unless the batch divides evenly."""
    if batch < 1 or world < 1 or micros < 1:
        raise DataError(f"batch {batch}, {world} data ranks, {micros} micro-batches: each must be 1 or more.")
    parts = world * micros
    if batch % parts:
        nearest = " or ".join(str(each) for each in (batch // parts * parts, (batch // parts + 1) * parts) if each)
        raise DataError(
            f"a global batch of {batch} samples doesn't divide by {world} data ranks x {micros} micro-batches = "
            f"{parts}. Make the batch {nearest}, or change the ranks or the micro-batches."
        )
