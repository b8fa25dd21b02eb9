"""Arrays that are used again once nobody refers to them: fresh memory costs a page fault for every 4 KiB."""

from __future__ import annotations

from dataclasses import dataclass, field
from sys import getrefcount
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_KEPT: Final = 8  # arrays of one shape and type
_KINDS: Final = 4  # shapes and types


@dataclass(eq=False)
class Recycled:
    """Hands out arrays for one thread. One is free again when it, its views and the tensors over it are gone."""

    _kept: dict[tuple[tuple[int, ...], Any], list[NDArray[Any]]] = field(default_factory=dict, init=False, repr=False)

    def empty(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """An array with any content, as of `np.empty`."""
        kept = self._kept.get((shape, dtype))
        if kept is None:
            if len(self._kept) == _KINDS:
                self._kept.clear()
            kept = self._kept[shape, dtype] = []
        array = _free(kept)
        if array is None:
            array = np.empty(shape, dtype)
            if len(kept) < _KEPT:
                kept.append(array)
        return array[...]  # a view: it refers to the array as long as anything refers to the view


def _free(kept: list[NDArray[Any]]) -> NDArray[Any] | None:
    """The first array to which nothing but the list refers."""
    for array in kept:
        if getrefcount(array) == _ALONE:
            return array
    return None


def _count(kept: list[NDArray[Any]]) -> int:
    """How Python counts there: in which versions the loop's variable counts is not for us to know."""
    for array in kept:
        return getrefcount(array)
    return 0


_ALONE: Final = _count([np.empty(0)])
