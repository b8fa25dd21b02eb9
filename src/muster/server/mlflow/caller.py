"""The caller under /mlflow and its rights. Accepts a bearer token, or Basic with the token as the password."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

from muster.core.entities import Role, at_least
from muster.core.errors import NotAllowed, NotFound, Unavailable
from muster.core.state import State
from muster.server.auth import Identity, authenticate
from muster.server.leader import Leader
from muster.server.service import Service
from muster.track.mlflow.context import MlflowContext


@dataclass(frozen=True, slots=True)
class ServerCaller:
    """`writing`: only projects that the caller may write to are visible, so that nothing else can be changed."""

    identity: Identity
    state: State
    writing: bool = False

    @property
    def user(self) -> str:
        return self.identity.user

    @property
    def superuser(self) -> bool:
        return self.identity.superuser

    def projects(self) -> Sequence[str] | None:
        found = self.identity.projects(self.state)
        if found is None or not self.writing:
            return found
        return [name for name in found if self._may(name, "member")]

    @property
    def may_write(self) -> bool:
        """Whether the caller may write to any project."""
        found = self.identity.projects(self.state)
        if found is None:
            return at_least(self.identity.token.role, "member")
        return any(self._may(name, "member") for name in found)

    def sees(self, project: str) -> bool:
        return self._may(project, "viewer")

    def need(self, project: str, role: Role) -> None:
        self.identity.need(self.state, project, role)

    def default_project(self) -> str:
        names = ["default", *sorted(self.identity.projects(self.state) or ())]
        for role in ("member", "viewer"):
            for name in names:
                if self._may(name, role):
                    return name
        raise NotAllowed("You are in no project, so there is nowhere to put this.", "Ask an admin to let you into one.")

    def known_project(self, name: str) -> bool:
        return name in self.state.projects and self._may(name, "member")

    def _may(self, project: str, role: Role) -> bool:
        held = self.identity.role(self.state, project)
        return held is not None and at_least(held, role)


def context_for(service: Service, authorization: str | None, *, writing: bool) -> MlflowContext:
    """Raises Unauthenticated; Unavailable if this server does not lead or keeps no record."""
    leader = leader_of(service)
    caller = authenticate(bearer(authorization), leader.store.state(), leader.clock.now())
    if leader.track is None:
        raise Unavailable("This server's store keeps no record of runs.", "Start it with SQLite or PostgreSQL.")
    return MlflowContext(leader.track, ServerCaller(caller, leader.store.state(), writing))


def need_member(context: MlflowContext) -> None:
    """Raises NotAllowed unless the caller may write to some project. Each call checks the project itself."""
    if not getattr(context.caller, "may_write", False):
        raise NotAllowed("This needs the role member in a project.", "Ask an admin of a project.")


def need_superuser(context: MlflowContext) -> None:
    if not getattr(context.caller, "superuser", False):
        raise NotFound("This part of MLflow is open to administrators only.", "Ask whoever runs this server.")


def leader_of(service: Service) -> Leader:
    if service.leader is None or not service.leads:
        raise Unavailable("This server does not hold the lease.", "Ask the one that does, or try again shortly.")
    return service.leader


def bearer(header: str | None) -> str | None:
    """The header for `authenticate`: MLflow's clients send Basic when they are given a user and a password."""
    scheme, _, given = (header or "").partition(" ")
    if scheme.lower() != "basic":
        return header
    try:
        user, _, password = base64.b64decode(given.strip(), validate=True).decode().partition(":")
    except ValueError:  # not Base64, not ASCII or not UTF-8
        return None
    return f"Bearer {password or user}"
