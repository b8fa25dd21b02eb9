"""Runs real rank processes and reads back what they reported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from muster import wire
from muster.control.decode import Decoded, decode
from muster.runtime.spool import SpoolReader

SECONDS = 60  # no script here takes nearly as long
EVERYTHING = 1 << 30


def environment(folder: Path | None, **more: str) -> dict[str, str]:
    """That of a rank whose folder is `folder`, or of a script that runs alone."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("MUSTER_") and k not in (wire.RANK, wire.WORLD_SIZE)}
    return env | ({wire.RANK_DIR: str(folder)} if folder else {}) | more


def run(script: str, folder: Path | None, *args: Any, cwd: Path | None = None, **more: str) -> str:
    """Runs a script to its end and returns what it printed; its stderr is in the error when it fails."""
    command = [sys.executable, "-c", script, *map(str, args)]
    env = environment(folder, **more)
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def start(script: str, folder: Path, *args: Any, **more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *map(str, args)]
    return subprocess.Popen(
        command, env=environment(folder, **more), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def stream(folder: Path) -> bytes:
    """All that is in a rank's spool, once the rank is dead."""
    return SpoolReader(folder).read(0, EVERYTHING, final=True)


def recovered(folder: Path) -> Decoded:
    return decode(stream(folder), {})


def documents(folder: Path, kind: str) -> list[dict[str, Any]]:
    return [doc for doc in recovered(folder).docs if doc["type"] == kind]
