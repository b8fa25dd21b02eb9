"""The settings of a server: defaults, overridden by `config.toml` in the home folder, then by the command line.

The database URL may contain a password, so it can also be set in MUSTER_STORE: a command line is visible to all users.
"""

from __future__ import annotations

import ipaddress
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from muster.control.admission_hooks import read_admission_hooks, read_plugin_terms
from muster.control.hooks import read_hooks
from muster.control.receivers import read_receivers
from muster.control.registries import read_registries
from muster.core.config import Mistakes, Table
from muster.core.errors import ConfigError
from muster.engines.isolation import read_local
from muster.engines.registry import LOCAL, check_engines
from muster.server.limits import Limits
from muster.server.oidc.settings import OidcSettings, read_oidc
from muster.server.web.site import PAGES

STORE: Final = "MUSTER_STORE"
POOL: Final = re.compile(r"[a-z]([a-z0-9-]{0,48}[a-z0-9])?\Z")
_TEXTS: Final = (
    "host", "store_url", "log_limit", "log_limit_max", "late_reports", "advertise", "allowed_hosts", "artifacts",
    "log_level", "pool", "exec", "spot_notices", "metrics", "advisories", "session_lifetime", "web_pages",
)  # fmt: skip
_SPOT_SOURCE: Final = re.compile(r"file:/.+|(aws|gcp|azure)(=http://[^\s/]+)?")
_OPTIONAL: Final = ("tls_cert", "tls_key", "accelerators", "memory", "policy")  # texts, or not given


def default_home() -> Path:
    return Path(os.environ.get("MUSTER_HOME", "~/.muster")).expanduser()


@dataclass(frozen=True, slots=True)
class Settings:
    home: Path
    host: str = "127.0.0.1"
    port: int = 6878  # M-U-S-T on a phone keypad, not assigned so far; 0: any free port
    store_url: str = ""  # SQLite in the home folder when empty
    tls_cert: str | None = None
    tls_key: str | None = None
    allow_insecure: bool = False  # listen beyond loopback without TLS
    nodes: int = 1  # logical nodes on this machine
    accelerators: str | None = None  # logical accelerators of each node, such as "H100:8"
    cpus: float | None = None  # of each node
    pool: str = "local"  # the pool of the nodes on this machine
    memory: str | None = None  # of each node, such as "64GB"
    policy: str | None = None  # a policy file that is set when the server begins to lead
    log_limit: str = "64MB"  # output kept per rank, unless its job file says otherwise
    log_limit_max: str = "1GB"  # maximum that a job file may set
    late_reports: str = "7d"  # how long after the end of an attempt its launchers may still deliver the rest
    session_lifetime: str = "12h"  # how long a browser stays signed in
    web_pages: str = ""  # folder of the web page; empty: the one in the package
    # Engines by name: see `muster.engines.registry`. If there are any, this machine is used only if it is one of them.
    engines: Mapping[str, Any] = field(default_factory=dict)
    advertise: str = ""  # URLs at which nodes reach this server, comma-separated; empty: where it listens
    allowed_hosts: str = ""  # further allowed host names, comma-separated; see `muster.server.hosts`
    hooks: Mapping[str, Any] = field(default_factory=dict)  # events that are sent elsewhere: see `muster.control.hooks`
    receivers: Mapping[str, Any] = field(default_factory=dict)  # of alerts: see `muster.control.receivers`
    # A company's own admission checks: see `muster.control.admission_hooks`.
    admission_hook: Sequence[Any] = field(default_factory=tuple)
    admission_plugins: Mapping[str, Any] = field(default_factory=dict)
    registries: Mapping[str, Any] = field(default_factory=dict)  # of images: see `muster.control.registries`
    advisories: str = ""  # known vulnerable packages: a file or a folder; see docs/environments.md
    limits: Mapping[str, Any] = field(default_factory=dict)  # see `muster.server.limits`
    oidc: Mapping[str, Any] = field(default_factory=dict)  # sign-in by a provider: see `muster.server.oidc.settings`
    trust_members: bool = False  # members' jobs run like an administrator's; see `muster.engines.isolation`
    artifacts: str = ""  # where content is stored: a folder, s3://, gs:// or az://; empty: `blobs` in the home folder
    log_level: str = "info"
    spot_notices: str = ""  # where launchers on spot machines look, comma-separated: see `muster.runtime.spot_notice`
    metrics: str = "token"  # "loopback": programs on this machine read /metrics without a token
    exec: str = "on"  # "off": nobody runs commands beside jobs (`muster exec`, `attach`, `cp`)

    @classmethod
    def load(cls, home: Path, overrides: Mapping[str, object]) -> Settings:
        """Reads all sources. `engines` of the overrides is a list of names, added to those that have tables."""
        path = home / "config.toml"
        values: dict[str, Any] = {}
        if path.exists():
            try:
                values = tomllib.loads(path.read_text())
            except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
                raise ConfigError(f"{path} is not valid TOML: {error}.", "Mend the line that it names.") from error
        if os.environ.get(STORE):
            values["store_url"] = os.environ[STORE]
        given = {name: value for name, value in overrides.items() if value is not None}
        return cls._checked(home, {**values, **given, **_with_engines(values, given)}, str(path))

    @classmethod
    def _checked(cls, home: Path, values: dict[str, Any], source: str) -> Settings:
        """Raises ConfigError with everything that is wrong, can't work or is not safe."""
        table, usual = Table("", values, source=source), cls(home)
        texts: dict[str, Any] = {key: table.text(key, getattr(usual, key)) for key in _TEXTS}
        texts |= {key: table.text(key) or None for key in _OPTIONAL if values.get(key) is not None}
        found = cls(
            home=home,
            port=table.whole("port", usual.port, 0, 65535),
            nodes=table.whole("nodes", usual.nodes, 1, 100_000),
            cpus=table.number("cpus", 0, 0.001, 1e6) if values.get("cpus") is not None else None,
            allow_insecure=table.flag("allow_insecure"),
            trust_members=table.flag("trust_members"),
            engines=table.table("engines", "tables such as [engines.slurm]").given,
            hooks=table.table("hooks", "tables such as [hooks.chat]").given,
            receivers=table.table("receivers", "tables such as [receivers.ops]").given,
            admission_hook=values.get("admission_hook", ()),
            admission_plugins=table.table("admission_plugins", "tables such as [admission_plugins.NAME]").given,
            registries=table.table("registries", 'tables such as [registries."registry.example"]').given,
            limits=table.table("limits").given,
            oidc=table.table("oidc").given,
            **texts,
        )
        table.know("cpus", "admission_hook", *_OPTIONAL)
        table.duration("late_reports", 0.0)
        table.duration("session_lifetime", 0.0, 1.0, 400 * 86_400.0)  # browsers keep no cookie for longer
        for name in ("log_limit", "log_limit_max"):
            table.size(name, 4096, least=4096)
        table.refuse_others()
        found.check(table.mistakes)
        return found

    def check(self, mistakes: Mistakes | None = None) -> None:
        """Raises ConfigError for settings that can't work or are not safe."""
        mistakes = mistakes or Mistakes()
        with mistakes.taken():
            read_local(check_engines(self.engines).get(LOCAL, {}), self.trust_members)
        with mistakes.taken():
            Limits.of(self.limits)
        with mistakes.taken():
            read_hooks(self.hooks)
        with mistakes.taken():
            read_receivers(self.receivers)
        with mistakes.taken():
            read_admission_hooks(self.admission_hook)
        with mistakes.taken():
            read_plugin_terms(self.admission_plugins)
        with mistakes.taken():
            read_registries(self.registries)
        with mistakes.taken():
            read_oidc(self.oidc, self.home)
        if not POOL.match(self.pool):
            mistakes.add(f"pool is {self.pool!r}, which can't be a pool's name.", "Use letters, digits and `-`.")
        if self.exec not in ("on", "off"):
            mistakes.add(f"exec is {self.exec!r}.", 'Write "on" or "off".')
        if self.metrics not in ("token", "loopback"):
            mistakes.add(f"metrics is {self.metrics!r}.", 'Write "token" or "loopback".')
        for source in self.spot_sources:
            if not _SPOT_SOURCE.fullmatch(source):
                mistakes.add(
                    f"spot_notices has {source!r}.", "Write file:/PATH, aws, gcp or azure, or aws=http://HOST:PORT."
                )
        for url in self.advertised:
            if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
                mistakes.add(f"advertise has {url!r}, which is no address.", "Write it like https://HOST:PORT.")
        if bool(self.tls_cert) != bool(self.tls_key):
            mistakes.add("TLS needs both a certificate and its key.", "Give --tls-cert and --tls-key.")
        for path in (self.tls_cert, self.tls_key):
            if path and not Path(path).is_file():
                mistakes.add(f"The TLS file {path} does not exist.", "Correct the path.")
        if not self.loopback and not self.tls_cert and not self.allow_insecure:
            mistakes.add(
                f"{self.host} can be reached from other machines, and tokens would cross the network unencrypted.",
                "Give --tls-cert and --tls-key, listen on 127.0.0.1, or say --allow-insecure behind a proxy with TLS.",
            )
        mistakes.check()

    @property
    def provider(self) -> OidcSettings | None:
        return read_oidc(self.oidc, self.home)

    @property
    def loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def advertised(self) -> tuple[str, ...]:
        return tuple(part.strip().rstrip("/") for part in self.advertise.split(",") if part.strip())

    @property
    def spot_sources(self) -> tuple[str, ...]:
        return tuple(part.strip() for part in self.spot_notices.split(",") if part.strip())

    @property
    def policy_file(self) -> Path | None:
        """A relative path starts from the home folder."""
        return self.home / self.policy if self.policy else None

    @property
    def advisory_path(self) -> Path | None:
        """A relative path starts from the home folder."""
        return self.home / self.advisories if self.advisories else None

    @property
    def page_folder(self) -> Path:
        """A relative path starts from the home folder."""
        return self.home / self.web_pages if self.web_pages else PAGES

    @property
    def url_of_store(self) -> str:
        return self.store_url or f"sqlite:///{self.home / 'muster.db'}"


def _with_engines(values: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Engines that only the command line names get the default settings of their kind."""
    tables = values.get("engines", {})
    if "engines" not in given or not isinstance(tables, Mapping):
        return {"engines": tables} if "engines" in values else {}
    return {"engines": {**{name: {} for name in given["engines"]}, **tables}}
