"""A simulation whose server is killed at chosen commits, and started again from what its store has.

What is outside of the server goes on: gangs, their reports and checkpoints, and people, who ask again. A restart takes
no time, so that what follows can be compared with a simulation in which nothing was killed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from muster.core.event import Event
from muster.sim.model import Result
from muster.sim.run import Simulation
from muster.store.base import Proposal
from muster.store.direct import SerialCommit

# `before` anything is durable, or `after`: it is, and nobody has been told.
When = Literal["before", "after"]


class Killed(BaseException):
    """The server is gone. No handler of errors catches this."""


class KillingCommit(SerialCommit):
    """The commits of the server. `count`: so far, those that write nothing and those of earlier servers too."""

    def __init__(self, simulation: Simulation, kills: Mapping[int, When]) -> None:
        """`kills`: by the number of a commit, from 1 on."""
        super().__init__(simulation.store, simulation.committed)
        self._kills = kills
        self.count = self.killed = 0

    def each(self, proposals: Sequence[Proposal]) -> list[list[Event] | Exception]:
        self.count += 1
        when = self._kills.get(self.count)
        if when is None:
            return super().each(proposals)
        if when == "after":
            self._store.transact(proposals)
        self.killed += 1
        raise Killed


def run_killed(simulation: Simulation, kills: Mapping[int, When]) -> tuple[Result, KillingCommit]:
    """Runs it to its end. Its store must keep the log."""
    commit = KillingCommit(simulation, kills)
    simulation.open()
    dead = True  # the first server begins like all others
    while True:
        try:
            if dead:
                simulation.restart(commit)
                dead = False
            simulation.settle()
            if not simulation.step():
                return simulation.result(), commit
        except Killed:
            dead = True
