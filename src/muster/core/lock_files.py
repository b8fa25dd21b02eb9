"""Reads lock files of Python environments: which package in which version, of uv, Poetry, PDM, pip and Pipenv."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

BYTES_MAX: Final = 16 << 20  # of a lock file
_PACKAGES_MAX: Final = 20_000
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,198}[A-Za-z0-9])?")
_PINNED: Final = re.compile(rf"({_NAME.pattern})\s*(?:\[[^\]]*\])?\s*===?\s*([^\s;,#]+)")
_REQUIREMENTS: Final = re.compile(r"requirements[\w.-]*\.(txt|lock)")


class NoLock(ValueError):
    """The file is no lock file, or can't be read; the text says why."""


def is_lock_file(name: str) -> bool:
    return name in _READERS or bool(_REQUIREMENTS.fullmatch(name)) or bool(_PYLOCK.fullmatch(name))


def read_lock(name: str, raw: bytes) -> dict[str, tuple[str, ...]]:
    """Package, by its normalised name → its versions. Raises NoLock."""
    if len(raw) > BYTES_MAX:
        raise NoLock(f"it has {len(raw):,} bytes, and {BYTES_MAX:,} are read")
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise NoLock("it is no text in UTF-8") from None
    base = PurePosixPath(name).name
    reader = _READERS.get(base) or (_pylock if _PYLOCK.fullmatch(base) else _requirements)
    try:
        found = reader(text)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise NoLock(str(error) if isinstance(error, NoLock) else f"it can't be read: {type(error).__name__}") from None
    if len(found) > _PACKAGES_MAX:
        raise NoLock(f"it has more than {_PACKAGES_MAX:,} packages")
    merged: dict[str, list[str]] = {}
    for package, version in found:
        merged.setdefault(normalised(package), []).append(version)
    return {package: tuple(dict.fromkeys(versions)) for package, versions in merged.items()}


def normalised(package: str) -> str:
    """The name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", package).lower()


Pins = list[tuple[str, str]]


def _requirements(text: str) -> Pins:
    """Requirements of pip with a version and hashes for each: without them it is a wish, and no lock."""
    found: Pins = []
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        words = re.sub(r"(^|\s)#.*", "", line).strip()
        if not words or (words.startswith("-") and not words.startswith(("-r", "--requirement", "-e", "--editable"))):
            continue
        pinned = _PINNED.match(words)
        if pinned is None:
            raise NoLock(f"{words[:60]!r} has no version of the form `name==1.2.3`")
        if "--hash=" not in words:
            raise NoLock(f"{pinned[1]} has no `--hash`")
        found.append((pinned[1], pinned[2]))
    if not found:
        raise NoLock("it names no package")
    return found


def _toml_list(text: str, key: str) -> Pins:
    listed = tomllib.loads(text)[key]
    # A package without a version is the project itself, or one from a folder.
    return [_pin(one) for one in listed if one.get("version") is not None]


def _pylock(text: str) -> Pins:
    return _toml_list(text, "packages")


def _packages(text: str) -> Pins:
    return _toml_list(text, "package")


def _pipenv(text: str) -> Pins:
    found = json.loads(text)
    both = [*found.get("default", {}).items(), *found.get("develop", {}).items()]
    return [(_text(name), _text(one["version"]).lstrip("=")) for name, one in both if "version" in one]


def _pin(one: Mapping[str, Any]) -> tuple[str, str]:
    return _text(one["name"]), _text(one["version"])


def _text(value: object) -> str:
    if not isinstance(value, str) or not value or len(value) > 200:
        raise NoLock("a name or a version in it is no text")
    return value


_PYLOCK: Final = re.compile(r"pylock(\.[^./]+)?\.toml")
_READERS: Final[Mapping[str, Callable[[str], Pins]]] = {
    "uv.lock": _packages,
    "poetry.lock": _packages,
    "pdm.lock": _packages,
    "Pipfile.lock": _pipenv,
}
