"""What happened lately, counted from events: restarts, hangs, damaged curves, faults, and how jobs ended."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from muster.core.attempt_events import AttemptHung
from muster.core.entities.node_record import NodeFinding
from muster.core.event import Event
from muster.core.job_events import JobFailed, JobRequeued, JobSucceeded
from muster.core.record_events import RunDamaged
from muster.monitor.damage import NORMS

WINDOW: Final = 86_400.0  # seconds; older events are forgotten
KEYS_MAX: Final = 50_000
Key = tuple[str, str]  # what, and of whom


@dataclass(slots=True)
class Recent:
    _times: dict[Key, deque[float]] = field(default_factory=dict)
    _texts: dict[Key, str] = field(default_factory=dict)

    def take(self, event: Event) -> bool:
        """Takes an event; False if it is none of those that are counted."""
        data = event.data
        if isinstance(data, JobRequeued):
            self._note("restart", event.job, event.time, data.reason.message)
        elif isinstance(data, AttemptHung):
            self._note("hang", event.job, event.time, data.reason.message)
        elif isinstance(data, RunDamaged):
            kind = "not_finite" if data.kind == "not_finite" else "norm" if data.metric in NORMS else "loss"
            self._note(kind, event.job, event.time, data.message)
        elif isinstance(data, JobFailed | JobSucceeded):
            self._note("failed" if isinstance(data, JobFailed) else "succeeded", event.project, event.time, event.job)
        elif isinstance(data, NodeFinding):
            self._note("finding", data.name, event.time, data.text)
        else:
            return False
        return True

    def count(self, what: str, whose: str, since: float) -> int:
        times = self._times.get((what, whose), ())
        return sum(time >= since for time in reversed(times))

    def text(self, what: str, whose: str) -> str:
        """What the last event said."""
        return self._texts.get((what, whose), "")

    def names(self, what: str) -> list[str]:
        """Those to whom it happened."""
        return [whose for kind, whose in self._times if kind == what]

    def forget(self, now: float) -> None:
        """Drops what is older than `WINDOW`."""
        for key, times in list(self._times.items()):
            while times and times[0] < now - WINDOW:
                times.popleft()
            if not times:
                del self._times[key]
                self._texts.pop(key, None)

    def _note(self, what: str, whose: str, time: float, text: str) -> None:
        if len(self._times) >= KEYS_MAX and (what, whose) not in self._times:
            first = next(iter(self._times))
            del self._times[first]
            self._texts.pop(first, None)
        self._times.setdefault((what, whose), deque(maxlen=1000)).append(time)
        self._texts[(what, whose)] = text
