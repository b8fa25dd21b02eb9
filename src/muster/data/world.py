"""Divides the global batch: which positions belong to one data-parallel rank, for each micro-batch."""

from __future__ import annotations

from muster.data.errors import DataError


def share(batch: int, world: int, rank: int, micros: int = 1) -> list[slice]:
    """One slice of the global batch for each micro-batch of a rank. Their sizes differ by one at most.

    Micro-batch m of all ranks together is the m-th part of the global batch, for any number of ranks.
    """
    check(batch, world, micros)
    if not 0 <= rank < world:
        raise DataError(f"data rank {rank} of {world}: give a rank from 0 to {world - 1}.")
    parts = world * micros
    numbers = range(rank, parts, world)
    return [slice(batch * number // parts, batch * (number + 1) // parts) for number in numbers]


def check(batch: int, world: int, micros: int = 1, even: bool = False) -> None:
    """Raises DataError, with the numbers, unless each micro-batch gets a sample; if `even`, equally many."""
    if batch < 1 or world < 1 or micros < 1:
        raise DataError(f"batch {batch}, {world} data ranks, {micros} micro-batches: each must be 1 or more.")
    parts = world * micros
    given = f"{world} data ranks x {micros} micro-batches = {parts}"
    if batch < parts:
        raise DataError(
            f"a global batch of {batch} samples is less than {given}. "
            f"Make the batch {parts} or more, or use fewer ranks or micro-batches."
        )
    if even and batch % parts:
        nearest = f"{batch // parts * parts} or {(batch // parts + 1) * parts}"
        raise DataError(
            f"a global batch of {batch} samples doesn't divide by {given}, and pipeline stages need micro-batches of "
            f"one size. Make the batch {nearest}, or change the ranks or the micro-batches."
        )
