"""A pool: one class of hardware, made of nodes of one engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from muster.core.entities.base import EntityType, from_fields
from muster.core.payload import Payload, payload

if TYPE_CHECKING:
    from muster.core.event import Event
    from muster.core.state_data import Changes, State


@dataclass(frozen=True, slots=True)
class Pool:
    name: str
    engine: str = "local"
    delegated: bool = False  # the engine chooses the machines: Muster decides which job is handed over, and when
    accelerator: str = ""
    spot: bool = False
    away: str = ""  # why its engine can't be reached; nothing is started there meanwhile
    machines: int = 0  # of a delegated pool, which has more slots than machines; 0: not known
    usable: int | None = None  # of a delegated pool: machines that are not out of service; None: not known


POOLS = EntityType("pool", from_fields(Pool), place=lambda state: state.pools)


@payload("pool.set")
class PoolSet(Payload):
    """A pool is new or has changed: the whole record."""

    name: str
    engine: str = "local"
    delegated: bool = False
    accelerator: str = ""
    spot: bool = False
    away: str = ""
    machines: int = 0
    usable: int | None = None

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        POOLS.put(state, self.name, Pool(**self.to_doc()), changes)
        state.journal.note("entity", self.name)
