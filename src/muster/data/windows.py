"""Windows of equal width over several memory maps, copied by one index, however many maps there are.

An array from the lowest map's address up to the highest map has a row for every address at which a window could begin.
Only rows within a map are ever read. Window by window in Python is three times as slow, and map by map nearly twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows by where they begin in the row that the maps are parts of. It refers to the maps, so their memory stays.

    `parts` are the numbers of the maps in which the windows begin; the one after the last is of those past the end.
    """

    maps: tuple[NDArray[Any], ...]
    rows: NDArray[Any]  # never read as a whole
    ends: NDArray[np.uint64]  # by map: windows that begin before it lie in it as a whole; 0 of a map that is not here
    shifts: NDArray[np.int64]  # by map: from a window's begin to its row

    def hold(self, begins: NDArray[np.int64], parts: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Which of these windows lie in one map that is here. None does that begins below 0."""
        found: NDArray[np.bool_] = begins.view(np.uint64) < self.ends[parts]
        return found

    def copy(self, begins: NDArray[np.int64], parts: NDArray[np.intp]) -> NDArray[Any]:
        """These windows, stacked. All must be held."""
        found: NDArray[Any] = self.rows[begins + self.shifts[parts]]
        return found


def over(maps: Mapping[int, NDArray[Any]], begins: NDArray[np.int64], width: int) -> Windows | None:
    """Windows over these maps, by their numbers, all of one type. `begins`: where each of all maps begins in the row.

    None if no array can be laid over them.
    """
    if not maps:
        return None
    kept, numbers = tuple(maps.values()), list(maps)
    size = kept[0].itemsize
    addresses = np.array([each.__array_interface__["data"][0] for each in kept], np.int64)
    lowest = int(addresses.min())
    last = int((addresses + [each.nbytes for each in kept]).max())
    offsets, apart = np.divmod(addresses - lowest, size)
    ends, shifts = np.zeros(len(begins) + 1, np.uint64), np.zeros(len(begins) + 1, np.int64)
    ends[numbers] = [max(0, len(each) - width + 1) for each in kept]
    ends[numbers] += (begins[numbers] * (ends[numbers] > 0)).astype(np.uint64)
    shifts[numbers] = offsets - begins[numbers]
    memory = _Memory(lowest, (max(0, (last - lowest) // size - width + 1), width), size, kept[0].dtype.str)
    try:
        return None if apart.any() else Windows(kept, np.asarray(memory), ends, shifts)
    except ValueError:  # they lie too far apart
        return None


class _Memory:
    """What NumPy needs to know of an array over given memory."""

    def __init__(self, address: int, shape: tuple[int, int], size: int, kind: str) -> None:
        self.__array_interface__ = {
            "version": 3, "data": (address, True), "shape": shape, "strides": (size, size), "typestr": kind,
        }  # fmt: skip
