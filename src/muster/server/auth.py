"""Authentication and authorization: bearer tokens, and roles that every route checks."""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass
from typing import Final

from muster.control.bootstrap import digest
from muster.core.entities import Role, Token, at_least, lower
from muster.core.errors import NotAllowed, NotFound, Unauthenticated
from muster.core.state import State
from muster.server.web.signing import Session, Share, only_shared

_OF_FINANCE: Final = re.compile(r"/v1/cost(/.*)?|/v1/projects|/allocation(/compute)?|/model/allocation")
_SESSION: Final = re.compile(r"/v1/session(/links)?")  # one's own sign-in: every token may
_HINT = "Put a valid token in MUSTER_TOKEN, or use the one that `muster up` wrote into the home folder."


@dataclass(frozen=True, slots=True)
class Identity:
    """Who asks. By the link of a share it is whoever has the link: a viewer of one run, with a name of no user."""

    user: str
    token: Token
    session: Session | None = None  # of a browser; None: a bearer token

    @property
    def superuser(self) -> bool:
        return self._sees_all and self.token.role == "admin"

    @property
    def share(self) -> Share | None:
        """The only run that it may read."""
        return self.session.share if self.session is not None else None

    @property
    def _sees_all(self) -> bool:
        return self.token.superuser and not self.token.finance and self.share is None

    def role(self, state: State, project: str) -> Role | None:
        """The role of this identity in the project; None: no access, the project is not even visible."""
        if self.token.finance:
            return None
        if self.share is not None:
            return "viewer" if project == self.share.project and self._role_of_token(state, project) else None
        return self._role_of_token(state, project)

    def _role_of_token(self, state: State, project: str) -> Role | None:
        if self.token.superuser:
            return self.token.role
        known = state.projects.get(project)
        membership = known.members.get(self.token.user) if known is not None else None
        return lower(membership, self.token.role) if membership is not None else None

    def projects(self, state: State) -> list[str] | None:
        """The projects that this identity may see; None: all."""
        if self.token.finance:
            return []
        if self.share is not None:
            return [self.share.project] if self.role(state, self.share.project) is not None else []
        if self.token.superuser:
            return None
        return [name for name, project in list(state.projects.items()) if self.user in project.members]

    def cost_projects(self, state: State) -> list[str] | None:
        """The projects whose costs this identity may see; None: all."""
        return None if self.token.finance else self.projects(state)

    def need(self, state: State, project: str, role: Role) -> None:
        held = self.role(state, project)
        if held is None:
            # The same whether the project exists or not, so that it reveals nothing.
            raise NotFound(
                f"There is no project {project!r} that you can see.",
                f"An administrator lets you in with `muster project member {project} {self.user} member`; "
                "`muster project ls` shows what you can see.",
            )
        if not at_least(held, role):
            raise NotAllowed(
                f"This needs the role {role} in project {project!r}; yours is {held}.", self._how_to_get(project, role)
            )

    def _how_to_get(self, project: str, role: Role) -> str:
        """A token may be capped below what its user may do."""
        if not at_least(self.token.role, role):
            return f"This token allows no more than {self.token.role}: use another."
        return f"An admin of the project gives it with `muster project member {project} {self.user} {role}`."

    def need_whole_view(self) -> None:
        if not self._sees_all:
            raise NotAllowed(
                "This needs a token that may read everything.",
                "An administrator makes one with `muster token create NAME --superuser --role viewer`.",
            )

    def need_run(self, run: str) -> None:
        """Raises NotAllowed for another run than the only one that it may read, if there is one."""
        if self.share is not None and run != self.share.run:
            raise only_shared(self.share)

    def need_superuser(self) -> None:
        if not self.superuser:
            raise NotAllowed("This needs an administrator's token.", "Ask whoever runs this server.")


def check_finance(caller: Identity, method: str, path: str) -> None:
    """Raises NotAllowed for a token of finance that is used for anything but reading costs and names of projects."""
    reads = method in ("GET", "HEAD") and _OF_FINANCE.fullmatch(path)
    if caller.token.finance and not (reads or _SESSION.fullmatch(path)):
        raise NotAllowed(
            "This token may read the costs of projects, and nothing else.", "Use another token; see `muster token ls`."
        )


def still_member(state: State, user: str, project: str, now: float) -> bool:
    """Whether the user may still act in the project: as a member, or as an administrator by a valid token."""
    known = state.projects.get(project)
    if known is not None and at_least(known.members.get(user), "member"):
        return True
    mine = (one for one in list(state.tokens.values()) if one.user == user and one.superuser and not one.finance)
    live = (token for token in mine if token.revoked_at is None and (token.expires_at or now + 1) > now)
    return any(at_least(token.role, "member") for token in live)


def authenticate(header: str | None, state: State, now: float) -> Identity:
    """The identity behind an Authorization header. All invalid tokens get the same error, so it reveals nothing."""
    scheme, _, presented = (header or "").partition(" ")
    if scheme.lower() != "bearer" or not presented:
        raise Unauthenticated("A token is needed.", _HINT)
    prefix, _, rest = presented.strip().partition("_")
    identity, _, secret = rest.partition("_")
    token = state.tokens.get(identity)
    wanted = token.digest if token is not None else digest("")
    good = hmac.compare_digest(digest(secret), wanted)
    if token is None or prefix != "mst" or not good or not _valid(token, now):
        raise Unauthenticated("The token is not valid.", _HINT)
    return Identity(token.user, token)


def stand_in(session: Session, state: State, now: float) -> Identity:
    """The identity of a browser's session: that of its token, as long as the token is valid."""
    token = state.tokens.get(session.token)
    if token is None or not _valid(token, now):
        raise Unauthenticated("The session's token is not valid any more.", _HINT)
    return Identity(token.user if session.share is None else f"share:{session.share.id}", token, session)


def _valid(token: Token, now: float) -> bool:
    return token.revoked_at is None and (token.expires_at is None or token.expires_at > now)
