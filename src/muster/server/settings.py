"""The settings of a server: defaults, overridden by `config.toml` in the home folder, then by the command line.

The database URL may contain a password, so it can also be set in MUSTER_STORE: a command line is visible to all users.
"""

from __future__ import annotations

import ipaddress
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from muster.control.hooks import read_hooks
from muster.core.errors import ConfigError
from muster.core.suggest import did_you_mean
from muster.core.units import InvalidValue, parse_duration, parse_size
from muster.engines.isolation import read_local
from muster.engines.registry import LOCAL, check_engines
from muster.server.limits import Limits

STORE: Final = "MUSTER_STORE"


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
    memory: str | None = None  # of each node, such as "64GB"
    policy: str | None = None  # a policy file that is set when the server begins to lead
    log_limit: str = "64MB"  # output kept per rank, unless its job file says otherwise
    log_limit_max: str = "1GB"  # maximum that a job file may set
    late_reports: str = "7d"  # how long after the end of an attempt its launchers may still deliver the rest
    # Engines by name: see `muster.engines.registry`. If there are any, this machine is used only if it is one of them.
    engines: Mapping[str, Any] = field(default_factory=dict)
    advertise: str = ""  # URLs at which nodes reach this server, comma-separated; empty: where it listens
    allowed_hosts: str = ""  # further allowed host names, comma-separated; see `muster.server.hosts`
    hooks: Mapping[str, Any] = field(default_factory=dict)  # events that are sent elsewhere: see `muster.control.hooks`
    limits: Mapping[str, Any] = field(default_factory=dict)  # see `muster.server.limits`
    trust_members: bool = False  # members' jobs run like an administrator's; see `muster.engines.isolation`
    artifacts: str = ""  # where content is stored: a folder, s3://, gs:// or az://; empty: `blobs` in the home folder
    log_level: str = "info"

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
        known = {field.name for field in fields(cls)} - {"home"}
        for name in values.keys() - known:
            raise ConfigError(f"{source}: `{name}` is not a setting.", did_you_mean(name, sorted(known)))
        settings = cls(home=home, **values)
        settings.check()
        return settings

    def check(self) -> None:
        """Raises ConfigError for settings that can't work or are not safe."""
        if not isinstance(self.port, int) or not 0 <= self.port <= 65535:
            raise ConfigError(f"port is {self.port!r}, a number from 0 to 65535 is expected.", "Choose another port.")
        if not isinstance(self.nodes, int) or not 1 <= self.nodes <= 100_000:
            raise ConfigError(
                f"nodes is {self.nodes!r}, a number from 1 is expected.", "Choose how many logical nodes."
            )
        try:
            parse_duration(self.late_reports)
        except (ValueError, AttributeError) as error:
            raise ConfigError(f"late_reports is {self.late_reports!r}: {error}.", 'Write it like "7d".') from error
        for name in ("log_limit", "log_limit_max"):
            _check_size(name, getattr(self, name))
        if not isinstance(self.trust_members, bool):
            raise ConfigError(f"trust_members is {self.trust_members!r}.", "Write true or false.")
        read_local(check_engines(self.engines).get(LOCAL, {}), self.trust_members)
        Limits.of(self.limits)
        read_hooks(self.hooks)
        for url in self.advertised:
            if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
                raise ConfigError(f"advertise has {url!r}, which is no address.", "Write it like https://HOST:6878.")
        if bool(self.tls_cert) != bool(self.tls_key):
            raise ConfigError("TLS needs both a certificate and its key.", "Give --tls-cert and --tls-key.")
        for path in (self.tls_cert, self.tls_key):
            if path and not Path(path).is_file():
                raise ConfigError(f"The TLS file {path} does not exist.", "Correct the path.")
        if not self.loopback and not self.tls_cert and not self.allow_insecure:
            raise ConfigError(
                f"{self.host} can be reached from other machines, and tokens would cross the network unencrypted.",
                "Give --tls-cert and --tls-key, listen on 127.0.0.1, or say --allow-insecure behind a proxy with TLS.",
            )

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
    def policy_file(self) -> Path | None:
        """A relative path starts from the home folder."""
        return self.home / self.policy if self.policy else None

    @property
    def url_of_store(self) -> str:
        return self.store_url or f"sqlite:///{self.home / 'muster.db'}"


def _check_size(name: str, given: object) -> None:
    try:
        enough = isinstance(given, str) and parse_size(given) >= 4096
    except InvalidValue:
        enough = False
    if not enough:
        raise ConfigError(f"{name} is {given!r}, a size of 4KiB or more is expected.", 'Write it like "64MB".')


def _with_engines(values: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Engines that only the command line names get the default settings of their kind."""
    tables = values.get("engines", {})
    if "engines" not in given or not isinstance(tables, Mapping):
        return {"engines": tables} if "engines" in values else {}
    return {"engines": {**{name: {} for name in given["engines"]}, **tables}}
