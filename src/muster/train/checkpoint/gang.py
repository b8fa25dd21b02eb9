"""Collectives for saving and loading: small messages between ranks; a failure on one rank raises on all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeVar, cast

import torch.distributed as dist

from muster.runtime.checkpoints import disk_full
from muster.train.errors import CheckpointError, CheckpointFull

T = TypeVar("T")
R = TypeVar("R")

PATIENCE: Final = timedelta(hours=2)  # a dead rank is detected at once; this limits the slowest rank's write


@dataclass(frozen=True, slots=True)
class SaveGroup:
    """All ranks of the run, over a process group for CPU tensors; or a single process."""

    group: Any = None  # a gloo process group
    rank: int = 0
    world: int = 1

    def gather(self, make: Callable[[], T]) -> list[T]:
        """Returns to all ranks the results of `make` on each rank."""
        mine = _attempt(make, self.rank)
        found: list[Any] = [mine]
        if self.world > 1:
            found = [None] * self.world
            dist.all_gather_object(found, mine, group=self.group)
        return _sound(found)

    def together(self, make: Callable[[], T]) -> T:
        """Returns this rank's result of `make`, once it has succeeded on all ranks."""
        mine = _attempt(make, self.rank)
        self.gather(lambda: mine if isinstance(mine, Failure) else None)
        return cast(T, _sound([mine])[0])

    def lead(self, make: Callable[[], T]) -> T:
        """Calls `make` on rank 0 only, and returns the result to all ranks."""
        found: list[Any] = [_attempt(make, 0) if self.rank == 0 else None]
        if self.world > 1:
            dist.broadcast_object_list(found, group=self.group, group_src=0)
        return cast(T, _sound(found)[0])

    def divide(self, make: Callable[[], T], share: Callable[[list[T]], Sequence[R]]) -> R:
        """Gathers values on rank 0, which computes one result per rank; returns this rank's result."""
        mine = _attempt(make, self.rank)
        if self.world == 1:
            return share(_sound([mine]))[0]
        given: list[Any] | None = [None] * self.world if self.rank == 0 else None
        dist.gather_object(mine, given, group=self.group, group_dst=0)
        parts: list[Any] | None = None
        if given is not None:
            made = _attempt(lambda: share(_sound(given)), 0)
            parts = [made] * self.world if isinstance(made, Failure) else list(made)
        received: list[Any] = [None]
        dist.scatter_object_list(received, parts, group=self.group, group_src=0)
        return cast(R, _sound(received)[0])


@dataclass(frozen=True, slots=True)
class Failure:
    """An error on a rank, as text that can be sent to other ranks."""

    rank: int
    text: str
    kind: type[CheckpointError]


def own_gang() -> SaveGroup:
    """Creates a separate process group, so that a background thread can use it. All ranks call it together."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return SaveGroup()
    group = dist.new_group(backend="gloo", timeout=PATIENCE)
    return SaveGroup(group, dist.get_rank(group), dist.get_world_size(group))


def shared_gang() -> SaveGroup:
    """For the caller's thread: uses training's process group if it supports CPU tensors."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_backend() != "gloo":
        return own_gang()
    return SaveGroup(dist.group.WORLD, dist.get_rank(), dist.get_world_size())


def _attempt(make: Callable[[], T], rank: int) -> T | Failure:
    try:
        return make()
    except CheckpointError as error:
        return Failure(rank, str(error), type(error))
    except OSError as error:
        return Failure(rank, str(error), CheckpointFull if disk_full(error) else CheckpointError)
    except Exception as error:
        return Failure(rank, f"{type(error).__name__}: {error}", CheckpointError)


def _sound(found: list[Any]) -> list[Any]:
    """Raises the error of the first rank that failed."""
    failed = [each for each in found if isinstance(each, Failure)]
    if not failed:
        return found
    first = failed[0]
    where = f"rank {first.rank}: " if len(found) > 1 else ""
    more = f" ({len(failed)} ranks failed)" if len(failed) > 1 else ""
    raise first.kind(f"{where}{first.text}{more}")
