"""Higher priority first; waiting makes up for it in time, so that low priority is slow, not dead."""

from __future__ import annotations

from collections.abc import Hashable

from muster.core.history import History
from muster.core.job import Job
from muster.core.rules import QueueRules, Rules
from muster.sched.order import Key, Standing, priority_now

CLASS = 25.0  # points from one named priority to the next, for which `ageing` seconds make up


class Priority:
    name = "priority"
    words = "higher priority first"
    values = True
    learns = False

    def standing(self, job: Job, rules: Rules, queue: QueueRules, now: float) -> Standing:
        priority, until = priority_now(job, queue, now)
        if queue.ageing is None:
            return Standing(priority, (-priority, job.number), until)
        # Everyone ages alike, so who stands before whom never changes: the time at which it would have had to be
        # submitted without any priority to stand where it does.
        return Standing(priority, (job.submitted_at - priority * queue.ageing / CLASS, job.number), until)

    def rank(self, band: Hashable, key: Key, history: History) -> Key:
        return key

    def worth(self, band: Hashable, history: History) -> float:
        assert isinstance(band, float)
        # Any number of jobs of a lower priority together are worth less: ten points are a thousand times as much.
        return float(10.0 ** (band * 0.3))
