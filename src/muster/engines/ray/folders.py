"""An agent's folders on its node, and the environment of ranks, which inherits little of Ray's own."""

from __future__ import annotations

import getpass
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import muster
from muster.core.errors import EngineError
from muster.inherited import for_launcher
from muster.wire import SCRATCH

# Ray sets these for its own workers; ranks get the raylet's values, or those of the job's runtime_env.
_RAYS_OWN: Final = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "PYTHONBREAKPOINT", "SPT_NOENV")


@dataclass(frozen=True, slots=True)
class NodeFolders:
    scratch: Path  # for all agents of this Muster on the node
    root: Path  # this agent's
    checkpoints: Path
    urls: Path
    certificate: Path


def make_folders(settings: Mapping[str, Any]) -> NodeFolders:
    """Creates the folders, for this user only. Raises EngineError if the folder belongs to another user."""
    name = f"muster-{getpass.getuser()}"
    base = Path(settings["scratch"]) if settings["scratch"] else Path(tempfile.gettempdir()) / name
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not settings["scratch"] and (base.is_symlink() or base.stat().st_uid != os.geteuid()):
        hint = "Remove it, or set `scratch` in the engine's settings."
        raise EngineError(f"{base} belongs to somebody else.", hint)
    scratch = base / settings["installation"]
    root = scratch / "nodes" / settings["node"].replace("/", "_") / settings["name"]
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    checkpoints = Path(settings["checkpoints"]) if settings["checkpoints"] else scratch / "checkpoints"
    return NodeFolders(scratch, root, checkpoints, root / "urls.json", root / "ca.pem")


def copy_package(folders: NodeFolders) -> Path:
    """A copy of the shipped package that stays when Ray deletes its own, because launchers outlive the agent."""
    source = Path(muster.__file__).resolve().parent
    place = folders.scratch / "packages" / source.parent.name
    if not place.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
        shutil.copytree(source, draft / "muster", ignore=shutil.ignore_patterns("__pycache__"))
        try:
            draft.rename(place)
        except OSError:  # another agent was first
            shutil.rmtree(draft, ignore_errors=True)
    return place


def ranks_environment(
    own: Mapping[str, str], runtime_env: Mapping[str, Any], package: Path, scratch: Path, more: Iterable[str] = ()
) -> dict[str, str]:
    """What launchers need of the agent's environment, without Ray's additions, and with the Python of Ray's workers
    first in PATH. `more`: names that ranks inherit besides the usual ones."""
    asked = {str(name): str(value) for name, value in (runtime_env.get("env_vars") or {}).items()}
    before = _environment_of(raylet()[0])
    shipped = str(Path(muster.__file__).resolve().parents[1])
    env = {
        name: value
        for name, value in for_launcher(own, more).items()
        if not name.startswith("RAY_") and name not in _RAYS_OWN
    }
    env |= {name: before[name] for name in _RAYS_OWN if name in before} | asked
    paths = [part for part in env.get("PYTHONPATH", "").split(os.pathsep) if part and part != shipped]
    env["PYTHONPATH"] = os.pathsep.join([str(package), *paths])
    env["PATH"] = os.pathsep.join(filter(None, [str(Path(sys.executable).parent), env.get("PATH", os.defpath)]))
    env[SCRATCH] = str(scratch)
    return env


def raylet() -> tuple[int, int]:
    """Process id and start ticks of this node's raylet."""
    pid = int(os.environ.get("RAY_RAYLET_PID", 0)) or os.getppid()
    raw = Path(f"/proc/{pid}/stat").read_bytes()
    return pid, int(raw[raw.rindex(b")") + 2 :].split()[19])


def _environment_of(pid: int) -> dict[str, str]:
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (item.partition(b"=") for item in raw.split(b"\0") if item)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
