"""Profiler traces of a few steps, on request, while a run continues.

Request a trace by SIGUSR2 to any rank, or by an empty file `profile` in the run's folder, which is then removed.
All ranks then trace the same steps and each writes `trace-step-000000123-rank-0.json.gz` into the run's folder, for
chrome://tracing or ui.perfetto.dev. Without a request it costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity

from muster import runtime
from muster.train.settings import bounded


@dataclass(frozen=True, slots=True)
class Profile:
    """The section `profile`."""

    steps: int = bounded(3, low=1)  # in one trace
    at: int | None = bounded(None, low=1)  # trace from this step on without a request; for benchmarks
    stacks: bool = False  # include the Python stack of each operation: larger and slower


@dataclass(slots=True)
class Tracer:
    """Starts and ends traces between steps."""

    settings: Profile
    folder: Path
    device: torch.device
    rank: int
    _running: Any = field(init=False, default=None)
    _from: int = field(init=False, default=0)

    def before(self, step: int, asked: bool) -> None:
        """Called before step `step`, counted from 1: starts a requested trace, unless one is in progress."""
        if self._running is not None or not (asked or step == self.settings.at):
            return
        gpu = [ProfilerActivity.CUDA] if self.device.type == "cuda" else []
        self._running = torch.profiler.profile(
            activities=[ProfilerActivity.CPU, *gpu], with_stack=self.settings.stacks, acc_events=True
        )
        self._running.start()
        self._from = step

    def after(self, step: int) -> Path | None:
        """Called after step `step`: the path of the trace, if this was its last step."""
        if self._running is None or step - self._from + 1 < self.settings.steps:
            return None
        return self.close()

    def close(self) -> Path | None:
        """Ends the trace in progress, if any, and writes it. A full disk loses the trace and doesn't end the run."""
        running, self._running = self._running, None
        if running is None:
            return None
        path = self.folder / f"trace-step-{self._from:09d}-rank-{self.rank}.json.gz"
        try:
            running.stop()
            self.folder.mkdir(parents=True, exist_ok=True)
            running.export_chrome_trace(str(path))
        except (OSError, RuntimeError) as error:
            runtime.note(f"the profiler's trace of step {self._from} could not be written to {path}: {error}")
            return None
        runtime.note(f"profiler trace from step {self._from} on: {path}")
        return path
