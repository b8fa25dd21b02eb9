"""Resources of a node or request of a worker, with arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WHOLE: Final = 1000  # thousandths of an accelerator


@dataclass(frozen=True, slots=True)
class Resources:
    """CPUs in thousandths, memory in bytes, and a count of one kind of accelerator. A node has at most one kind.

    A worker that needs a part of one accelerator requests one with a `share` under 1000. For the free resources of a
    node, `accelerators` counts the whole ones; the node itself tracks what is left of the shared ones.
    """

    milli_cpus: int = 0
    memory: int = 0
    accelerators: int = 0
    accelerator: str = ""  # "": none
    share: int = WHOLE  # thousandths of each accelerator
    accelerator_memory: int = 0  # bytes of each; 0: no requirement, or not known

    def __add__(self, other: Resources) -> Resources:
        return Resources(
            self.milli_cpus + other.milli_cpus,
            self.memory + other.memory,
            self.accelerators + other.accelerators,
            self.accelerator or other.accelerator,
            self.share,
            self.accelerator_memory,
        )

    def __sub__(self, other: Resources) -> Resources:
        return Resources(
            self.milli_cpus - other.milli_cpus,
            self.memory - other.memory,
            self.accelerators - other.accelerators,
            self.accelerator,
            self.share,
            self.accelerator_memory,
        )

    def __mul__(self, count: int) -> Resources:
        return Resources(
            self.milli_cpus * count,
            self.memory * count,
            self.accelerators * count,
            self.accelerator,
            self.share,
            self.accelerator_memory,
        )

    @property
    def weight(self) -> float:
        """The number of accelerators; a part of one counts as a fraction."""
        return self.accelerators * self.share / WHOLE

    def holds(self, ask: Resources) -> bool:
        """Whether a worker with this request fits here. `GPU` requests any kind."""
        return (
            self.milli_cpus >= ask.milli_cpus
            and self.memory >= ask.memory
            and self.accelerators >= ask.accelerators
            and (not ask.accelerators or self.suits(ask))
        )

    def suits(self, ask: Resources) -> bool:
        """Whether the accelerators here have the requested kind and memory."""
        return ask.accelerator in ("GPU", self.accelerator) and self.accelerator_memory >= ask.accelerator_memory

    def lacks(self, ask: Resources) -> list[str]:
        """What is missing for `ask`, as texts for people; empty when it fits."""
        words = []
        if ask.accelerators and ask.accelerator not in ("GPU", self.accelerator):
            words.append(f"no {ask.accelerator} (it has {self.accelerator or 'no accelerators'})")
        elif ask.accelerators and self.accelerator_memory < ask.accelerator_memory:
            words.append(f"{ask.accelerator_memory / 1e9:g} GB on each accelerator wanted, {self._accelerator_size()}")
        elif self.accelerators < ask.accelerators:
            words.append(f"{ask.accelerators} {ask.accelerator} wanted, {self.accelerators} there")
        if self.milli_cpus < ask.milli_cpus:
            words.append(f"{ask.milli_cpus / 1000:g} CPUs wanted, {self.milli_cpus / 1000:g} there")
        if self.memory < ask.memory:
            words.append(f"{ask.memory / 1e9:.1f} GB memory wanted, {self.memory / 1e9:.1f} there")
        return words

    def __str__(self) -> str:
        words = [f"{self.accelerator}:{self.weight:g}"] if self.accelerators else []
        words.append(f"{self.milli_cpus / 1000:g} CPU{'' if self.milli_cpus == 1000 else 's'}")
        if self.memory:
            words.append(f"{self.memory / 1e9:.1f} GB")
        return ", ".join(words)

    def _accelerator_size(self) -> str:
        return f"{self.accelerator_memory / 1e9:g} GB there" if self.accelerator_memory else "the node does not say"
