"""A project: who owns the work, and the roles of its members."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from muster.api.words import ROLES, Role
from muster.core.entities.base import EntityType, from_fields
from muster.core.payload import Payload, payload

if TYPE_CHECKING:
    from muster.core.event import Event
    from muster.core.state_data import Changes, State


@dataclass(frozen=True, slots=True)
class Project:
    name: str
    description: str = ""
    members: dict[str, Role] = field(default_factory=dict)


PROJECTS = EntityType("project", from_fields(Project), place=lambda state: state.projects)


def at_least(role: Role | None, needed: Role) -> bool:
    """Whether `role` allows everything that `needed` allows."""
    return role is not None and ROLES.index(role) >= ROLES.index(needed)


def lower(first: Role, second: Role) -> Role:
    """The lower of two roles."""
    return min(first, second, key=ROLES.index)


@payload("project.set")
class ProjectSet(Payload):
    """A project was made or changed: the whole record."""

    name: str
    description: str = ""
    members: dict[str, Role] = field(default_factory=dict)

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        PROJECTS.put(state, self.name, Project(self.name, self.description, self.members), changes)
        state.journal.note("entity", self.name)


@payload("project.member")
class ProjectMember(Payload):
    """A user got a role in the project `name`; without a role, the user is no member any more."""

    name: str
    user: str
    role: Role | None

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        project = state.projects[self.name]
        members = {user: role for user, role in project.members.items() if user != self.user}
        if self.role is not None:
            members[self.user] = self.role
        PROJECTS.put(state, self.name, replace(project, members=members), changes)
