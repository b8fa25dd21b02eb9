"""Node failures and spot interruptions as a Poisson process from a seed: which nodes are lost, and when."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import inf
from random import Random
from typing import Final

from muster.engines.base import NodeInfo
from muster.sim.model import Costs

_DAY: Final = 86_400.0


class Faults:
    """Every node fails at its own rate, all together at the sum of the rates. A node that is away can't fail again."""

    def __init__(self, nodes: Sequence[NodeInfo], spot: frozenset[str], costs: Costs, start: float) -> None:
        self._random = Random(costs.seed)
        self._repair = costs.repair
        steady = [node for node in nodes if node.pool not in spot]
        shaky = [node for node in nodes if node.pool in spot]
        self._groups = (  # nodes, and failures per second of all of them together
            (steady, len(steady) * costs.node_failures / _DAY),
            (shaky, len(shaky) * (costs.node_failures + costs.spot_interruptions) / _DAY),
        )
        self._rate = sum(rate for _, rate in self._groups)
        self.next_failure = start + self._random.expovariate(self._rate) if self._rate else inf
        self.next_repair = inf
        self._away: dict[str, NodeInfo] = {}
        self._back: deque[tuple[float, str]] = deque()

    def repaired(self, now: float) -> list[NodeInfo]:
        """Nodes whose repair is finished by now."""
        found = []
        while self._back and self._back[0][0] <= now:
            found.append(self._away.pop(self._back.popleft()[1]))
        self._look_ahead()
        return found

    def failed(self, now: float) -> list[NodeInfo]:
        """Nodes that have failed by now."""
        found = []
        while self.next_failure <= now:
            node = self._choose()
            if node.name not in self._away:
                self._away[node.name] = node
                self._back.append((self.next_failure + self._repair, node.name))
                found.append(node)
            self.next_failure += self._random.expovariate(self._rate)
        self._look_ahead()
        return found

    def _look_ahead(self) -> None:
        self.next_repair = self._back[0][0] if self._back else inf

    def _choose(self) -> NodeInfo:
        (steady, rate), (shaky, _) = self._groups
        group = steady if self._random.random() * self._rate < rate else shaky
        return group[self._random.randrange(len(group))]
