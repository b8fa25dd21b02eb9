"""A bearer token, and the names of Muster itself that no user of a token may have."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from muster.api.words import Role
from muster.core.entities.base import EntityType, from_fields
from muster.core.entities.node import ENGINE
from muster.core.entities.project import at_least
from muster.core.event import SYSTEM
from muster.core.payload import Payload, payload

if TYPE_CHECKING:
    from muster.core.event import Event
    from muster.core.state_data import Changes, State

# Names of Muster itself in the log and in records. No user may have such a name, in any case.
RESERVED_USERS: Final = frozenset({SYSTEM, ENGINE, "system"})


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token as it is stored: the digest of a random secret, never the secret."""

    id: str
    name: str
    user: str
    digest: str
    role: Role = "admin"  # the highest role that it allows, whatever the role of its user
    superuser: bool = False  # admin of every project, limited by `role`
    finance: bool = False  # may read the costs of all projects, and nothing else
    created_at: float = 0.0
    expires_at: float | None = None
    revoked_at: float | None = None


TOKENS = EntityType("token", from_fields(Token), place=lambda state: state.tokens)


def within(token: Token, other: Token) -> bool:
    """Whether a token allows no more than the other one does."""
    seen = other.superuser or (not token.superuser and (other.finance or not token.finance))
    return seen and at_least(other.role, token.role)


def reserved(user: str) -> bool:
    return user.casefold() in RESERVED_USERS


@payload("token.created")
class TokenCreated(Payload):
    """A token was made for a user. The digest is not shown in listings of events."""

    id: str
    name: str
    user: str
    digest: str
    role: Role = "admin"
    superuser: bool = False
    expires_at: float | None = None
    finance: bool = False

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        TOKENS.put(state, self.id, Token(**self.to_doc(), created_at=event.time), changes)


@payload("token.revoked")
class TokenRevoked(Payload):
    """A token is not valid any more."""

    id: str

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        TOKENS.put(state, self.id, replace(state.tokens[self.id], revoked_at=event.time), changes)
