"""Which trials are different from those that an index has seen last, at the cost of the change where that is logged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from muster.core.entities.study import Trial
from muster.core.trial_map import TrialMap


class Changed:
    """For one index over the trials of views, whichever it is given in turn."""

    def __init__(self) -> None:
        self._log: TrialMap | None = None  # the last trials, if they have a log, and
        self._end = 0  # up to where it was read
        self._seen: dict[int, Trial] = {}

    def since(self, trials: Mapping[int, Trial]) -> Iterable[tuple[int, Trial | None]]:
        """The number and the trial of each that is new or another object; None for one that is not there."""
        seen = self._seen
        numbers = trials.since(self._end) if isinstance(trials, TrialMap) and trials is self._log else None
        if numbers is None:
            gone = seen.keys() - trials.keys() if len(seen) else ()
            found = [(number, one) for number, one in trials.items() if seen.get(number) is not one]
            self._seen = dict(trials)
            changed: list[tuple[int, Trial | None]] = [*found, *((number, None) for number in gone)]
        elif not numbers:
            return ()
        else:
            changed = [
                (number, one)
                for number in dict.fromkeys(numbers)
                if seen.get(number) is not (one := trials.get(number))
            ]
            for number, one in changed:
                if one is not None:
                    seen[number] = one
                else:
                    del seen[number]
        self._log, self._end = (trials, trials.end) if isinstance(trials, TrialMap) else (None, 0)
        return changed
