"""Projects, their members and secrets, and tokens."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from muster.api.access import (
    ProjectList,
    ProjectView,
    SecretNames,
    SecretSet,
    TokenCreated,
    TokenList,
    TokenView,
    Whoami,
)
from muster.control.bootstrap import new_token, token_event
from muster.control.quota import check_tokens
from muster.core import server_events
from muster.core.entities import ROLES, Project, Role, Token, at_least, lower, reserved, within
from muster.core.entities.project import ProjectMember, ProjectSet
from muster.core.entities.token import TokenRevoked
from muster.core.errors import Conflict, Invalid, NotAllowed, NotFound
from muster.core.event import Event
from muster.core.state import State
from muster.server.auth import Identity
from muster.server.context import Caller, Leading
from muster.server.routes.cluster import NAME, Name
from muster.server.typed_routes import needs, typed_router
from muster.server.views import token_view
from muster.store.base import Entry, SecretWrite

router = typed_router(prefix="/v1", tags=["access"])

_LISTED: Final = 10  # tokens of an ambiguous name that an error lists
USER = r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,99}$"
User = Annotated[str, Path(pattern=USER)]
SecretName = Annotated[str, Path(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$")]
TokenRef = Annotated[
    str,
    Path(min_length=1, max_length=100, pattern=r"^[^\x00]*$", description="A token's id, or its name if it is one's"),
]


class ProjectBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=NAME)
    description: str = Field("", max_length=500, pattern=r"^[^\x00]*$")


class MemberBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    role: Role


class SecretBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    value: SecretStr = Field(min_length=1, max_length=65_536)


class TokenBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field("", max_length=100, pattern=r"^[^\x00]*$")
    user: str | None = Field(None, pattern=USER, description="yourself when null")
    role: Role = Field("admin", description="the most that it may be used for")
    superuser: bool = Field(False, description="admin of every project, within the role")
    finance: bool = Field(False, description="may read the costs of all projects, and nothing else")
    expires_in: float | None = Field(None, gt=0, le=10 * 365 * 86_400, description="seconds")


@router.get("/whoami", openapi_extra=needs("anyone"))
def whoami(leader: Leading, caller: Caller) -> Whoami:
    state = leader.store.state()
    visible = caller.projects(state)
    names = list(state.projects) if visible is None else visible
    roles = {name: caller.role(state, name) for name in names}
    return {"user": caller.user, "role": caller.token.role, "superuser": caller.superuser, "projects": roles}


@router.get("/projects", openapi_extra=needs("anyone"))
def list_projects(leader: Leading, caller: Caller) -> ProjectList:
    def look(state: State) -> list[ProjectView]:
        if caller.token.finance:  # names alone
            return [{"name": name, "description": "", "members": {}, "role": None} for name in state.projects]
        visible = caller.projects(state)
        found = [p for p in state.projects.values() if visible is None or p.name in visible]
        return [_project_view(project, caller.role(state, project.name)) for project in found]

    return {"projects": leader.look(look)}


@router.post("/projects", status_code=201, openapi_extra=needs("superuser"))
def create_project(body: ProjectBody, leader: Leading, caller: Caller) -> ProjectView:
    caller.need_superuser()

    def propose(state: State) -> Entry:
        if body.name in state.projects:
            raise Conflict(f"Project {body.name!r} exists already.", "Choose another name.")
        made = ProjectSet(body.name, body.description)
        return Entry([Event(made, leader.clock.now(), caller.user, body.name)])

    leader.propose(propose)
    return {"name": body.name, "description": body.description, "members": {}, "role": "admin"}


@router.put("/projects/{project}/members/{user}", openapi_extra=needs("admin"))
def set_member(project: Name, user: User, body: MemberBody, leader: Leading, caller: Caller) -> ProjectView:
    return _member(leader, caller, project, user, body.role)


@router.delete("/projects/{project}/members/{user}", openapi_extra=needs("admin"))
def remove_member(project: Name, user: User, leader: Leading, caller: Caller) -> ProjectView:
    return _member(leader, caller, project, user, None)


@router.get("/projects/{project}/secrets", openapi_extra=needs("member"))
def list_secrets(project: Name, leader: Leading, caller: Caller) -> SecretNames:
    """The names of the secrets. A value that was set is never shown again."""
    caller.need(leader.store.state(), project, "member")
    _exists(leader.store.state(), project)
    return {"names": leader.store.secret_names(project)}


@router.put("/projects/{project}/secrets/{name}", openapi_extra=needs("admin"))
def set_secret(project: Name, name: SecretName, body: SecretBody, leader: Leading, caller: Caller) -> SecretSet:
    cipher = leader.keyring.seal(body.value.get_secret_value())
    return _secret(leader, caller, project, name, cipher)


@router.delete("/projects/{project}/secrets/{name}", openapi_extra=needs("admin"))
def remove_secret(project: Name, name: SecretName, leader: Leading, caller: Caller) -> SecretSet:
    caller.need(leader.store.state(), project, "admin")
    if leader.store.secret(project, name) is None:
        raise NotFound(f"Project {project!r} has no secret {name!r}.", "See `muster project secret ls`.")
    return _secret(leader, caller, project, name, None)


@router.get("/tokens", openapi_extra=needs("anyone"))
def list_tokens(leader: Leading, caller: Caller) -> TokenList:
    tokens = leader.look(lambda state: list(state.tokens.values()))
    shown = [token for token in tokens if caller.superuser or token.user == caller.user]
    return {"tokens": [token_view(token) for token in shown]}


@router.post("/tokens", status_code=201, openapi_extra=needs("anyone"))
def create_token(body: TokenBody, leader: Leading, caller: Caller) -> TokenCreated:
    """Creates a token. It is shown in this answer only, and never allows more than the token that created it."""
    user = body.user or caller.user
    _check_name(user)
    if not caller.superuser and (user != caller.user or body.superuser):
        raise NotAllowed("Only an administrator makes tokens for others.", "Leave `user` out, or ask an administrator.")
    if body.finance and not caller.superuser:
        raise NotAllowed("Only an administrator makes a token for finance.", "Ask whoever runs this server.")
    if body.finance and body.superuser:
        raise Invalid("finance and superuser were given.", "Give one of them.")
    wanted: Role = "viewer" if body.finance else body.role
    role, most = lower(wanted, caller.token.role), caller.token.expires_at
    identity, shown, kept = new_token()
    now = leader.clock.now()
    expires = now + body.expires_in if body.expires_in else None
    if most is not None:
        expires = min(expires or most, most)
    event = token_event(identity, body.name, user, kept, role, body.superuser, expires, caller.user, now, body.finance)

    def propose(state: State) -> Entry:
        check_tokens(state, user, now, leader.quota_of(caller))
        return Entry([event])

    leader.propose(propose)
    made, notes = leader.look(lambda state: (state.tokens[identity], _lowered(state, body, state.tokens[identity])))
    return {**token_view(made), "token": shown, "notes": notes}


@router.delete("/tokens/{token}", openapi_extra=needs("anyone"))
def revoke_token(token: TokenRef, leader: Leading, caller: Caller) -> TokenView:
    """Revokes a token of your own that allows no more than the one you use; an administrator revokes any."""
    revoked: list[str] = []

    def propose(state: State) -> Entry:
        now = leader.clock.now()
        found = _find_token(state, caller, token, now)
        revoked[:] = [found.id]
        if not caller.superuser and not within(found, caller.token):
            raise NotAllowed(
                f"The token {token} allows more than the one that you use.",
                "Revoke it with itself, with another that allows as much, or ask an administrator.",
            )
        if found.revoked_at is not None:
            return Entry()
        return Entry([Event(TokenRevoked(found.id), now, caller.user)])

    leader.propose(propose)
    return token_view(leader.look(lambda state: state.tokens[revoked[0]]))


def _lowered(state: State, body: TokenBody, made: Token) -> list[str]:
    """What the new token allows less than was asked for, and why."""
    notes = []
    if "role" in body.model_fields_set and made.role != body.role and not made.finance:
        notes.append(f"Its role is {made.role}, not {body.role}: the token that made it allows no more.")
    if body.expires_in and made.expires_at is not None and made.expires_at < made.created_at + body.expires_in:
        notes.append("It ends sooner than asked for: with the token that made it.")
    if made.superuser or made.finance:
        return notes
    held = [project.members[made.user] for project in state.projects.values() if made.user in project.members]
    if not held:
        hint = f"`muster project member PROJECT {made.user} {made.role}` adds them"
        notes.append(f"{made.user} is a member of no project, so it allows nothing in one yet; {hint}.")
    elif "role" in body.model_fields_set and not any(at_least(role, made.role) for role in held):
        most = max(held, key=ROLES.index)
        notes.append(
            f"It allows no more than {most}, not {made.role}: {made.user} is no more than that in any project."
        )
    return notes


def _find_token(state: State, caller: Identity, ref: str, now: float) -> Token:
    """The token with this id, or the valid one with this name. Raises Invalid if several valid ones have it."""
    seen = [one for one in state.tokens.values() if caller.superuser or one.user == caller.user]
    found = [one for one in seen if one.id == ref]
    if not found:
        named = [one for one in seen if one.name == ref]
        valid = [one for one in named if one.revoked_at is None and (one.expires_at is None or one.expires_at > now)]
        found = valid or named[-1:]
    if not found:
        raise NotFound(f"There is no token {ref!r} that you can see.", "See `muster token ls`.")
    if len(found) > 1:
        told = ", ".join(f"{one.id} ({one.user}, {one.role})" for one in found[:_LISTED])
        more = " and more" if len(found) > _LISTED else ""
        hint = f"Give the id of one, as in `{found[0].id}`; see `muster token ls`."
        raise Invalid(f"{ref!r} is the name of several tokens: {told}{more}.", hint)
    return found[0]


def _member(leader: Leading, caller: Identity, project: str, user: str, role: Role | None) -> ProjectView:
    caller.need(leader.store.state(), project, "admin")
    if role is not None:
        _check_name(user)

    def propose(state: State) -> Entry:
        _exists(state, project)
        members = state.projects[project].members
        if role is None and user not in members:
            raise NotFound(f"{user} is not a member of project {project!r}.", "See `muster project ls`.")
        others = any(held == "admin" for name, held in members.items() if name != user)
        if role != "admin" and members.get(user) == "admin" and not others and not caller.superuser:
            raise Conflict(
                f"{user} is the last admin of project {project!r}.",
                f"Make another member admin first: `muster project member {project} USER admin`.",
            )
        member = ProjectMember(project, user, role)
        return Entry([Event(member, leader.clock.now(), caller.user, project)])

    leader.propose(propose)
    return leader.look(lambda state: _project_view(state.projects[project], caller.role(state, project)))


def _secret(leader: Leading, caller: Identity, project: str, name: str, cipher: bytes | None) -> SecretSet:
    caller.need(leader.store.state(), project, "admin")
    _exists(leader.store.state(), project)
    data = server_events.SecretRemoved(name) if cipher is None else server_events.SecretSet(name)
    event = Event(data, leader.clock.now(), caller.user, project)
    leader.propose(lambda state: Entry([event], secrets=[SecretWrite(project, name, cipher)]))
    return {"name": name}


def _project_view(project: Project, role: Role | None) -> ProjectView:
    return {
        "name": project.name,
        "description": project.description,
        "members": dict(project.members),
        "role": role,
    }


def _check_name(user: str) -> None:
    if reserved(user):
        raise Invalid(f"{user!r} is a name of Muster itself.", "Choose another name for the user.")


def _exists(state: State, project: str) -> None:
    if project not in state.projects:
        raise NotFound(f"There is no project {project!r}.", "See `muster project ls`.")
