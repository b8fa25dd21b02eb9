"""Parameters of a study that its program does not seem to read: all of its trials would do the same."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from muster.client.ignore import MADE, Ignore
from muster.client.study_file import StudyFile

FILES_MAX: Final = 2_000  # in a folder with more it can't be told
BYTES_MAX: Final = 1_000_000  # of a file that is read
_HEAD: Final = 8_192  # bytes in which a binary file has a NUL
_STUDY: Final = re.compile(rb"^\s*[\"']?space[\"']?\s*:", re.MULTILINE)
_NO_PROGRAM: Final = (".md", ".rst", ".log", ".csv", ".jsonl", ".lock")


def unread(study: StudyFile) -> list[str]:
    """A sentence for each parameter of which neither the name nor the variable is in the command, or in a text file of
    the job's folder. Nothing where that can't be told: a folder elsewhere, without a program, or with too many files.
    """
    spec = study.spec
    if spec is None or not study.names or not spec.workdir:
        return []
    left = {name: _pattern(name) for name in study.names if not _pattern(name).search(spec.run.encode())}
    folder, programs = Path(spec.workdir), 0
    if not left or not folder.is_dir():
        return []
    for number, path in enumerate(_files(folder)):
        if number >= FILES_MAX:
            return []
        text = _text(path, study.read)
        programs += bool(text)
        left = {name: pattern for name, pattern in left.items() if not pattern.search(text)}
        if not left:
            return []
    return [_told(name, folder) for name in left] if programs else []


def _pattern(name: str) -> re.Pattern[bytes]:
    """The name, its last part, and its variable, as whole words; `-` and `_` are the same."""
    from muster.tune.trial_spec import env_name  # noqa: PLC0415  (pydantic)

    names = {name, name.rpartition(".")[2], name.replace("-", "_"), name.replace("_", "-"), env_name(name)}
    words = "|".join(re.escape(one) for one in sorted(names, key=len, reverse=True))
    return re.compile(rf"(?<![A-Za-z0-9_])(?:{words})(?![A-Za-z0-9_])".encode())


def _files(root: Path) -> Iterator[Path]:
    ignore, left = Ignore(root, (".gitignore", ".musterignore"), MADE), [""]
    while left:
        folder = left.pop()
        try:
            entries = sorted(os.scandir(root / folder), key=lambda one: one.name)
        except OSError:
            continue
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if ignore.skips(path, is_folder):
                continue
            if is_folder:
                left.append(path)
            elif entry.is_file():
                yield root / path


def _text(path: Path, ours: Sequence[Path]) -> bytes:
    """Empty for what is no part of a program: the files of the study itself, and others like them."""
    try:
        if path in ours or path.suffix in _NO_PROGRAM or path.stat().st_size > BYTES_MAX:
            return b""
        text = path.read_bytes()
    except OSError:
        return b""
    if b"\0" in text[:_HEAD] or (path.suffix in (".yaml", ".yml", ".json") and _STUDY.search(text)):
        return b""
    return text


def _told(name: str, folder: Path) -> str:
    from muster.tune.trial_spec import env_name  # noqa: PLC0415

    variable = env_name(name)
    return (
        f"nothing seems to read `{name}`: neither it nor {variable} is in the command or in a file of {folder}. "
        f'Read it with `os.environ["{variable}"]`, or add ${variable} to the command.'
    )
