"""What this machine's files say about a job. Looked up before the commit: a hung folder delays one request, not all."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from muster.core.spec import JobSpec

# Only a first word that the shell would use unchanged is looked up; anything more complex is left to the shell.
_PLAIN = re.compile(r"[\w./+@%-]+\Z")
_SHELL_WORDS = re.compile(
    r"(?:[.:]|\[\[?|alias|bg|break|builtin|case|cd|command|compgen|continue|declare|dirs|echo|enable|eval|exec|exit|export"
    r"|false|fg|for|function|getopts|hash|help|history|if|jobs|kill|let|local|mapfile|popd|printf|pushd|pwd|read|readonly"
    r"|return|select|set|shift|shopt|source|test|time|times|trap|true|type|typeset|ulimit|umask|unalias|unset|until|wait"
    r"|while)\Z"
)
_PYTHON = re.compile(r"/(?:[^\0]*/)?python[\d.]*")  # a path that an interpreter may have


@dataclass(frozen=True, slots=True)
class FileFindings:
    """What was found for one job."""

    workdir: bool = True  # whether its working directory exists
    missing: str = ""  # the program that it starts with, if it was not found
    instead: str = ""  # what to write in place of that; "" if nothing is known to work


NO_FINDINGS: Final = FileFindings()


class Disk:
    """This machine's files."""

    def is_folder(self, path: str) -> bool:
        try:
            return Path(path).is_dir()
        except OSError:
            return False

    def exists(self, path: str) -> bool:
        try:
            return Path(path).exists()
        except OSError:
            return False

    def is_program(self, path: str) -> bool:
        return os.access(path, os.X_OK)

    def which(self, word: str, path: str | None) -> str:
        """The program of that name on a PATH; "" if there is none."""
        return shutil.which(word, path=path) or ""

    def same(self, one: str, other: str) -> bool:
        """Whether both are one program in one folder: the Python of a virtual environment is a link to another's."""
        first, second = Path(one), Path(other)
        return first.parent.resolve() == second.parent.resolve() and first.samefile(second)


class Files:
    """Looks up what a request needs to know, each path once, however many jobs it submits. For one thread."""

    def __init__(self, disk: Disk | None = None) -> None:
        self._disk = disk or Disk()
        self._folders: dict[str, bool] = {}
        self._missing: dict[tuple[str, str | None], bool] = {}  # (word, PATH) or (path, None)
        self._instead: dict[tuple[str, str | None, str], str] = {}

    def look(self, spec: JobSpec, python: str = "") -> FileFindings:
        """`python`: path of the interpreter that submits, on the machine where it runs."""
        if spec.workdir is not None and not Path(spec.workdir).is_absolute():
            return FileFindings()
        folder = spec.workdir or "/"
        if folder not in self._folders:
            self._folders[folder] = self._disk.is_folder(folder)
        word = _first_word(spec.run)
        if not self._folders[folder] or not word:
            return FileFindings(self._folders[folder])
        if "/" in word:
            return FileFindings(missing=word if self._is_missing(str(Path(folder) / word), None) else "")
        path = spec.envs.get("PATH", os.environ.get("PATH"))
        if not self._is_missing(word, path):
            return FileFindings()
        key = (word, path, python)
        if key not in self._instead:
            self._instead[key] = self._find_instead(word, path, python)
        return FileFindings(missing=word, instead=self._instead[key])

    def _is_missing(self, word: str, path: str | None) -> bool:
        key = (word, path)
        if key not in self._missing:
            found = self._disk.exists(word) if "/" in word else self._disk.which(word, path)
            self._missing[key] = not found
        return self._missing[key]

    def _find_instead(self, word: str, path: str | None, python: str) -> str:
        """What to write instead of a program that is not on the PATH.

        The interpreter that submits has the packages that the user expects, so it is preferred. It may be on another
        machine: only what exists on this one counts.
        """
        mine = python if _PYTHON.fullmatch(python) and self._disk.is_program(python) else ""
        if word not in ("python", "python3"):
            beside = str(Path(mine).parent / word) if mine else ""
            return beside if beside and self._disk.is_program(beside) else ""
        others = {name: found for name in ("python3", "python") if (found := self._disk.which(name, path))}
        if mine:
            return next((name for name, other in others.items() if self._disk.same(mine, other)), mine)
        return next(iter(others), "")


def _first_word(run: str) -> str:
    """The program that the shell would start first; "" if that is not a plain word, or is the shell's own."""
    word = next(iter(run.split(maxsplit=1)), "")
    return word if _PLAIN.match(word) and not _SHELL_WORDS.match(word) and f"{word}()" not in run else ""
