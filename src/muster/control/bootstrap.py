"""The initial state of a new installation: a project, a queue, and the first administrator's token."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import asdict

from muster.core.entities import Project, Queue
from muster.core.event import SYSTEM, Event
from muster.core.state import State

DEFAULT = "default"


def first_events(state: State, now: float) -> list[Event]:
    """Events that create the default project and queue if they are missing."""
    events = []
    if DEFAULT not in state.projects:
        events.append(Event("project.set", now, SYSTEM, DEFAULT, data=asdict(Project(DEFAULT, "the first project"))))
    if DEFAULT not in state.queues:
        events.append(Event("queue.set", now, SYSTEM, DEFAULT, data=asdict(Queue(DEFAULT))))
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
    role: str,
    superuser: bool,
    expires_at: float | None,
    actor: str,
    now: float,
) -> Event:
    data = {
        "id": identity,
        "name": name,
        "user": user,
        "digest": digest_,
        "role": role,
        "superuser": superuser,
        "expires_at": expires_at,
    }
    return Event("token.created", now, actor, data=data)
