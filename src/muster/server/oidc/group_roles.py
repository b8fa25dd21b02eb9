"""Roles in projects by the groups of the provider: what a sign-in changes in the projects that the settings name."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from muster.api.words import ROLES, Role
from muster.core.entities.project import ProjectMember
from muster.core.event import Event
from muster.core.state import State

_ACTOR: Final = "muster"  # nobody gives himself a role
_WRITTEN: Final = re.compile(rf"(?P<group>.+)=(?P<project>[^=:]+):(?P<role>{'|'.join(ROLES)})")


@dataclass(frozen=True, slots=True)
class GroupRole:
    """Who is in the group has the role in the project."""

    group: str
    project: str
    role: Role


def parse_group_role(text: str) -> GroupRole | None:
    """As settings have it: `ml-admins=language:admin`. None if it is written otherwise."""
    found = _WRITTEN.fullmatch(text.strip())
    if found is None:
        return None
    role = next(one for one in ROLES if one == found["role"])
    return GroupRole(found["group"].strip(), found["project"].strip(), role)


def role_changes(
    state: State, user: str, groups: Collection[str], roles: Sequence[GroupRole], now: float
) -> list[Event]:
    """What makes the user's roles those of the groups, in every project that is named. The last admin stays one."""
    events: list[Event] = []
    for name in dict.fromkeys(one.project for one in roles):
        project = state.projects.get(name)
        if project is None:
            continue
        given = [one.role for one in roles if one.project == name and one.group in groups]
        wanted = max(given, key=ROLES.index, default=None)
        held = project.members.get(user)
        others = any(role == "admin" for member, role in project.members.items() if member != user)
        if wanted != held and (held != "admin" or others):
            events.append(Event(ProjectMember(name, user, wanted), now, _ACTOR, name))
    return events
