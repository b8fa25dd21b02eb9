"""Activation checkpointing and compilation. They replace only the forward of a module, not its parameters."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import cache, wraps
from importlib import import_module
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from muster.train.models.parts import divisible
from muster.train.models.tensor_styles import on_local


def recompute(blocks: Sequence[nn.Module], mode: Literal["none", "selective", "full"]) -> None:
    """`full` keeps each block's input alone and computes the rest again in the backward pass, `selective` does so in
    every other block.

    Selecting by operation instead (keeping the results of products and attention) was measured on an H200: without
    `torch.compile` a step took four times as long and used more memory than `none`, because it keeps results that the
    backward pass doesn't need.
    """
    every = {"none": 0, "selective": 2, "full": 1}[mode]
    for block in blocks[::every] if every else ():
        block.forward = _checkpointed(block.forward)


def compile_parts(part: nn.Module, blocks: Sequence[nn.Module]) -> None:
    """Compiles the forward of each block, and of the norm before the head in a model of our own. Only the forward: it
    is inside the hooks with which FSDP gathers the weights, and what it compiles has no DTensor."""
    last = getattr(part, "norm", None) if divisible(part) is not None else None
    for module in (*blocks, last):
        if isinstance(module, nn.Module):
            module.forward = on_local(module, _compiled(module.forward))


def _compiled(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Not before its first call: `torch.compile` imports the compiler."""

    @cache
    def made() -> Callable[..., Any]:
        return torch.compile(forward)

    @wraps(forward)
    def run(*args: Any, **kwargs: Any) -> Any:
        return made()(*args, **kwargs)

    return run


def load_compiler() -> threading.Thread:
    """Imports the compiler in a thread, which takes seconds: weights can be made meanwhile. Join it before any other
    import."""
    thread = threading.Thread(target=import_module, args=("torch._inductor.compile_fx",), name="muster-compiler")
    thread.start()
    return thread


def _checkpointed(forward: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(forward)
    def run(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    return run
