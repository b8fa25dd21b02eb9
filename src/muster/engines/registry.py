"""The registry of engine kinds, and the check of the server's `engines` settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, Final

from muster.core.errors import ConfigError
from muster.core.suggest import closest, did_you_mean
from muster.engines.describe import Home
from muster.engines.remote import Adapter, RemoteEngine

LOCAL: Final = "local"
# Kind → module with its `read(name, settings, home)`, loaded on demand because some need packages of their own.
KINDS: Final[dict[str, str]] = {
    "ray": "muster.engines.ray.config",
    "slurm": "muster.engines.slurm.config",
    "kubernetes": "muster.engines.kubernetes.config",
}
# `read` builds the adapter from the settings. Raises ConfigError for invalid settings, and connects to nothing.
Read = Callable[[str, Mapping[str, Any], Home], Adapter]
_NAME: Final = re.compile(r"[a-z]([a-z0-9-]{0,48}[a-z0-9])?\Z")


def check_engines(raw: object) -> dict[str, dict[str, Any]]:
    """Checks `engines` of the server's settings. Returns name → settings, each with its kind. Raises ConfigError."""
    if not isinstance(raw, Mapping):
        raise ConfigError(f"engines is {raw!r}; tables such as [engines.slurm] are expected.", "See docs/engines.md.")
    found: dict[str, dict[str, Any]] = {}
    for name, given in raw.items():
        if not isinstance(given, Mapping):
            raise ConfigError(f"engines.{name} is {given!r}; a table is expected.", f"Write [engines.{name}].")
        if not _NAME.match(str(name)):
            raise ConfigError(f"{name!r} can't be an engine's name.", "Use lower case letters, digits and `-`.")
        kind = given.get("kind", name)
        if kind not in (LOCAL, *KINDS):
            hint = did_you_mean(str(kind), (LOCAL, *KINDS), quote="'")
            raise ConfigError(f"engines.{name}: there is no kind {kind!r}.", hint)
        if kind == LOCAL and name != LOCAL:
            raise ConfigError(f"engines.{name}: this machine is the engine `local`.", "Write [engines.local].")
        found[str(name)] = {**given, "kind": kind}
    return found


def how_to_add(name: str, there: Iterable[str]) -> str:
    """What to type for an engine that is not set up, beside those that are."""
    known = list(there)
    near = closest(name, (*known, *KINDS)) if name not in (LOCAL, *KINDS) else None
    if near is not None:
        return f"Did you mean `{near}`?"
    own = name in (LOCAL, *KINDS)
    kinds = " or ".join(f'`"{kind}"`' for kind in KINDS)
    kind = "" if own else f", with `kind` set to {kinds} below it,"
    now = f", or start it with `muster up --engine {name}`" if own else ""
    page = name if name in KINDS else "engines"
    return (
        f"There are: {', '.join(known)}. Add the table `[engines.{name}]`{kind} to config.toml of the server's home "
        f"folder and start the server again{now}; docs/{page}.md has its settings."
    )


def make_adapter(name: str, settings: Mapping[str, Any], home: Home) -> Adapter:
    read: Read = import_module(KINDS[settings["kind"]]).read
    return read(name, {key: value for key, value in settings.items() if key != "kind"}, home)


def make_engine(name: str, settings: Mapping[str, Any], home: Home) -> RemoteEngine:
    return RemoteEngine(name, make_adapter(name, settings, home))
