"""The interface between a model and parallelism, and its common implementation for stacks of blocks."""

from __future__ import annotations

import math
from typing import Final, Protocol, cast

from torch import nn
from torch.distributed.tensor.parallel import ParallelStyle

from muster.train.errors import MeshError
from muster.train.models.layers import Block, BlockShape
from muster.train.models.tensor_styles import Columns, Entered, Replicated, Rows

_INIT_STD: Final = 0.02  # GPT-2's, and Llama's
_ASKED: Final = ("stage", "tensor_plan", "tie", "check", "flops_per_token", "init_std")


class Divisible(Protocol):
    """A model that can be cut into stages and split over tensor-parallel ranks.

    `blocks` contains every block under its number, "0" to "n-1", in order. A stage deletes the other blocks, so its
    parameters keep the names that they have in the whole model.
    """

    blocks: nn.ModuleDict

    def stage(self, first: int, last: int, is_first: bool, is_last: bool) -> None:
        """Makes this module the stage of blocks `first` to `last - 1`, in place; the first keeps the embedding, the
        last the final norm and the head."""

    def tensor_plan(self, sequence: bool) -> dict[str, ParallelStyle]:
        """How each submodule that is still here is split, for `parallelize_module`; call `tie` after it. With
        `sequence`, the stream between the products is split over the sequence, as is what one stage sends the next. To
        be compiled, all styles must be those of `tensor_styles`."""

    def tie(self) -> None:
        """Ties shared parameters again after `parallelize_module`, before `fully_shard`. Moving keeps them tied."""

    def check(self, tp: int = 1, pp: int = 1, sequence: int | None = None) -> None:
        """Raises `MeshError` with the numbers when the model can't be split so. `sequence` is the number of tokens in a
        sample where sequence parallelism is on, None where it is off."""

    def flops_per_token(self, seq: int) -> int:
        """Operations of a forward and a backward pass for one token of a sample of `seq` tokens."""

    def init_std(self, name: str) -> float:
        """The standard deviation that a weight of this name starts with."""


def divisible(model: nn.Module) -> Divisible | None:
    """The model as a `Divisible`, if it implements the protocol.

    Not by `isinstance` on the protocol: from Python 3.12 on it does not see a module's submodules, and `blocks` is one.
    """
    has_blocks = isinstance(getattr(model, "blocks", None), nn.ModuleDict)
    return cast(Divisible, model) if has_blocks and all(hasattr(model, name) for name in _ASKED) else None


def keep_blocks(blocks: nn.ModuleDict, first: int, last: int) -> None:
    """Deletes every block but `first` to `last - 1`."""
    wanted = [str(index) for index in range(first, last)]
    missing = [name for name in wanted if name not in blocks]
    if missing or not wanted:
        raise MeshError(f"A stage of blocks {first} to {last - 1} was asked of a model with blocks {_span(blocks)}.")
    for name in [name for name in blocks if name not in wanted]:
        del blocks[name]


def block_plan(name: str, block: nn.Module, sequence: bool) -> dict[str, ParallelStyle]:
    """The plan of one block that is called `name` in its model."""
    if not isinstance(block, Block):
        raise TypeError(f"{name} is a {type(block).__name__}, for which there is no tensor-parallel plan.")
    plan: dict[str, ParallelStyle] = {}
    for part, columns, rows in (("attention", ("q", "k", "v"), "out"), ("ffn", ("gate", "up"), "down")):
        plan[f"{name}.{part}_norm"] = Replicated(sequence=sequence)
        plan[f"{name}.{part}"] = Entered(sequence=sequence)
        for each in columns:
            if hasattr(getattr(block, part), each):
                plan[f"{name}.{part}.{each}"] = Columns()
        plan[f"{name}.{part}.{rows}"] = Rows(sequence=sequence)
    return plan


def stream_std(name: str, layers: int) -> float:
    """GPT-2's initial standard deviation: smaller for layers that add to the stream, since 2 x layers do."""
    if name.endswith(("attention.out.weight", "ffn.down.weight")):
        return _INIT_STD / math.sqrt(2 * layers)
    return _INIT_STD


def check_split(shape: BlockShape, layers: int, tp: int, pp: int) -> list[str]:
    """The reasons why blocks of this shape can't be split, as texts."""
    found = []
    if tp < 1 or pp < 1:
        return [f"tp {tp} and pp {pp} must both be 1 or more"]
    for count, what in ((shape.heads, "heads"), (shape.kv_heads, "KV heads"), (shape.ffn, "FFN columns")):
        if count % tp:
            found.append(f"{count} {what} don't divide by tp {tp}")
    if tp > 1 and shape.dropout > 0:
        found.append(f"dropout {shape.dropout} with tp {tp} would drop different values on each rank; set dropout to 0")
    if pp > layers:
        found.append(f"{layers} layers can't make pp {pp} stages")
    return found


def refuse(found: list[str]) -> None:
    """Raises one `MeshError` with everything that was found."""
    if found:
        raise MeshError(f"The model can't be split so: {'; '.join(found)}.")


def _span(blocks: nn.ModuleDict) -> str:
    names = list(blocks)
    return f"{names[0]} to {names[-1]}" if names else "none"
