"""Watches one job: its events, its attempts and how far its steps have come, as a client sees them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from muster.api.events import EventView
from muster.client import Client, Job
from muster.core.errors import Unavailable

POLL: Final = 0.2  # seconds
AWAY: Final = 60.0  # seconds for which a server may be out of reach


class Stalled(Exception):
    """Nothing was new for a long time."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A step that was seen, and when."""

    time: float
    attempt: int
    step: int


@dataclass(slots=True)
class Watch:
    """`on_look` is called after every look; `patience` is the time without anything new after which it gives up."""

    client: Client
    job: Job
    on_look: Callable[[Watch], None] = lambda watch: None
    patience: float = 300.0  # seconds
    events: list[EventView] = field(default_factory=list)
    steps: list[Seen] = field(default_factory=list)
    saved: set[int] = field(default_factory=set)  # steps of committed checkpoints
    _after: int = 0

    @property
    def step(self) -> int:
        """The furthest step so far."""
        return max((one.step for one in self.steps), default=0)

    @property
    def step_now(self) -> int:
        """The last step that this attempt was seen at; 0 before its first."""
        last = self.steps[-1] if self.steps else None
        return last.step if last is not None and last.attempt == self.job.attempt else 0

    def look(self) -> Job:
        """Looks once. A server that is away is waited for."""
        until = time.monotonic() + AWAY
        while True:
            try:
                self.job.refresh()
                for event in self.client.events(job=self.job.id, after=self._after):
                    self._after = event["seq"]
                    self.events.append(event)
                    if event["kind"] == "checkpoint.committed":
                        self.saved.add(int(event["data"]["step"]))
                break
            except Unavailable:
                if time.monotonic() > until:
                    raise
                time.sleep(POLL)
        step = self.job.progress["step"] if self.job.progress else None
        if isinstance(step, int) and self.job.phase == "running":
            seen = Seen(time.time(), self.job.attempt, step)
            if not self.steps or (self.steps[-1].attempt, self.steps[-1].step) != (seen.attempt, seen.step):
                self.steps.append(seen)
        self.on_look(self)
        return self.job

    def until(self, check: Callable[[Watch], bool], seconds: float | None = None) -> bool:
        """Looks until the check is true, or the job is over. Raises Stalled if nothing is new for long."""
        began = moved = time.monotonic()
        known = (-1, -1)
        while True:
            self.look()
            if check(self):
                return True
            if self.job.final or (seconds is not None and time.monotonic() - began > seconds):
                return False
            now = (len(self.events), len(self.steps))
            moved = time.monotonic() if now != known else moved
            known = now
            if time.monotonic() - moved > self.patience:
                reason = self.job.reason.message if self.job.reason else self.job.phase
                raise Stalled(f"nothing was new for {self.patience:.0f} s; it was {self.job.phase}: {reason}")
            time.sleep(POLL)
