"""The entities of the state: nodes, pools, queues, projects and tokens."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from muster.api.words import ROLES as ROLES
from muster.api.words import Health as Health
from muster.api.words import NodeRole as NodeRole
from muster.api.words import Role as Role
from muster.core.event import SYSTEM
from muster.core.resources import WHOLE, Resources
from muster.core.seat import Seat

# A `slot` is a place in the queue of an engine that chooses the machines itself; a `machine` is one of its machines.
ENGINE = "engine"  # the value of `Node.by` when the engine found the node unhealthy; it may find it healthy again
# Names of Muster itself in the log and in records. No user may have such a name, in any case.
RESERVED_USERS: Final = frozenset({SYSTEM, ENGINE, "system"})


@dataclass(slots=True)
class Node:
    name: str
    pool: str
    total: Resources
    labels: dict[str, str] = field(default_factory=dict)
    health: Health = "healthy"
    why: str = ""  # why the health is not healthy
    role: NodeRole = "node"
    by: str = ""  # who set its health: ENGINE or a user
    free: Resources = field(default_factory=Resources)
    free_devices: int = 0  # bit i is set when accelerator i is completely free
    parts: dict[int, int] = field(default_factory=dict)  # shared accelerators → thousandths left of each
    jobs: set[str] = field(default_factory=set)

    def clear(self) -> None:
        """Sets everything free, as if no job held anything here."""
        self.free, self.free_devices = self.total, (1 << self.total.accelerators) - 1
        self.parts, self.jobs = {}, set()

    def take(self, seat: Seat, ask: Resources) -> None:
        if seat.share < WHOLE:
            ask = replace(ask, accelerators=self._take_part(seat.devices[0], seat.share))
        else:
            self.free_devices &= ~_mask(seat.devices)
        self.free = self.free - ask

    def give(self, seat: Seat, ask: Resources) -> None:
        if seat.share < WHOLE:
            ask = replace(ask, accelerators=self._give_part(seat.devices[0], seat.share))
        else:
            self.free_devices |= _mask(seat.devices)
        self.free = self.free + ask

    def _take_part(self, device: int, share: int) -> int:
        """The number of whole accelerators that this takes: 1 for the first part of an accelerator, else 0."""
        fresh = device not in self.parts
        self.parts[device] = self.parts.get(device, WHOLE) - share
        self.free_devices &= ~(1 << device)
        return int(fresh)

    def _give_part(self, device: int, share: int) -> int:
        left = self.parts.get(device, 0) + share
        if left < WHOLE:
            self.parts[device] = left
            return 0
        self.parts.pop(device, None)
        self.free_devices |= 1 << device
        return 1

    def to_doc(self) -> dict[str, Any]:
        """What is stored. What is free follows from the jobs."""
        return {
            "name": self.name,
            "pool": self.pool,
            "total": asdict(self.total),
            "labels": self.labels,
            "health": self.health,
            "why": self.why,
            "role": self.role,
            "by": self.by,
        }

    @classmethod
    def from_doc(cls, doc: dict[str, Any]) -> Node:
        total = Resources(**doc["total"])
        everything = (1 << total.accelerators) - 1
        return cls(**{**doc, "total": total}, free=total, free_devices=everything)


@dataclass(frozen=True, slots=True)
class Pool:
    name: str
    engine: str = "local"
    delegated: bool = False  # the engine chooses the machines: Muster decides which job is handed over, and when
    accelerator: str = ""
    spot: bool = False
    away: str = ""  # why its engine can't be reached; nothing is started there meanwhile
    machines: int = 0  # of a delegated pool, which has more slots than machines; 0: not known


@dataclass(frozen=True, slots=True)
class Queue:
    name: str
    project: str = "default"
    min_priority: int = 0
    max_priority: int = 100


@dataclass(frozen=True, slots=True)
class Project:
    name: str
    description: str = ""
    members: dict[str, Role] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token as it is stored: the digest of a random secret, never the secret."""

    id: str
    name: str
    user: str
    digest: str
    role: Role = "admin"  # the highest role that it allows, whatever the role of its user
    superuser: bool = False  # admin of every project, limited by `role`
    created_at: float = 0.0
    expires_at: float | None = None
    revoked_at: float | None = None


def _mask(devices: tuple[int, ...]) -> int:
    return sum(1 << device for device in devices)


def at_least(role: Role | None, needed: Role) -> bool:
    """Whether `role` allows everything that `needed` allows."""
    return role is not None and ROLES.index(role) >= ROLES.index(needed)


def lower(first: Role, second: Role) -> Role:
    """The lower of two roles."""
    return min(first, second, key=ROLES.index)


def reserved(user: str) -> bool:
    return user.casefold() in RESERVED_USERS


def within(token: Token, other: Token) -> bool:
    """Whether a token allows no more than the other one does."""
    return at_least(other.role, token.role) and (other.superuser or not token.superuser)
