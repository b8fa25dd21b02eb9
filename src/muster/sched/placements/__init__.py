"""The placements by name. To add one: a file here and a line below; `tests/contracts/test_placement.py` covers it."""

from __future__ import annotations

from muster.core.registry import Registry
from muster.sched.place import Placement
from muster.sched.placements.balanced import Balanced
from muster.sched.placements.group import Group
from muster.sched.placements.locality import Locality
from muster.sched.placements.pack import Pack
from muster.sched.placements.spread import Spread

PLACEMENTS: Registry[Placement] = Registry(
    "placement",
    {"pack": Pack(), "spread": Spread(), "balanced": Balanced(), "group": Group(), "locality": Locality()},
)
