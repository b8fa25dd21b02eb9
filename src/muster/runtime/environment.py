"""Captures a worker's environment: its Python with all packages, its image, driver and devices, its machine.

That Python itself lists the packages, in a separate process. The result is cached as long as the folders that it was
read from are unchanged. Secret values are never included: only variables that affect how a program computes are taken,
and none whose name or value is that of a secret.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from muster.inherited import inherited
from muster.runtime.nvml import open_nvml, visible

LIST_SECONDS: Final = 60.0  # seconds for a Python to list its packages
IMAGE: Final = "MUSTER_IMAGE"
_TAKEN: Final = re.compile(
    r"(CUDA|CUBLAS|CUDNN|NCCL|GLOO|UCX|OMP|MKL|OPENBLAS|KMP|TORCH|PYTORCH|TORCHINDUCTOR|TRITON|JAX|XLA|TF|HF_HUB"
    r"|TRANSFORMERS|TOKENIZERS|ROCR|HIP|HSA|SLURM_JOB)_\w+|PYTHONHASHSEED|(\w+_)?SEED|VIRTUAL_ENV|CONDA_DEFAULT_ENV"
    r"|LD_LIBRARY_PATH|LD_PRELOAD|MALLOC_\w+|NVIDIA_(VISIBLE_DEVICES|TF32_OVERRIDE)"
)
_SECRET: Final = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|ACCESS_KEY|PRIVATE|AUTH", re.IGNORECASE)
_PYTHON: Final = re.compile(r"(python|pypy)\d*(\.\d+)?t?")
_VALUE_MAX: Final = 2000  # characters
_ASK: Final = """
import json, sys
from importlib import metadata
found, folders = {}, [path for path in sys.path if path]
for one in metadata.distributions(path=folders):
    text = one.read_text("METADATA") or one.read_text("PKG-INFO") or one.read_text("") or ""
    head = text.partition("\\n\\n")[0].splitlines()  # `one.metadata` would parse the whole description as an e-mail
    about = dict(line.split(": ", 1) for line in reversed(head) if ": " in line)
    if about.get("Name") and about["Name"] not in found:
        found[about["Name"]] = about.get("Version")
python = {"version": sys.version.split()[0], "executable": sys.executable, "prefix": sys.prefix}
sys.stdout.write(json.dumps({"python": python, "packages": found, "folders": folders}))
"""


def capture(
    command: str,
    environment: Mapping[str, str],
    workdir: str,
    secrets: Mapping[str, str],
    cache: Path | None,
    shell: Sequence[str] = (),
) -> dict[str, Any]:
    """Builds the complete document, except for its time. Takes a fraction of a second, and milliseconds from the cache.
    `shell`: a command that reads a script from stdin, for a program that must not run with this process's rights."""
    python = python_of(command, environment, workdir)
    found = _packages(python, environment, workdir, cache, shell) if python else {}
    nvml = open_nvml()
    doc: dict[str, Any] = {
        "type": "environment",
        "python": found.get("python", {}),
        "packages": found.get("packages", {}),
        "host": host(),
        "devices": [],
        "env": chosen(environment, secrets),
        "seeds": seeds(environment),
    }
    if image := image_of(environment):
        doc["image"] = image
    if nvml:
        seen = visible(nvml.devices(), environment)
        doc |= {"driver": nvml.driver(), "cuda": nvml.cuda()}
        doc["devices"] = [{"name": one.name, "uuid": one.uuid, "memory": one.memory} for one in seen]
    return doc


def python_of(command: str, environment: Mapping[str, str], workdir: str) -> str | None:
    """The Python that a command line would use:
    one that it names, that it activates, or that is in the first line of its program; else the first in PATH."""
    path = environment.get("PATH", os.defpath)
    words = _words(command)
    for place, word in enumerate(words):
        if word in (".", "source") and place + 1 < len(words) and words[place + 1].endswith("/activate"):
            return shutil.which(str(Path(workdir, words[place + 1]).parent / "python"))
        if _PYTHON.fullmatch(Path(word).name):
            return _which(word, path, workdir)
    for word in words:
        script = _which(word, path, workdir)
        if script and (found := _first_line(Path(script))):
            return found
    return shutil.which("python", path=path) or shutil.which("python3", path=path)


def host() -> dict[str, Any]:
    """A description of the machine."""
    machine = os.uname()  # `platform` takes as long to import as a launcher takes for all else here
    cpu = machine.machine
    with suppress(OSError):
        named = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        cpu = named[1] if named else cpu
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cpus = len(os.sched_getaffinity(0))
    return {"name": machine.nodename, "kernel": machine.release, "cpu": cpu, "cpus": cpus, "memory": memory}


def image_of(environment: Mapping[str, str], root: Path = Path("/")) -> str:
    """The container's image, as far as known from inside; "" on a bare machine."""
    if named := environment.get(IMAGE) or os.environ.get(IMAGE):
        return named
    with suppress(OSError):
        for line in (root / "run/.containerenv").read_text().splitlines():  # Podman
            if line.startswith("image="):
                return line.partition("=")[2].strip('"')
    if named := environment.get("APPTAINER_CONTAINER") or environment.get("SINGULARITY_CONTAINER"):
        return named
    with suppress(OSError):
        marks = (root / "proc/self/cgroup").read_text()
        if found := re.search(r"(docker|containerd|crio|libpod)[-/:]([0-9a-f]{12,64})", marks):
            return f"{found[1]}:{found[2][:12]}"
    return "docker" if (root / ".dockerenv").exists() else ""


def chosen(environment: Mapping[str, str], secrets: Mapping[str, str]) -> dict[str, str]:
    """The variables that affect how a program computes, without any that might be secret."""
    hidden = [value for value in secrets.values() if value]
    return {
        name: value[:_VALUE_MAX]
        for name, value in sorted(environment.items())
        if _TAKEN.fullmatch(name)
        and name not in secrets
        and not _SECRET.search(name)
        and not any(value and one in value for one in hidden)
    }


def seeds(environment: Mapping[str, str]) -> dict[str, str]:
    names = (name for name in environment if name == "PYTHONHASHSEED" or name.split("_")[-1] == "SEED")
    return {name: environment[name][:100] for name in sorted(names)}


def cache_folder() -> Path:
    """The folder of the package cache."""
    home = os.environ.get("MUSTER_HOME")
    return Path(home or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "muster") / "cache"


def _words(command: str) -> list[str]:
    """Splits a command approximately as a shell does."""
    words = shlex.shlex(command, posix=True, punctuation_chars=True)  # ; and && become separate words
    words.whitespace_split, words.commenters = True, ""
    try:
        return list(words)
    except ValueError:  # an unclosed quote
        return command.split()


def _which(word: str, path: str, workdir: str) -> str | None:
    return shutil.which(str(Path(workdir, word)) if "/" in word else word, path=path)


def _first_line(script: Path) -> str | None:
    """The Python in a script's first line."""
    if not script.is_file():  # reading a pipe would block
        return None
    with suppress(OSError), script.open("rb") as file:
        line = file.readline(500).decode(errors="replace").strip()
        words = line[2:].split() if line.startswith("#!") else []
        if words and _PYTHON.fullmatch(Path(words[0]).name):
            return words[0]
        if len(words) > 1 and Path(words[0]).name == "env" and _PYTHON.fullmatch(words[1]):
            return shutil.which(words[1])
    return None


def _packages(
    python: str, environment: Mapping[str, str], workdir: str, cache: Path | None, shell: Sequence[str]
) -> dict[str, Any]:
    kept = cache / _key(python, environment, workdir) if cache else None
    if kept and (found := _remembered(kept)):
        return found
    began = time.time_ns()
    env = {name: value for name, value in environment.items() if not name.startswith(("MUSTER_", "LD_PRELOAD"))}
    options: dict[str, Any] = {}
    try:
        if shell:
            options = {"env": inherited(os.environ), "cwd": "/", "input": _script(python, env, workdir)}
        else:
            options = {"env": env, "cwd": workdir, "stdin": subprocess.DEVNULL}
        asked = shell or [python, "-c", _ASK]
        answer = subprocess.run(asked, capture_output=True, timeout=LIST_SECONDS, check=True, **options)
        found = dict(json.loads(answer.stdout))
    except (OSError, ValueError, TypeError, subprocess.SubprocessError):
        return {}
    if kept:
        _remember(kept, found, began)
    return found


def _script(python: str, environment: Mapping[str, str], workdir: str) -> bytes:
    """A shell script. The variables are for the Python only, so they are set after everything else."""
    lines = [f"cd {shlex.quote(workdir)} || exit 1"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in environment.items() if name.isidentifier()]
    return "\n".join([*lines, f"exec {shlex.join([python, '-c', _ASK])}", ""]).encode()


def _key(python: str, environment: Mapping[str, str], workdir: str) -> str:
    relevant = [
        python,
        str(Path(python).resolve()),
        environment.get("PYTHONPATH", ""),
        environment.get("PYTHONHOME", ""),
    ]
    if not all(part.startswith("/") for part in environment.get("PYTHONPATH", "/").split(os.pathsep)):
        relevant.append(workdir)  # a relative part depends on it
    return f"environment-{hashlib.sha256(json.dumps(relevant).encode()).hexdigest()[:24]}.json"


def _remembered(kept: Path) -> dict[str, Any] | None:
    try:
        cached = json.loads(kept.read_text())
        same = all(_stamp(folder) == stamp for folder, stamp in cached["stamps"].items())
        return dict(cached["found"]) if same else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _remember(kept: Path, found: dict[str, Any], began: int) -> None:
    stamps = {folder: _stamp(folder) for folder in found["folders"]}
    if any(stamp >= began for stamp in stamps.values()):
        return  # something was installed meanwhile: do not cache this result
    with suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = kept.with_name(f".{kept.name}.{os.getpid()}")
        draft.write_text(json.dumps({"stamps": stamps, "found": found}))
        draft.replace(kept)


def _stamp(folder: str) -> int:
    """When an entry was last added to or removed from a folder; 0 when it does not exist."""
    try:
        return Path(folder).stat().st_mtime_ns
    except OSError:
        return 0
