"""Users, projects, members, secrets and tokens."""

from muster.api.typed import TypedDict
from muster.api.words import Role


class Whoami(TypedDict):
    user: str
    role: Role
    superuser: bool
    projects: dict[str, Role | None]  # the caller's role in each


class ProjectView(TypedDict):
    name: str
    description: str
    members: dict[str, Role]
    role: Role | None  # the caller's


class ProjectList(TypedDict):
    projects: list[ProjectView]


class SecretNames(TypedDict):
    names: list[str]


class SecretSet(TypedDict):
    name: str


class TokenView(TypedDict):
    """A token without its secret."""

    id: str
    name: str
    user: str
    role: Role
    superuser: bool
    finance: bool  # may read the costs of all projects, and nothing else
    created_at: float
    expires_at: float | None
    revoked_at: float | None


class TokenCreated(TokenView):
    token: str  # shown once
    notes: list[str]  # what it allows less than was asked for, and why


class TokenList(TypedDict):
    tokens: list[TokenView]
