"""The server's keys for signing statements: made at the first start, rotated by an administrator.

The private half is sealed with the server's key file and kept in the store, so that all servers of one store sign with
the same key. A retired key's private half is removed.
"""

from __future__ import annotations

import base64
import secrets

from muster.control.secrets import Keyring
from muster.core.entities.signing_key import PRIVATE, SIGNING_KEYS, SigningKeyMade, key_in_use
from muster.core.envelope import key_id, public_of, seal
from muster.core.errors import ConfigError
from muster.core.event import Event
from muster.core.state import State
from muster.store.base import Entry, Proposal, SecretWrite, Store


class Signer:
    """Signs with the key in use."""

    def __init__(self, store: Store, keyring: Keyring) -> None:
        self._store, self._keyring = store, keyring
        self._known: tuple[str, bytes] = ("", b"")  # id and private half of the key in use

    @property
    def installation(self) -> str:
        return self._keyring.installation

    @property
    def key(self) -> str:
        """The id of the key in use."""
        found = key_in_use(self._store.state())
        if found is None:
            raise ConfigError("There is no key for signing yet.", "It is made when a server begins to lead.")
        return found.id

    def seal(self, payload: bytes, payload_type: str, key: str) -> bytes:
        """The signed envelope. `key`: the id of the key, which the payload names."""
        return seal(payload, payload_type, self._private(key))

    def _private(self, key: str) -> bytes:
        if self._known[0] != key:
            cipher = self._store.secret("", f"{PRIVATE}{key}")
            if cipher is None:
                raise ConfigError(f"The key {key[:16]} has no private half any more.", "It was rotated: try again.")
            self._known = (key, base64.b64decode(self._keyring.unseal(cipher)))
        return self._known[1]


def first_key(keyring: Keyring, actor: str, now: float) -> Proposal:
    """Makes a key if there is none."""
    entry = _new_key(keyring, actor, now)
    return lambda state: Entry() if key_in_use(state) is not None else entry(state)


def rotate(keyring: Keyring, actor: str, now: float) -> Proposal:
    """Makes a new key, and removes the private half of the one before it."""
    return _new_key(keyring, actor, now)


def public_keys(state: State) -> dict[str, bytes]:
    """All keys that ever signed here, by id."""
    return {name: one.raw for name, one in SIGNING_KEYS.all(state).items()}


def _new_key(keyring: Keyring, actor: str, now: float) -> Proposal:
    private = secrets.token_bytes(32)
    public = public_of(private)
    name, cipher = key_id(public), keyring.seal(base64.b64encode(private).decode())

    def propose(state: State) -> Entry:
        old = key_in_use(state)
        writes = [SecretWrite("", f"{PRIVATE}{name}", cipher)]
        writes += [SecretWrite("", f"{PRIVATE}{old.id}", None)] if old is not None else []
        made = SigningKeyMade(name, base64.b64encode(public).decode())
        return Entry([Event(made, max(now, state.time), actor)], secrets=writes)

    return propose
