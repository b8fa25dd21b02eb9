"""The settings of a Slurm engine, and their checks."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

from muster.core.errors import ConfigError
from muster.core.suggest import did_you_mean
from muster.core.units import PRIORITIES, InvalidValue, parse_duration
from muster.engines.describe import Home
from muster.engines.isolation import KEYS, IsolationSettings, read_isolation

# The variables that a job inherits from the server's environment; it inherits nothing else.
KEPT: Final = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "MODULEPATH",
    "LD_LIBRARY_PATH",
)
_DURATIONS: Final = ("look_every", "nodes_every", "claim_within", "linger")


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """One pool: a partition, and defaults for its jobs."""

    partition: str
    accelerator: str = ""  # the name of its GPUs, where Slurm has no name for them
    qos: str = ""
    account: str = ""


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    root: Path  # a folder that the server and every node see under this path
    python: str = sys.executable  # on the nodes, 3.11 or newer
    checkpoints: str = ""  # default: below `root`
    scratch: str = ""  # a folder local to each node
    address: str = ""  # address of worker 0 for the other workers; default: found automatically
    linger: float = 300.0  # seconds that a launcher holds its node while the server is away
    look_every: float = 3.0
    nodes_every: float = 15.0
    depth: float = 2.0  # slots per machine, which limit the hand-over: enough for Slurm's backfill
    claim_within: float = 60.0  # seconds that a requeued job waits for the server
    account: str = ""
    qos: str = ""
    priority: str = "nice"  # nice, qos or none
    nice_scale: int = 100
    priority_qos: Mapping[str, str] = field(default_factory=dict)  # minimum priority → QOS
    pools: Mapping[str, PoolSettings] = field(default_factory=dict)  # default: one per partition
    environment: tuple[str, ...] = KEPT
    extra: tuple[str, ...] = ()  # further sbatch options for every job
    switch: str = ""  # the level of a job's `topology` that the nodes of one leaf switch share, such as rack
    tools: str = ""  # the folder of sbatch and the other tools
    conf: str = ""  # SLURM_CONF
    rest: str = ""  # slurmrestd: unix:/path or a URL
    rest_version: str = "v0.0.38"
    token_file: str = ""  # holds the JWT for slurmrestd
    rest_user: str = ""  # the user of the token
    isolation: IsolationSettings = field(default_factory=IsolationSettings)


def check(name: str, given: Mapping[str, Any], home: Home) -> SlurmSettings:
    """Checks the settings. Raises ConfigError for invalid ones."""
    where = f"engines.{name}"
    known = {item.name for item in fields(SlurmSettings)} - {"isolation"} | KEYS
    _no_others(where, given, known)
    values: dict[str, Any] = {"root": home.folder.absolute() / "slurm", "scratch": f"/tmp/muster-{_user()}"}  # noqa: S108
    for key in given.keys() - KEYS:
        values[key] = _value(f"{where}.{key}", key, given[key])
    values["isolation"] = read_isolation(where, given, home.trust_members)
    found = SlurmSettings(**values)
    if not found.root.is_absolute():
        raise ConfigError(f"{where}.root is {str(found.root)!r}.", "Give a path that begins with `/`.")
    if found.priority not in ("nice", "qos", "none"):
        raise ConfigError(f"{where}.priority is {found.priority!r}.", "Write `nice`, `qos` or `none`.")
    if (found.priority == "qos") != bool(found.priority_qos):
        raise ConfigError(
            f'{where}.priority = "qos" and {where}.priority_qos go together.',
            f'Write [{where}.priority_qos] with lines such as high = "urgent".',
        )
    if found.rest and not found.rest.startswith(("unix:/", "http://", "https://")):
        raise ConfigError(f"{where}.rest is {found.rest!r}.", "Write unix:/path/of/socket or http://HOST:6820.")
    if found.depth < 1:
        raise ConfigError(f"{where}.depth is {found.depth:g}.", "Give 1 or more.")
    return replace(found, checkpoints=found.checkpoints or str(found.root / "checkpoints"))


def _value(where: str, key: str, value: Any) -> Any:
    if key == "root":
        return Path(str(value)).expanduser()
    if key in _DURATIONS:
        return _duration(where, value)
    if key == "depth" and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if key == "nice_scale" and isinstance(value, int) and not isinstance(value, bool):
        return value
    if key in ("environment", "extra") and isinstance(value, list) and all(isinstance(v, str) for v in value):
        return tuple(value)
    if key == "pools" and isinstance(value, Mapping):
        return {pool: _pool(f"{where}.{pool}", pool, raw) for pool, raw in value.items()}
    if key == "priority_qos" and isinstance(value, Mapping):
        return {str(level): _text(f"{where}.{level}", qos) for level, qos in value.items() if _level(where, level)}
    if key in ("depth", "nice_scale", "environment", "extra", "pools", "priority_qos"):
        raise ConfigError(f"{where} is {value!r}, which is of the wrong kind.", "See docs/engines.md.")
    return _text(where, value)


def _pool(where: str, pool: str, raw: Any) -> PoolSettings:
    if not isinstance(raw, Mapping):
        raise ConfigError(f"{where} is {raw!r}; a table is expected.", f"Write [{where}].")
    _no_others(where, raw, {item.name for item in fields(PoolSettings)})
    return PoolSettings(**{"partition": pool, **{key: _text(f"{where}.{key}", value) for key, value in raw.items()}})


def _level(where: str, level: str) -> int:
    """A priority by its name or number, plus 1 so that 0 counts as true."""
    number = PRIORITIES.get(str(level), int(level) if str(level).isdigit() else -1)
    if not 0 <= number <= 100:
        raise ConfigError(f"{where}: {level!r} is no priority.", f"Use {', '.join(PRIORITIES)} or a number to 100.")
    return number + 1


def _text(where: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{where} is {value!r}; a text is expected.", "Put it in quotes.")
    return value


def _duration(where: str, value: Any) -> float:
    try:
        found = parse_duration(str(value)) if not isinstance(value, bool) else -1.0
    except InvalidValue:
        found = -1.0
    if found <= 0:
        raise ConfigError(f"{where} is {value!r}, which is no duration.", 'Write it like "5s" or "2m".')
    return found


def _no_others(where: str, given: Mapping[str, Any], known: set[str]) -> None:
    for key in given.keys() - known:
        raise ConfigError(f"{where}: `{key}` is not a setting.", did_you_mean(key, sorted(known)))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "user"
