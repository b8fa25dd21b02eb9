"""Samples of the cluster over time. The interval doubles when there are too many, so their number is bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from pydantic import ValidationError

from muster.core.spec import ask
from muster.core.state import State
from muster.sched.capacity.fragment import Shape, fragmentation
from muster.sim.inventory import Specs
from muster.sim.model import Sample, TraceJob
from muster.sim.work import Work

MOST: Final = 2_000
USABLE_EVERY: Final = 10  # samples between computations of `usable`, because each looks at every node
LOOKS: Final = 500_000  # target for nodes looked at for it in total: on a large cluster it is computed less often
_SHAPES: Final = 4  # number of gang shapes that count as typical of a trace
_PARTS: Final = 20  # resolution of their relative frequencies


class Samples:
    def __init__(self, zero: float, span: float, typical: Sequence[Shape]) -> None:
        self._zero = zero  # clock time of the trace's time 0
        self._every = max(span / (MOST / 2), 1.0)
        self._typical = typical
        self._usable = 1.0
        self._count = 0
        self.due = 0.0
        self.taken: list[Sample] = []

    def take(self, now: float, work: Work, total: int, state: State) -> None:
        if self._count % max(USABLE_EVERY, MOST * len(state.nodes) // LOOKS) == 0:
            self._usable = fragmentation(state.nodes.values(), self._typical).usable
        by_queue = {name: float(held) for name, held in work.by_queue.items() if held}
        self.taken.append(Sample(now - self._zero, work.used, total, work.waiting, self._usable, by_queue))
        if len(self.taken) >= MOST:
            self.taken, self._every = self.taken[::2], self._every * 2
        self._count += 1
        self.due = now + self._every


def typical_of(trace: Iterable[TraceJob], specs: Specs) -> list[Shape]:
    """The most common gang shapes of a trace, each repeated in proportion to its frequency."""
    kinds: Counter[tuple[int, int, str, float, int]] = Counter()
    examples: dict[tuple[int, int, str, float, int], TraceJob] = {}
    for job in trace:
        if job.accelerators:
            kind = (job.nodes, job.accelerators, job.accelerator, job.cpus, job.memory)
            kinds[kind] += 1
            examples.setdefault(kind, job)
    commonest = kinds.most_common(_SHAPES)
    together = sum(count for _, count in commonest)
    found: list[Shape] = []
    for kind, count in commonest:
        try:
            shape = (ask(specs.of(examples[kind])[0]), kind[0])
        except ValidationError:
            continue  # such a job is rejected at submission
        found += [shape] * max(round(_PARTS * count / together), 1)
    return found
