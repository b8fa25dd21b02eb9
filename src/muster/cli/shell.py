"""What a job inherits from the shell in which it was submitted."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from muster.cli.call import Usage

# So that `python` is the python of the shell in which the command was typed.
SHELL_ENVS = ("PATH", "VIRTUAL_ENV", "CONDA_PREFIX")


def shell_envs() -> dict[str, str]:
    """This shell's Python environment; if none is active and `muster` was called by its path, the one that it is in."""
    envs = {name: os.environ[name] for name in SHELL_ENVS if os.environ.get(name)}
    if sys.prefix != sys.base_prefix and not {"VIRTUAL_ENV", "CONDA_PREFIX"} & envs.keys():
        envs["PATH"] = os.pathsep.join(filter(None, [str(Path(sys.prefix) / "bin"), envs.get("PATH")]))
    return envs


def parse_envs(pairs: Sequence[str]) -> dict[str, str]:
    """Parses `K=V`; a bare `K` takes its value from this shell."""
    envs = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals and name not in os.environ:
            raise Usage(f"--env {name}: no value, and {name} is not set in this shell.", f"Write --env {name}=VALUE.")
        envs[name] = value if equals else os.environ[name]
    return envs
