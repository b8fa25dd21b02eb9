"""Loads a checkpoint into the tensors of any layout."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner

from muster.train.checkpoint.index import Index
from muster.train.checkpoint.load import Found
from muster.train.checkpoint.reader import Reader
from muster.train.checkpoint.snapshot import MODEL, OPTIM, Snapshot
from muster.train.errors import CheckpointMismatch

SHOWN: Final = 5  # names of each kind in an error


@dataclass(frozen=True, slots=True)
class Restored:
    """The state that was saved with the tensors."""

    step: int
    shared: dict[str, Any]
    extra: dict[str, Any] | None  # this rank's own state, if the number of ranks is unchanged; else None
    world: int  # how many ranks saved it


def restore(found: Found, snapshot: Snapshot, *, optim: bool = True) -> Restored:
    """Fills the tensors of `snapshot.model` and `snapshot.optim` in place, and sets plain values in both.

    All ranks call it together. The layout may differ from the saved one. Raises CheckpointMismatch, on all
    ranks and before any tensor is changed, for a checkpoint of another model, with the first few names that are
    missing, unexpected or differently shaped. `optim=False` loads the model alone.
    """
    gang = found.gang
    tensors = {key: value for key, value in snapshot.tensors() if optim or key.startswith(MODEL)}
    reader = gang.together(found.reader)
    saved = reader.index

    def share(given: list[dict[str, tuple[int, ...]]]) -> list[None]:
        _check_same(saved, {key: shape for each in given for key, shape in each.items()}, found.path, optim)
        return [None] * gang.world

    gang.divide(lambda: {key: tuple(value.shape) for key, value in tensors.items()}, share)
    gang.together(lambda: _read(reader, tensors))
    common = gang.lead(found.common)
    _set_values(snapshot, common["values"], optim)
    extra = gang.together(lambda: found.of_rank(gang.rank) if saved.world == gang.world else None)
    return Restored(found.step, common["shared"], extra, saved.world)


def _read(reader: Reader, tensors: dict[str, Tensor]) -> None:
    """Each rank plans and reads on its own: torch's loading would gather all plans and return them unchanged."""
    planner = DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    planner.set_up_planner(tensors, reader.read_metadata(), False)
    reader.read_data(planner.finish_plan(planner.create_local_plan()), planner).wait()


def _check_same(index: Index, shapes: dict[str, tuple[int, ...]], path: str, optim: bool) -> None:
    saved = {key: entry.shape for key, entry in index.entries.items() if optim or key.startswith(MODEL)}
    lines = []
    if missing := [key for key in shapes if key not in saved]:
        lines.append(f"missing in the checkpoint: {_some(missing)}")
    if unexpected := [key for key in saved if key not in shapes]:
        lines.append(f"unexpected in the checkpoint: {_some(unexpected)}")
    if other := [key for key in shapes if key in saved and saved[key] != shapes[key]]:
        words = (f"{key} saved {list(saved[key])}, here {list(shapes[key])}" for key in other)
        lines.append(f"differently shaped: {_some(list(words))}")
    if lines:
        raise CheckpointMismatch(
            f"{path} is of another model{' or optimizer' if optim else ''}: {'; '.join(lines)}. "
            "Give the configuration that it was trained with, or another folder of checkpoints."
        )


def _some(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"


def _set_values(snapshot: Snapshot, values: dict[str, Any], optim: bool) -> None:
    parts: Iterable[tuple[str, dict[str, Any]]] = [(MODEL, snapshot.model), (OPTIM, snapshot.optim if optim else {})]
    for prefix, part in parts:
        for name, value in part.items():
            if not isinstance(value, Tensor) and prefix + name in values:
                part[name] = values[prefix + name]
