"""Turns: the job that has waited longest since its last turn goes next. Used by queues with a time slice."""

from __future__ import annotations

from collections.abc import Hashable

from muster.core.history import History
from muster.core.job import Job
from muster.core.rules import QueueRules, Rules
from muster.sched.order import Key, Standing


class Turns:
    name = "turns"
    description = "in turns, who has waited longest since its last one first"
    values = False
    learns = False

    def standing(self, job: Job, rules: Rules, queue: QueueRules, now: float) -> Standing:
        return Standing(None, (job.since, job.number))

    def rank(self, band: Hashable, key: Key, history: History) -> Key:
        return key

    def value(self, band: Hashable, history: History) -> float:
        return 0.0
