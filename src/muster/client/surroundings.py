"""What a job takes from the shell or program that submits it: the current folder, and which Python it is."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Final

# So that `python` is the python of the shell in which the command was typed.
SHELL_ENVS: Final = ("PATH", "VIRTUAL_ENV", "CONDA_PREFIX")


def surroundings(folder: Path, local: bool) -> dict[str, Any]:
    """The fields that fill in what a job leaves out. `local`: the server is on this machine, with the same files."""
    envs = shell_envs() if local else {}
    return {"workdir": str(folder), **({"envs": envs} if envs else {})}


def shell_envs() -> dict[str, str]:
    """This shell's Python environment; if none is active and `muster` was called by its path, the one that it is in."""
    envs = {name: os.environ[name] for name in SHELL_ENVS if os.environ.get(name)}
    if sys.prefix != sys.base_prefix and not {"VIRTUAL_ENV", "CONDA_PREFIX"} & envs.keys():
        envs["PATH"] = os.pathsep.join(filter(None, [str(Path(sys.prefix) / "bin"), envs.get("PATH")]))
    return envs
