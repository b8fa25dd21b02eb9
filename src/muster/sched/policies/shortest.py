"""Higher priority first, then the shortest expected run time. Running jobs are not preempted.

A trial takes as long as all trials that its study has yet to run, one after the other.
"""

from __future__ import annotations

from collections.abc import Hashable

from muster.core.history import History
from muster.core.job import Job
from muster.core.rules import QueueRules, Rules
from muster.sched.order import Key, Standing, expected, priority_now


class Shortest:
    name = "shortest"
    description = "higher priority first, then the shortest expected run time"
    values = False
    learns = False

    def standing(self, job: Job, rules: Rules, queue: QueueRules, now: float) -> Standing:
        priority, until = priority_now(job, queue, now)
        return Standing(None, (-priority, expected(job, rules) * job.study_left, job.number), until)

    def rank(self, band: Hashable, key: Key, history: History) -> Key:
        return key

    def value(self, band: Hashable, history: History) -> float:
        return 0.0
