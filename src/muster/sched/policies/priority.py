"""Higher priority first. Waiting raises a job's rank, so a low-priority job is slow but does not starve."""

from __future__ import annotations

from collections.abc import Hashable

from muster.core.history import History
from muster.core.job import Job
from muster.core.rules import QueueRules, Rules
from muster.sched.order import Key, Standing, priority_now

CLASS = 25.0  # points between two named priorities; a wait of `ageing` seconds makes up for them


class Priority:
    name = "priority"
    description = "higher priority first"
    values = True
    learns = False

    def standing(self, job: Job, rules: Rules, queue: QueueRules, now: float) -> Standing:
        priority, until = priority_now(job, queue, now)
        if queue.ageing is None:
            return Standing(priority, (-priority, job.number), until)
        # All jobs age at the same rate, so their order never changes. The key is the time at which a job of priority 0
        # would have been submitted to have the same rank.
        return Standing(priority, (job.submitted_at - priority * queue.ageing / CLASS, job.number), until)

    def rank(self, band: Hashable, key: Key, history: History) -> Key:
        return key

    def value(self, band: Hashable, history: History) -> float:
        assert isinstance(band, float)
        # Ten points of priority multiply the value by 1000: many jobs of a lower priority together still have less.
        return float(10.0 ** (band * 0.3))
