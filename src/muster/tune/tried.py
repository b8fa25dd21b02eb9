"""How often each point of a space was tried, without what the platform lost, confirmed or copied."""

from __future__ import annotations

from collections.abc import Mapping

from muster.core.entities.study import Trial
from muster.tune.changed import Changed
from muster.tune.space import Value, key_of

Key = tuple[tuple[str, str, Value], ...]  # of a point


class Tried:
    """Follows the trials that it is given."""

    def __init__(self) -> None:
        self._changed = Changed()
        self._keys: dict[int, Key] = {}  # of the trials that count
        self._times: dict[Key, int] = {}

    def times(self, trials: Mapping[int, Trial], outside: frozenset[int] = frozenset()) -> Mapping[Key, int]:
        """`outside`: trials that do not count either. It must not be changed."""
        for number, trial in self._changed.since(trials):
            self._put(number, trial)
        if not outside:
            return self._times
        found = dict(self._times)
        for key in (self._keys[number] for number in outside if number in self._keys):
            found[key] -= 1
        return found

    def _put(self, number: int, trial: Trial | None) -> None:
        counts = trial is not None and trial.outcome != "lost" and trial.origin not in ("confirm", "exploit")
        if (before := self._keys.pop(number, None)) is not None:
            self._times[before] -= 1
            if not self._times[before]:
                del self._times[before]
        if counts and trial is not None:
            key = self._keys[number] = key_of(trial.params)
            self._times[key] = self._times.get(key, 0) + 1
