"""The settings of sign-in through an OpenID Connect provider.

    [oidc]
    issuer = "https://login.example.org"
    client_id = "muster"
    client_secret_file = "oidc-secret"        # or the variable MUSTER_OIDC_CLIENT_SECRET; never the secret itself
    public_url = "https://muster.example.org"

docs/oidc.md describes all of them. Each has a variable, `MUSTER_OIDC_` and its name, which goes before the file.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal, cast
from urllib.parse import urlsplit

from muster.core.config import Table
from muster.core.errors import ConfigError
from muster.server.oidc.group_roles import GroupRole, parse_group_role

SECRET: Final = "MUSTER_OIDC_CLIENT_SECRET"  # noqa: S105  (the name of a variable)
VARIABLES: Final = {
    "issuer": "MUSTER_OIDC_ISSUER",
    "client_id": "MUSTER_OIDC_CLIENT_ID",
    "client_secret_file": "MUSTER_OIDC_CLIENT_SECRET_FILE",
    "public_url": "MUSTER_OIDC_PUBLIC_URL",
    "name": "MUSTER_OIDC_NAME",
    "claim": "MUSTER_OIDC_CLAIM",
    "domains": "MUSTER_OIDC_DOMAINS",
    "new_members": "MUSTER_OIDC_NEW_MEMBERS",
    "project": "MUSTER_OIDC_PROJECT",
    "group": "MUSTER_OIDC_GROUP",
    "group_claim": "MUSTER_OIDC_GROUP_CLAIM",
    "roles": "MUSTER_OIDC_ROLES",
    "scopes": "MUSTER_OIDC_SCOPES",
    "ca_file": "MUSTER_OIDC_CA_FILE",
}
_LISTS: Final = frozenset({"domains", "roles", "scopes"})
_SCOPES: Final = ("openid", "email", "profile")
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
_DOMAIN: Final = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+")
_CLAIMS: Final = ("email", "preferred_username", "sub")
_JOINING: Final = ("", "viewer", "member")

Claim = Literal["email", "preferred_username", "sub"]
Joining = Literal["", "viewer", "member"]


@dataclass(frozen=True, slots=True)
class OidcSettings:
    issuer: str
    client_id: str
    client_secret_file: Path | None = None
    public_url: str = ""  # under which browsers reach this server; empty: the address that they use
    name: str = ""  # of the provider, on the page; empty: its host
    claim: Claim = "email"  # that is the user's name
    domains: tuple[str, ...] = ()  # of e-mail addresses that may sign in; empty: all
    new_members: Joining = ""  # the role in `project` of whom nobody has let in yet; empty: they are refused
    project: str = "default"
    group: str = ""  # that whoever signs in must be in; empty: any
    group_claim: str = "groups"
    roles: tuple[GroupRole, ...] = ()  # in the projects that it names, groups alone decide
    scopes: tuple[str, ...] = _SCOPES
    ca_file: str = ""  # certificates to trust when the provider's is your own

    @property
    def shown_name(self) -> str:
        return self.name or urlsplit(self.issuer).hostname or self.issuer

    def client_secret(self) -> str:
        """Read anew with each sign-in, so that it can be replaced; "" for a client without one."""
        if self.client_secret_file is None:
            return os.environ.get(SECRET, "")
        try:
            return self.client_secret_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError("The file with the provider's client secret can't be read.", "Correct it.") from error


def read_oidc(given: object, home: Path, environ: Mapping[str, str] = os.environ) -> OidcSettings | None:
    """Reads `oidc` of the server's settings; None if there are none. Raises ConfigError with every mistake."""
    values = {**(given if isinstance(given, Mapping) else {}), **_of_environment(environ)}
    if not values:
        return None
    table = Table("oidc", values)
    secret_file = table.text("client_secret_file")
    found = OidcSettings(
        issuer=table.text("issuer"),
        client_id=table.text("client_id"),
        client_secret_file=home / secret_file if secret_file else None,
        public_url=table.text("public_url").rstrip("/"),
        name=table.text("name"),
        claim=cast(Claim, table.text("claim", "email", among=_CLAIMS)),
        domains=tuple(one.lower() for one in table.texts("domains")),
        new_members=cast(Joining, table.text("new_members", "", among=_JOINING)),
        project=table.text("project", "default"),
        group=table.text("group"),
        group_claim=table.text("group_claim", "groups"),
        roles=_roles(table),
        scopes=table.texts("scopes", _SCOPES),
        ca_file=table.text("ca_file"),
    )
    _check(found, table)
    table.finish()
    return found


def is_safe(url: str) -> bool:
    """Whether an address is encrypted, or of this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = parts.port  # a ValueError for one that is none
    except ValueError:
        return False
    if not host or port == 0 or "@" in parts.netloc or parts.fragment:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _of_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    found = {key: environ[name].strip() for key, name in VARIABLES.items() if environ.get(name, "").strip()}
    return {
        key: [one.strip() for one in value.split(",") if one.strip()] if key in _LISTS else value
        for key, value in found.items()
    }


def _roles(table: Table) -> tuple[GroupRole, ...]:
    found = [parse_group_role(one) for one in table.texts("roles")]
    if None in found:
        table.wrong("roles", 'a list such as ["ml-admins=language:admin"]', "Write GROUP=PROJECT:ROLE.")
    return tuple(one for one in found if one is not None)


def _check(found: OidcSettings, table: Table) -> None:
    for key, url in (("issuer", found.issuer), ("public_url", found.public_url)):
        if not is_safe(url) if key == "issuer" or url else False:
            table.wrong(key, "an address that begins with https://", "Only one of this machine may be http://.")
    if urlsplit(found.public_url).path or "?" in found.public_url:
        table.wrong("public_url", "an address without a path", "Write it like https://muster.example.org.")
    if not found.client_id:
        table.wrong("client_id", "the client's id", "The provider gives it to an application that is registered.")
    if found.client_secret_file is not None and not found.client_secret_file.is_file():
        table.wrong("client_secret_file", "a file that exists")
    if "openid" not in found.scopes or not all(_SCOPE.fullmatch(one) for one in found.scopes):
        table.wrong("scopes", 'a list of words with "openid" in it')
    if not all(_DOMAIN.fullmatch(one) for one in found.domains):
        table.wrong("domains", 'a list such as ["example.org"]')
    if not found.group_claim:
        table.wrong("group_claim", "the name of a claim")
    if found.ca_file and not Path(found.ca_file).is_file():
        table.wrong("ca_file", "a file that exists")
    if find_spec("jwt") is None:
        table.mistakes.add("Sign-in through a provider needs PyJWT.", "Install it: `pip install 'muster-ml[oidc]'`.")
