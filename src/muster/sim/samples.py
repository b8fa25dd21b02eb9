"""Looks at the cluster now and then: rarer the longer it goes on, so that their number is bounded."""

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
USABLE_EVERY: Final = 10  # samples: what is usable takes a look at every node, and is taken to hold that long
LOOKS: Final = 500_000  # at nodes, in all, that are made for it: on a large cluster it is asked less often
_SHAPES: Final = 4  # kinds of gangs that are typical of a trace
_PARTS: Final = 20  # in which they are counted


class Samples:
    def __init__(self, zero: float, span: float, typical: Sequence[Shape]) -> None:
        self._zero = zero  # on the clock, of the trace's time 0
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
    """The commonest gangs of a trace, each about as often as it is among them."""
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
            continue  # it will be refused
        found += [shape] * max(round(_PARTS * count / together), 1)
    return found
