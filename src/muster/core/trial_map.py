"""The trials of a study by number, with a log of which have changed, so that an index follows at the cost of that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from muster.core.entities.study import Trial

    _Numbered = dict[int, Trial]
else:
    _Numbered = dict

KEPT: Final = 10_000  # entries of the log; an index that is further behind has to look at all trials


def map_of(trials: Mapping[int, Trial]) -> TrialMap:
    made = TrialMap()
    for number, trial in trials.items():
        made.put(number, trial)
    return made


class TrialMap(_Numbered):
    """An index remembers the `end` up to which it has followed. What is taken back is in the log once more."""

    __slots__ = ("_log", "_start", "indexes")

    def __init__(self) -> None:
        super().__init__()
        self.indexes: dict[str, Any] = {}  # over these trials, each of which follows when it is asked
        self._log: list[int] = []
        self._start = 0

    @property
    def end(self) -> int:
        return self._start + len(self._log)

    def since(self, end: int) -> Sequence[int] | None:
        """The numbers of trials that are new, gone or different, some more than once; None if that is not kept."""
        return self._log[end - self._start :] if self._start <= end <= self.end else None

    def put(self, number: int, trial: Trial | None) -> None:
        """None: there is no such trial any more."""
        if trial is not None:
            super().__setitem__(number, trial)
        else:
            super().pop(number, None)
        self._log.append(number)
        if len(self._log) > KEPT:
            half = KEPT // 2
            del self._log[:half]
            self._start += half
