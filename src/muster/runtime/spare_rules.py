"""Which workers get a spare process for their next attempt, and when that process may become its ranks.

A spare process runs the job's command up to the point where Python would read the program. So the command has to be one
that does nothing before that, and everything that an import may depend on has to be the same in the next attempt.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

from muster import wire
from muster.runtime import processes

MEMORY_LEAST: Final = 1 << 30  # bytes that must be free for a spare process, and
MEMORY_PART: Final = 10  # one part in this many of the machine's memory
# What differs between the attempts and the ranks of a job. No library reads these when it is imported.
_VARYING: Final = frozenset({
    wire.RANK, wire.WORLD_SIZE, wire.LOCAL_RANK, wire.LOCAL_WORLD_SIZE, wire.GROUP_RANK, wire.NODE_RANK,
    wire.MASTER_ADDR, wire.MASTER_PORT,
})  # fmt: skip
_OWN: Final = "MUSTER_"
_PATH: Final = "PYTHONPATH"
_WORD: Final = r"""(?:[\w./:=,+@%^-]|'[^']*'|"[\w\s./:=,+@%^(){}\[\]<>|;&#*?~'-]*"|\$\w+|\$\{\w+\})+"""
_COMMAND: Final = re.compile(
    rf"\s*(?:exec[ \t]+)?(?:[\w./+-]*/)?python(?:\d(?:\.\d+)?)?(?:[ \t]+-[uBO]+)*"
    rf"[ \t]+(?:-m[ \t]+[\w.]+|[\w./+-]+\.py)(?:[ \t]+{_WORD})*\s*",
    re.ASCII,
)
_GLOB: Final = frozenset("*?[~")
_VARIABLE: Final = re.compile(r"\$\{?(\w+)")


def fits(launch: wire.Launch) -> bool:
    """Whether this worker's next attempt may start from a spare process: `python FILE.py` or `python -m MODULE` with
    plain arguments, without secrets and without isolation."""
    if not launch.warm or launch.isolation is not None or launch.secrets or not _COMMAND.fullmatch(launch.run):
        return False
    # The shell expands variables when the spare process starts: a pattern might match other files later.
    return not any(varies(name) or _GLOB & {*launch.envs.get(name, "")} for name in _VARIABLE.findall(launch.run))


def varies(name: str) -> bool:
    """Whether a variable may differ from one attempt, or rank, to another."""
    return name in _VARYING or name.startswith(_OWN)


def same_start(old: wire.Launch, new: wire.Launch) -> bool:
    """Whether the next attempt is started by the same command in the same place."""
    return (old.run, old.workdir, old.devices) == (new.run, new.workdir, new.devices)


def difference(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """The first variable that is not the same in both environments and should be; "" if there is none."""
    for name in sorted({*old, *new}):
        one, other = old.get(name), new.get(name)
        if name == _PATH and one and other:  # the last entry is Muster's own package, in the attempt's folder
            one, other = one.rpartition(os.pathsep)[0], other.rpartition(os.pathsep)[0]
        if one != other and not varies(name):
            return name
    return ""


def changes(env: Mapping[str, str]) -> dict[str, str]:
    """What a spare process has to set to have the environment of a rank."""
    return {name: value for name, value in env.items() if varies(name) or name == _PATH}


def memory_allows() -> bool:
    """Whether the machine has memory for a spare process."""
    whole, free = processes.machine_memory()
    return free >= max(MEMORY_LEAST, whole // MEMORY_PART)
