"""The policies by name. A new one: a file here, a line below, and `tests/contracts/test_policy.py` covers it."""

from __future__ import annotations

from muster.core.registry import Registry
from muster.sched.order import Policy
from muster.sched.policies.fifo import Fifo

POLICIES: Registry[Policy] = Registry("policy", {"fifo": Fifo()})
