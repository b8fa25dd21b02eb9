"""The seconds from the start of a training to its first step, by part: imports, weights, compile, first step."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class Startup:
    """Parts in seconds by name. `imports` is known only to `python -m muster.train`, and counts as before the start."""

    parts: dict[str, float] = field(default_factory=dict)
    _began: float = field(default_factory=time.perf_counter)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Adds the time of the block to a part."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.parts[name] = self.parts.get(name, 0.0) + time.perf_counter() - began

    def stepped(self) -> float:
        """The first step is complete: the seconds until then, imports included."""
        whole = time.perf_counter() - self._began + self.parts.get("imports", 0.0)
        self.parts["first_step"] = whole
        return whole
