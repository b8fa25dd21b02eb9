"""Refuses a plain command that can't be found, before it costs a launch. Only for jobs that run on this machine."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

from muster.control.admission.base import Context
from muster.control.admission.pools import here
from muster.core.reasons import Reason, reason
from muster.core.spec import JobSpec

# Checks only a first word that the shell would use unchanged; anything more complex is left to the shell.
_PLAIN = re.compile(r"[\w./+@%-]+\Z")
_SHELL_WORDS = re.compile(
    r"(?:[.:]|\[\[?|alias|bg|break|builtin|case|cd|command|compgen|continue|declare|dirs|echo|enable|eval|exec|exit|export"
    r"|false|fg|for|function|getopts|hash|help|history|if|jobs|kill|let|local|mapfile|popd|printf|pushd|pwd|read|readonly"
    r"|return|select|set|shift|shopt|source|test|time|times|trap|true|type|typeset|ulimit|umask|unalias|unset|until|wait"
    r"|while)\Z"
)

_PYTHON = re.compile(r"/(?:[^\0]*/)?python[\d.]*")  # a path that an interpreter may have
_SHOWN = 200  # characters of a command that a hint shows


def check(spec: JobSpec, context: Context) -> Reason | None:
    words = spec.run.split(maxsplit=1)
    if not words or not _PLAIN.match(words[0]) or _SHELL_WORDS.match(words[0]) or not here(spec, context):
        return None
    word, folder = words[0], Path(spec.workdir or "/")
    path = spec.envs.get("PATH", os.environ.get("PATH"))
    found = (folder / word).exists() if "/" in word else shutil.which(word, path=path) is not None
    if found or not folder.is_dir() or f"{word}()" in spec.run:
        return None
    if "/" in word:
        return reason("no_command", f"`{word}` does not exist in {folder}", command=word)
    told = f"`{word}` does not exist on the PATH that the job would have"
    instead = _instead(word, path, context.python)
    if not instead:
        return reason("no_command", told, command=word)
    first_line = " ".join([shlex.quote(instead), *words[1:]]).splitlines()[0]
    return reason("no_command", told, f"Write `{_shortened(first_line)}`.", command=word, instead=instead)


def _instead(word: str, path: str | None, python: str) -> str:
    """What to write instead of a program that is not on the PATH; "" if nothing is known to work.

    The interpreter that submits has the packages that the user expects, so it is preferred. It may be on another
    machine: only what exists on this one counts.
    """
    mine = Path(python) if _PYTHON.fullmatch(python) and os.access(python, os.X_OK) else None
    if word not in ("python", "python3"):
        beside = str(mine.parent / word) if mine is not None else ""
        return beside if beside and os.access(beside, os.X_OK) else ""
    others = {name: Path(found) for name in ("python3", "python") if (found := shutil.which(name, path=path))}
    if mine is not None:
        return next((name for name, other in others.items() if _same(mine, other)), str(mine))
    return next(iter(others), "")


def _same(one: Path, other: Path) -> bool:
    """Whether both are the same interpreter, in the same folder: a virtual environment's is a link to another's."""
    return one.parent.resolve() == other.parent.resolve() and one.samefile(other)


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} …"
