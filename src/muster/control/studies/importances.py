"""The importance of the parameters of studies, remembered: it takes seconds to compute, and changes slowly."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from muster.tune.importance import importance
from muster.tune.space import Space
from muster.tune.view import StudyView

MANY: Final = 1000  # trials, from which on a few more are not computed anew
_MORE: Final = 0.02  # how many that are, as a share
_KEPT: Final = 100  # studies


@dataclass
class _Known:
    lock: Lock = field(default_factory=Lock)  # two who ask at once wait for one answer
    space: Space | None = None
    changes: int = -1
    trials: int = 0
    shares: Mapping[str, float] = field(default_factory=dict)

    def holds(self, view: StudyView) -> bool:
        if self.space != view.spec.space:
            return False
        if self.changes == view.changes:
            return True
        return len(view.trials) >= MANY and abs(len(view.trials) - self.trials) < _MORE * self.trials


class Importances:
    """Of a study that goes on, the importance is that of at least 98 of 100 of its trials."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._lock = Lock()

    def of(self, view: StudyView) -> Mapping[str, float]:
        with self._lock:
            known = self._known.setdefault(view.id, _Known())
            self._known.move_to_end(view.id)
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        with known.lock:
            if not known.holds(view):
                known.shares = importance(view)
                known.space, known.changes, known.trials = view.spec.space, view.changes, len(view.trials)
            return known.shares
