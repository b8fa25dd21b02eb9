"""Sessions of browsers, the links that they begin with, and links that show one run."""

from typing import Literal

from muster.api.typed import TypedDict
from muster.api.words import Role

# What this server can do. `record`: runs, models and costs are kept. `studies`: it runs studies. `exec`: commands run
# beside jobs. `mlflow`: MLflow's own pages are at /mlflow/.
Capability = Literal["record", "studies", "exec", "mlflow"]


class SessionView(TypedDict):
    """Who asks, and what for: with a token, the times are the token's."""

    user: str
    role: Role  # the most that the token allows
    superuser: bool
    finance: bool  # may read the costs of all projects, and nothing else
    projects: dict[str, Role | None]  # the caller's role in each
    token: str  # id of the token that the session stands for
    began_at: float
    expires_at: float | None
    run: str | None  # the only one that it may read: the session began with the link of a share
    version: str  # of the server
    capabilities: list[Capability]


class SessionBegan(SessionView):
    csrf: str  # to be sent as X-Muster-CSRF with every request of the session; it is told this once
    page: str  # where the link leads


class SessionEnded(TypedDict):
    ended: bool


class SignInProvider(TypedDict):
    """The identity provider that people sign in through."""

    name: str | None
    url: str | None  # where a browser begins; `?page=` says where it leads


class ProviderAccountView(TypedDict):
    """An account at the identity provider that has signed in, and as which user."""

    user: str
    issuer: str
    subject: str  # the provider's own name of the account
    token: str  # id of the token that its sessions stand for
    bound_at: float


class ProviderAccountList(TypedDict):
    accounts: list[ProviderAccountView]


class SessionLink(TypedDict):
    """A one-time link that signs a browser in."""

    url: str
    expires_at: float


class ShareLink(TypedDict):
    """A link that shows one run to whoever has it."""

    id: str
    url: str
    run: str
    expires_at: float


class ShareRevoked(TypedDict):
    id: str
    run: str
