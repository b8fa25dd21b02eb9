"""Whom an account at the provider signs in as: the user that it is bound to, or the first time the one of its name."""

from __future__ import annotations

import re
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
from muster.server.oidc.group_roles import role_changes
from muster.server.oidc.provider import Doc
from muster.server.oidc.settings import OidcSettings

USER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}")


@dataclass(frozen=True, slots=True)
class Person:
    """An account at the provider that may sign in, as far as the provider's word goes."""

    issuer: str
    subject: str
    name: str | None  # None: it has none that a user can have, which matters the first time alone
    groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Admission:
    """What is to be committed for a sign-in, also of somebody whose groups let him in no more."""

    token: str  # that the person's sessions stand for; empty if refused
    events: list[Event]
    refused: NotAllowed | None = None


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
    listed = [groups] if isinstance(groups, str) else groups if isinstance(groups, list) else []
    held = frozenset(one for one in listed if isinstance(one, str))
    if settings.group and settings.group not in held:
        raise NotAllowed(
            f"Your account is not in the group {settings.group!r}, which may sign in here.",
            "Ask whoever looks after the groups of the provider.",
        )
    name = email if settings.claim == "email" else claims.get(settings.claim)
    usable = isinstance(name, str) and USER.fullmatch(name) is not None and not reserved(name)
    return Person(settings.issuer, claims["sub"], str(name) if usable else None, held)


def admit(state: State, person: Person, settings: OidcSettings, now: float) -> Admission:
    """Call it within the commit of its events. Raises NotAllowed for an account that is no user's."""
    bound = PROVIDER_ACCOUNTS.all(state).get(account_id(person.issuer, person.subject))
    user = bound.user if bound is not None else _user(state, person, settings)
    changes = role_changes(state, user, person.groups, settings.roles, now)
    if bound is None and not _is_member(state, user):
        # Who has a token already, such as an administrator without a project, is known here and let in by people alone.
        if any(one.user == user for one in state.tokens.values()):
            raise _no_member(user)
        if not changes and settings.new_members and settings.project in state.projects:
            changes = [Event(ProjectMember(settings.project, user, settings.new_members), now, user, settings.project)]
    if not _is_member_after(state, user, changes):
        return Admission("", changes, _no_member(user))
    if bound is not None and _valid(state.tokens.get(bound.token), now):
        return Admission(bound.token, changes)
    token, events = _bound(account_id(person.issuer, person.subject), person, user, now)
    return Admission(token, [*changes, *events])


def _user(state: State, person: Person, settings: OidcSettings) -> str:
    """The user that the account is bound to now."""
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
    return name


def _bound(identity: str, person: Person, user: str, now: float) -> tuple[str, list[Event]]:
    """Nobody ever sees the secret of the token: only sessions stand for it."""
    token, _, digest = new_token()
    made = token_event(token, "sign-in through the provider", user, digest, "admin", False, None, user, now)
    account = ProviderAccountBound(identity, person.issuer, person.subject, user, token)
    return token, [made, Event(account, now, user)]


def _is_member(state: State, user: str) -> bool:
    return any(user in project.members for project in state.projects.values())


def _is_member_after(state: State, user: str, changes: list[Event]) -> bool:
    held = {name for name, project in state.projects.items() if user in project.members}
    for event in changes:
        if isinstance(event.data, ProjectMember):
            held = held - {event.data.name} if event.data.role is None else held | {event.data.name}
    return bool(held)


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
