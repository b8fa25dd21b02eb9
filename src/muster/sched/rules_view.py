"""The rules in force as the board uses them: facts about all of them, and each queue's rules with its policy."""

from __future__ import annotations

from dataclasses import dataclass, field

from muster.core.rules import QueueRules, Rules
from muster.sched.order import Policy
from muster.sched.policies import policy_of


@dataclass(slots=True)
class RulesView:
    rules: Rules = field(default_factory=Rules)
    fair: bool = False  # whether usage decides the order between queues
    by_user: bool = False  # whether users of a queue are distinguished
    ordered: bool = False  # whether any queue is served in its order (backfill other than `greedy`)
    slices: bool = False  # whether any queue has a time slice
    reserves: bool = False  # whether any queue makes reservations
    learns: bool = False  # whether finished jobs change the order of any queue
    limited: bool = False  # whether limits on running jobs exist: an end may let a job start that lacks no nodes
    _queues: dict[str, tuple[QueueRules, Policy]] = field(default_factory=dict)

    @classmethod
    def of(cls, rules: Rules) -> RulesView:
        every = [rules.defaults, *rules.queues.values()]
        own = any(rule.max_per_user or rule.max_accelerators_per_user is not None for rule in every)
        return cls(
            rules=rules,
            fair=rules.between == "fair",
            by_user=rules.between == "fair" or own,
            ordered=any(rule.backfill != "greedy" for rule in every),
            slices=any(rule.slice is not None for rule in every),
            reserves=any(rule.backfill in ("easy", "conservative") for rule in every),
            learns=any(policy_of(rule).learns for rule in every),
            limited=own or any(rule.max_running for rule in every) or bool(rules.projects),
        )

    def queue(self, name: str) -> tuple[QueueRules, Policy]:
        found = self._queues.get(name)
        if found is None:
            rules = self.rules.queue(name)
            found = self._queues[name] = (rules, policy_of(rules))
        return found
