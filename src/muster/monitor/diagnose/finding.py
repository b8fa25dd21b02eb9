"""One cause of a run's trouble, with the numbers that show it and what to change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from muster.monitor.diagnose.evidence import Evidence

SAID: Final = 0.6  # confidence below which a finding is not told

Cause = Literal[
    "loader", "synchronisation", "small_batch", "communication", "slow_rank", "precision", "thermal", "saving",
    "divergence", "hang", "waiting",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Finding:
    cause: Cause
    confidence: float  # 0..1
    share: float  # of the time that it explains, 0..1; 1 where the run's result is at stake
    text: str  # a sentence
    evidence: tuple[str, ...]  # lines with numbers
    change: tuple[str, ...]  # what to change
    commands: tuple[str, ...] = ()  # to type


Judge = Callable[[Evidence], Finding | None]
