"""The initial state of a new installation: a project, a queue, and the first administrator's token."""

from __future__ import annotations

import hashlib
import secrets

from muster.api.words import Role
from muster.core.entities.project import ProjectSet
from muster.core.entities.queue import QueueSet
from muster.core.entities.token import TokenCreated
from muster.core.event import SYSTEM, Event
from muster.core.state import State

DEFAULT = "default"


def first_events(state: State, now: float) -> list[Event]:
    """Events that create the default project and queue if they are missing."""
    events = []
    if DEFAULT not in state.projects:
        events.append(Event(ProjectSet(DEFAULT, "the first project"), now, SYSTEM, DEFAULT))
    if DEFAULT not in state.queues:
        events.append(Event(QueueSet(DEFAULT), now, SYSTEM, DEFAULT))
    return events


def new_token() -> tuple[str, str, str]:
    """The token's id, the token itself, which the user sees once, and the digest that is stored."""
    identity, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
    return identity, f"mst_{identity}_{secret}", digest(secret)


def digest(secret: str) -> str:
    """A plain hash is enough: the secret is 256 random bits, not a password."""
    return hashlib.sha256(secret.encode()).hexdigest()


def token_event(
    identity: str,
    name: str,
    user: str,
    digest_: str,
    role: Role,
    superuser: bool,
    expires_at: float | None,
    actor: str,
    now: float,
    finance: bool = False,
) -> Event:
    return Event(TokenCreated(identity, name, user, digest_, role, superuser, expires_at, finance), now, actor)
