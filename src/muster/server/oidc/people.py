"""Whom an account at the provider signs in as: the user that it is bound to, or the first time the one of its name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from muster.control.bootstrap import new_token, token_event
from muster.core.entities import Token, reserved
from muster.core.entities.project import ProjectMember
from muster.core.entities.provider_account import (
    PROVIDER_ACCOUNTS,
    ProviderAccount,
    ProviderAccountBound,
    account_id,
    account_of,
)
from muster.core.errors import NotAllowed
from muster.core.event import Event
from muster.core.state import State
from muster.server.oidc.provider import Doc
from muster.server.oidc.settings import OidcSettings

USER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}")


@dataclass(frozen=True, slots=True)
class Person:
    """An account at the provider that may sign in, as far as the provider's word goes."""

    issuer: str
    subject: str
    name: str | None  # None: it has none that a user can have, which matters the first time alone


def person_of(claims: Doc, settings: OidcSettings) -> Person:
    """Raises NotAllowed for an account that the settings leave out."""
    email = claims.get("email") if claims.get("email_verified") is True else None
    email = email.lower() if isinstance(email, str) else None
    if settings.domains and (email is None or email.rpartition("@")[2] not in settings.domains):
        raise NotAllowed(
            "Your account has no verified e-mail address of a domain that may sign in here.",
            "Sign in with another account, or ask an administrator of this server.",
        )
    groups = claims.get(settings.group_claim)
    held = [groups] if isinstance(groups, str) else groups if isinstance(groups, list) else []
    if settings.group and settings.group not in held:
        raise NotAllowed(
            f"Your account is not in the group {settings.group!r}, which may sign in here.",
            "Ask whoever looks after the groups of the provider.",
        )
    name = email if settings.claim == "email" else claims.get(settings.claim)
    usable = isinstance(name, str) and USER.fullmatch(name) is not None and not reserved(name)
    return Person(settings.issuer, claims["sub"], str(name) if usable else None)


def admit(state: State, person: Person, settings: OidcSettings, now: float) -> tuple[str, list[Event]]:
    """The token that the person's sessions stand for, and the events that are to be committed before. Call it within
    the commit. Raises NotAllowed."""
    identity = account_id(person.issuer, person.subject)
    bound = PROVIDER_ACCOUNTS.all(state).get(identity)
    if bound is not None:
        if not _is_member(state, bound.user):
            raise _no_member(bound.user)
        if _valid(state.tokens.get(bound.token), now):
            return bound.token, []
        return _bound(identity, person, bound.user, now)
    user, joining = _user(state, person, settings, now)
    token, events = _bound(identity, person, user, now)
    return token, [*joining, *events]


def _user(state: State, person: Person, settings: OidcSettings, now: float) -> tuple[str, Sequence[Event]]:
    """The user that the account is bound to now, and the events that make one of them."""
    name = person.name
    if name is None:
        what = "verified e-mail address" if settings.claim == "email" else f"claim {settings.claim!r}"
        raise NotAllowed(
            f"Your account has no {what} that can be a user's name here.",
            "Names have up to 100 letters, digits, `.`, `_`, `@` and `-`. Ask an administrator of this server.",
        )
    other = account_of(state, name)
    if other is not None:
        raise _taken(other)
    if _is_member(state, name):
        return name, ()
    # Who has a token already, such as an administrator without a project, is known here and let in by people alone.
    known = any(one.user == name for one in state.tokens.values())
    if not settings.new_members or settings.project not in state.projects or known:
        raise _no_member(name)
    member = ProjectMember(settings.project, name, settings.new_members)
    return name, [Event(member, now, name, settings.project)]


def _bound(identity: str, person: Person, user: str, now: float) -> tuple[str, list[Event]]:
    """Nobody ever sees the secret of the token: only sessions stand for it."""
    token, _, digest = new_token()
    made = token_event(token, "sign-in through the provider", user, digest, "admin", False, None, user, now)
    account = ProviderAccountBound(identity, person.issuer, person.subject, user, token)
    return token, [made, Event(account, now, user)]


def _is_member(state: State, user: str) -> bool:
    return any(user in project.members for project in state.projects.values())


def _valid(token: Token | None, now: float) -> bool:
    return token is not None and token.revoked_at is None and (token.expires_at is None or token.expires_at > now)


def _no_member(user: str) -> NotAllowed:
    return NotAllowed(
        f"You are {user}, who is a member of no project here.",
        f"Ask an administrator of a project, who lets you in with `muster project member PROJECT {user} member`.",
    )


def _taken(other: ProviderAccount) -> NotAllowed:
    return NotAllowed(
        f"The user {other.user} signs in with another account of the provider.",
        f"If that one is gone, an administrator of this server releases it: `muster token release {other.user}`.",
    )
