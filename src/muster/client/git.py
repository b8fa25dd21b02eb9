"""Reads from git the commit, branch, changes and files of a folder. Read-only; runs nothing of the repository."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from muster.client.ignore import SECRET

DIFF_BYTES: Final = 5 << 20
TIMEOUT: Final = 20.0  # seconds for one command
_QUIET: Final = {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}
# A changed .env that was committed once must not be part of the diff.
_BUT_SECRETS: Final = [f":(top,exclude,icase,glob)**/{name}" for name in SECRET]


@dataclass(slots=True)
class Facts:
    """Empty if there is no repository. `files` are paths relative to the folder; None when git can't list them."""

    commit: str = ""
    branch: str = ""
    dirty: bool = False
    remote: str = ""
    diff: bytes = b""
    files: list[str] | None = None
    notes: list[str] = field(default_factory=list)


def look(folder: Path) -> Facts:
    """Never raises: problems are in `notes`."""
    facts = Facts()
    if not any((above / ".git").exists() for above in (folder, *folder.parents)):
        return facts
    try:
        _read(folder, facts)
    except FileNotFoundError:
        facts.notes.append("git is not installed here, so the commit and the changes are unknown")
    except subprocess.TimeoutExpired:
        facts.notes.append(f"git took more than {TIMEOUT:.0f} s, so what it knows is left out")
    except (OSError, _GitError) as error:
        facts.notes.append(f"git could not say what is here: {str(error)[:300]}")
    return facts


def without_password(address: str) -> str:
    """A remote's address without the user and token that it may contain."""
    return re.sub(r"^([a-zA-Z][a-zA-Z0-9+.-]*://)[^/@]*@", r"\1", address.strip())


class _GitError(Exception):
    pass


def _read(folder: Path, facts: Facts) -> None:
    asked = [
        ["status", "--porcelain=v2", "--branch", "--untracked-files=no", "-z"],
        ["ls-files", "-z", "--cached"],
        ["ls-files", "-z", "--others", "--exclude-standard"],
        ["config", "--get", "remote.origin.url"],
    ]
    status, tracked, others, remote = _all(folder, asked)
    changed = False
    for line in status.split("\0"):
        if line.startswith("# branch.oid ") and "(" not in line:
            facts.commit = line.removeprefix("# branch.oid ")
        elif line.startswith("# branch.head ") and "(" not in line:
            facts.branch = line.removeprefix("# branch.head ")[:500]
        elif line and not line.startswith("#"):
            changed = True
    facts.remote = without_password(remote)[:500]
    untracked = [path for path in others.split("\0") if path]
    facts.files = sorted({*(path for path in tracked.split("\0") if path), *untracked})
    facts.dirty = changed or bool(untracked)
    if changed and facts.commit:
        _read_diff(folder, facts)


def _read_diff(folder: Path, facts: Facts) -> None:
    options = ["--binary", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames"]
    (text,) = _all(folder, [["diff", "HEAD", *options, "--", ":/", *_BUT_SECRETS]])
    raw = text.encode("utf-8", "surrogateescape")
    if len(raw) > DIFF_BYTES:
        size = f"{len(raw) / 1e6:.1f} MB; at most {DIFF_BYTES / 1e6:.1f} are taken"
        facts.notes.append(f"the changes against the commit are left out: they have {size}")
    else:
        facts.diff = raw


def _all(folder: Path, commands: Sequence[list[str]]) -> list[str]:
    """The outputs of all commands, run in parallel."""
    # No file system monitor of the repository and no password prompt: nothing is run or fetched.
    git = ["git", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false"]
    started = [
        subprocess.Popen(
            [*git, *command],
            cwd=folder,
            env={**os.environ, **_QUIET},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for command in commands
    ]
    try:
        return [_answer(process, command) for process, command in zip(started, commands, strict=True)]
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
            process.communicate()


def _answer(process: subprocess.Popen[bytes], command: list[str]) -> str:
    output, problem = process.communicate(timeout=TIMEOUT)
    if process.returncode and command[0] != "config":  # config fails if there is no remote
        raise _GitError(f"git {command[0]}: {problem.decode(errors='replace').strip()}")
    return output.decode("utf-8", "surrogateescape")
