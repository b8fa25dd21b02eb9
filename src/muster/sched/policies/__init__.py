"""The policies by name. To add one: a file here and a line below; `tests/contracts/test_policy.py` covers it."""

from __future__ import annotations

from muster.core.registry import Registry
from muster.core.rules import QueueRules
from muster.sched.order import Policy
from muster.sched.policies.attained import Attained
from muster.sched.policies.fifo import Fifo
from muster.sched.policies.predicted import Predicted
from muster.sched.policies.priority import Priority
from muster.sched.policies.shortest import Shortest
from muster.sched.policies.turns import Turns

POLICIES: Registry[Policy] = Registry(
    "order",
    {policy.name: policy for policy in (Predicted(), Fifo(), Priority(), Shortest(), Attained(), Turns())},
)


def policy_of(rules: QueueRules) -> Policy:
    """The policy of a queue; a queue with a time slice uses `turns`."""
    return POLICIES.get("turns" if rules.slice is not None else rules.order)
