"""Batches of any shape: the tensors in dictionaries, lists, tuples and dataclasses, and changed copies of the whole."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

Change = Callable[[str, Tensor], Tensor]  # (where it stands, the tensor) -> the one to put there


def tensors(nest: Any, where: str = "batch") -> Iterator[tuple[str, Tensor]]:
    """Every tensor with where it stands, as `batch['x']`, `batch[0]` or `batch.x`."""
    if isinstance(nest, Tensor):
        yield where, nest
        return
    for key, value in _parts(nest):
        yield from tensors(value, where + key)


def changed(nest: Any, change: Change, where: str = "batch") -> Any:
    """A copy in which each tensor is what `change` gives for it. What has no tensors is not copied."""
    if isinstance(nest, Tensor):
        return change(where, nest)
    parts = [(key, changed(value, change, where + key)) for key, value in _parts(nest)]
    values = [value for _, value in parts]
    if not parts:
        return nest
    if isinstance(nest, Mapping):
        return _mapping(nest, dict(zip(nest, values, strict=True)))
    if isinstance(nest, tuple):
        return type(nest)(*values) if hasattr(nest, "_fields") else tuple(values)
    if isinstance(nest, list):
        return values
    twin = copy.copy(nest)
    for field, value in zip(dataclasses.fields(nest), values, strict=True):
        object.__setattr__(twin, field.name, value)
    return twin


def cloned(nest: Any) -> Any:
    """A copy that shares no memory with it."""
    return changed(nest, lambda _, tensor: tensor.detach().clone())


def count_rows(nest: Any) -> int:
    """Samples of a batch: the size that most of its tensors have first. 0 if there is none."""
    sizes = [len(tensor) for _, tensor in tensors(nest) if tensor.ndim]
    return max(set(sizes), key=lambda size: (sizes.count(size), size)) if sizes else 0


def rows(nest: Any, begin: int, end: int) -> Any:
    """The samples from `begin` to before `end`. Tensors that have no row for each sample stay whole."""
    count = count_rows(nest)
    return changed(nest, lambda _, each: each[begin:end] if each.ndim and len(each) == count else each)


def digest(value: Any) -> str:
    """Of every number in a nest of tensors, arrays and plain values: equal for equal content, in any process."""
    found = hashlib.sha256()
    _feed(found, value)
    return found.hexdigest()[:16]


def _parts(nest: Any) -> list[tuple[str, Any]]:
    if isinstance(nest, Mapping):
        return [(f"[{key!r}]", value) for key, value in nest.items()]
    if isinstance(nest, tuple) and hasattr(nest, "_fields"):
        return [(f".{name}", getattr(nest, name)) for name in nest._fields]
    if isinstance(nest, list | tuple):
        return [(f"[{index}]", value) for index, value in enumerate(nest)]
    if dataclasses.is_dataclass(nest) and not isinstance(nest, type):
        return [(f".{field.name}", getattr(nest, field.name)) for field in dataclasses.fields(nest)]
    return []


def _mapping(nest: Mapping[Any, Any], values: dict[Any, Any]) -> Any:
    """Of the same class where it can be copied and set, such as the batches of tokenizers."""
    if type(nest) is dict or not hasattr(nest, "__setitem__"):
        return values
    twin = copy.copy(nest)
    if hasattr(twin, "data") and isinstance(twin.data, dict):
        twin.data = dict(twin.data)  # a UserDict's copy may share it
    for key, value in values.items():
        twin[key] = value
    return twin


def _feed(found: Any, value: Any) -> None:
    if isinstance(value, Tensor):
        flat = value.detach().to("cpu").contiguous().reshape(-1)
        found.update(f"{value.dtype}{tuple(value.shape)}".encode())
        found.update(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")
    elif isinstance(value, np.ndarray):
        found.update(f"{value.dtype}{value.shape}".encode() + np.ascontiguousarray(value).tobytes())
    elif isinstance(value, Mapping):
        for key in sorted(value, key=str):
            found.update(str(key).encode())
            _feed(found, value[key])
    elif isinstance(value, list | tuple):
        found.update(f"{len(value)}".encode())
        for each in value:
            _feed(found, each)
    elif parts := _parts(value):
        for key, each in parts:
            found.update(key.encode())
            _feed(found, each)
    else:
        found.update(repr(value).encode())
