"""FIFO: jobs start in the order of submission."""

from __future__ import annotations

from collections.abc import Hashable

from muster.core.history import History
from muster.core.job import Job
from muster.core.rules import QueueRules, Rules
from muster.sched.order import Key, Standing


class Fifo:
    name = "fifo"
    description = "first come, first served"
    values = False
    learns = False

    def standing(self, job: Job, rules: Rules, queue: QueueRules, now: float) -> Standing:
        return Standing(None, (job.number,))

    def rank(self, band: Hashable, key: Key, history: History) -> Key:
        return key

    def value(self, band: Hashable, history: History) -> float:
        return 0.0
