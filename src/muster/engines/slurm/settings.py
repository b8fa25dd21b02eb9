"""The settings of a Slurm engine, and their checks."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from muster.core.config import Table
from muster.engines.describe import Home
from muster.engines.isolation import IsolationSettings, read_isolation

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
_TEXTS: Final = (
    "python", "checkpoints", "scratch", "address", "account", "qos", "switch", "tools", "conf", "rest", "rest_version",
    "token_file", "rest_user",
)  # fmt: skip


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
    """Reads the settings. Raises ConfigError with every mistake."""
    table = Table(f"engines.{name}", given)
    root = Path(table.text("root", str(home.folder.absolute() / "slurm"))).expanduser()
    usual = SlurmSettings(root, scratch=f"/tmp/muster-{_user()}")  # noqa: S108
    values: dict[str, Any] = {key: table.text(key, getattr(usual, key)) for key in _TEXTS}
    values |= {key: table.duration(key, getattr(usual, key)) for key in _DURATIONS}
    found = SlurmSettings(
        root=root,
        depth=table.number("depth", usual.depth, 1, 1000),
        nice_scale=table.whole("nice_scale", usual.nice_scale),
        priority=table.text("priority", usual.priority, among=("nice", "qos", "none")),
        priority_qos=table.by_priority("priority_qos"),
        pools={pool: _pool(pool, one) for pool, one in table.tables("pools").items()},
        environment=table.texts("environment", usual.environment),
        extra=table.texts("extra", usual.extra),
        isolation=read_isolation(table, home.trust_members),
        **values,
    )
    where = table.where
    if not root.is_absolute():
        table.mistakes.add(f"{where}.root is {str(root)!r}.", "Give a path that begins with `/`.")
    if (found.priority == "qos") != bool(found.priority_qos):
        hint = f'Write [{where}.priority_qos] with lines such as high = "urgent".'
        table.mistakes.add(f'{where}.priority = "qos" and {where}.priority_qos go together.', hint)
    if found.rest and not found.rest.startswith(("unix:/", "http://", "https://")):
        table.wrong("rest", "an address", "Write unix:/path/of/socket or http://HOST:6820.")
    table.finish()
    return replace(found, checkpoints=found.checkpoints or str(root / "checkpoints"))


def _pool(name: str, table: Table) -> PoolSettings:
    found = PoolSettings(
        table.text("partition", name), table.text("accelerator"), table.text("qos"), table.text("account")
    )
    table.refuse_others()
    return found


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "user"
