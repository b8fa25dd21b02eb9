"""What each project has used of each pool since the first event. Unlike an account, it never decays.

All amounts are whole numbers, so that sums are exact and the same in any order. An attempt counts from its plan to its
end, with the seats that it had; a gang that is resized is a new attempt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from muster.core.resources import Resources

_MILLI: Final = 1000
_MICRO: Final = 1_000_000


@dataclass(slots=True)
class Use:
    """Nodes, accelerators and CPUs, each multiplied by the time for which they were held."""

    node_ms: int = 0  # nodes × milliseconds
    accelerator_us: int = 0  # thousandths of an accelerator × milliseconds
    cpu_us: int = 0  # thousandths of a CPU × milliseconds

    @property
    def node_seconds(self) -> float:
        return self.node_ms / _MILLI

    @property
    def accelerator_seconds(self) -> float:
        return self.accelerator_us / _MICRO

    @property
    def cpu_seconds(self) -> float:
        return self.cpu_us / _MICRO

    def hold(self, ask: Resources, workers: int, since: float, until: float) -> None:
        """Adds the use of this many workers between two times."""
        held = workers * (round(until * _MILLI) - round(since * _MILLI))
        self.node_ms += held
        self.cpu_us += held * ask.milli_cpus
        if ask.accelerators:
            self.accelerator_us += held * ask.accelerators * ask.share

    def add(self, other: Use) -> None:
        self.node_ms += other.node_ms
        self.accelerator_us += other.accelerator_us
        self.cpu_us += other.cpu_us


@dataclass(slots=True)
class Ledger:
    """The use of one pool by one project, of attempts that have ended."""

    project: str
    pool: str  # "" if the node of an attempt had left before its plan
    use: Use


def ledger_name(project: str, pool: str) -> str:
    return f"{project}/{pool}"
