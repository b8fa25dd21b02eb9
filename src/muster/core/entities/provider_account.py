"""An account at the identity provider, and the user that it signs in: bound once, whatever its names become there."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from muster.core.entities.base import EntityType, from_fields
from muster.core.payload import Payload, payload

if TYPE_CHECKING:
    from muster.core.event import Event
    from muster.core.state_data import Changes, State


@dataclass(frozen=True, slots=True)
class ProviderAccount:
    id: str  # of `account_id`
    issuer: str
    subject: str  # how the provider itself names the account; it never gives that to another one
    user: str
    token: str  # id of the token that its sessions stand for
    bound_at: float


PROVIDER_ACCOUNTS = EntityType("provider_account", from_fields(ProviderAccount))


def account_id(issuer: str, subject: str) -> str:
    """A digest: subjects may be long, and differ by the case of their letters alone."""
    return hashlib.sha256(f"{issuer}\0{subject}".encode()).hexdigest()[:32]


def account_of(state: State, user: str) -> ProviderAccount | None:
    """The account that signs in as this user."""
    return next((one for one in PROVIDER_ACCOUNTS.all(state).values() if one.user == user), None)


@payload("provider_account.bound")
class ProviderAccountBound(Payload):
    """An account at the identity provider signs in as this user from now on, with sessions that stand for the token."""

    id: str
    issuer: str
    subject: str
    user: str
    token: str

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        made = ProviderAccount(self.id, self.issuer, self.subject, self.user, self.token, event.time)
        PROVIDER_ACCOUNTS.put(state, self.id, made, changes)


@payload("provider_account.released")
class ProviderAccountReleased(Payload):
    """The account signs in as nobody any more; the user may be bound to another one."""

    id: str
    user: str

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        PROVIDER_ACCOUNTS.drop(state, self.id, changes)
