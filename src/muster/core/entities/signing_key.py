"""The keys that sign statements: public halves. The private half of the one in use is a secret of the store."""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from muster.core.entities.base import EntityType, from_fields
from muster.core.payload import Payload, payload

if TYPE_CHECKING:
    from muster.core.event import Event
    from muster.core.state_data import Changes, State

PRIVATE: Final = "signing-key/"  # begins the name of the secret with the private half; it belongs to no project


@dataclass(frozen=True, slots=True)
class SigningKey:
    id: str  # SHA-256 of the public key
    public: str  # its 32 bytes, base64
    created_at: float
    retired_at: float | None = None  # what it signed until then stays good

    @property
    def raw(self) -> bytes:
        return base64.b64decode(self.public)


SIGNING_KEYS = EntityType("signing_key", from_fields(SigningKey))


def key_in_use(state: State) -> SigningKey | None:
    return next((one for one in SIGNING_KEYS.all(state).values() if one.retired_at is None), None)


@payload("signing_key.made")
class SigningKeyMade(Payload):
    """A key for signing statements was made; the one before it is retired, and its public half stays."""

    id: str
    public: str

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        for name, old in list(SIGNING_KEYS.all(state).items()):
            if old.retired_at is None:
                SIGNING_KEYS.put(state, name, replace(old, retired_at=event.time), changes)
        SIGNING_KEYS.put(state, self.id, SigningKey(self.id, self.public, event.time), changes)
