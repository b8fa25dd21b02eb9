"""Secrets in a job file: its variables, command and other texts. What names a secret of the project is fine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from muster.scan.findings import MOST, Finding
from muster.scan.secrets import OutOfTime, secrets_in, secrets_in_env

_SKIP: Final = frozenset({"secrets", "workdir", "project", "queue", "pool", "version", "name"})
_DEPTH: Final = 8


def secrets_in_job(values: Mapping[str, Any]) -> list[Finding]:
    """The secrets of a job's fields, named as in the job file: `envs.TOKEN`, `run`, `tags.key`."""
    found: list[Finding] = []
    for name, value in values.items():
        if name in ("envs", "env") and isinstance(value, Mapping):
            found += secrets_in_env({str(key): str(one) for key, one in value.items()}, name)
        elif name not in _SKIP:
            _look(name, value, found, 0)
    return found[:MOST]


def _look(place: str, value: Any, found: list[Finding], depth: int) -> None:
    if isinstance(value, str):
        try:
            found += secrets_in(value, place, numbered="\n" in value)
        except OutOfTime:
            found.append(Finding("not_scanned", place, "it takes too long to search", "Make it shorter."))
    elif depth < _DEPTH and isinstance(value, Mapping):
        for key, one in value.items():
            if isinstance(one, str) and str(key):
                found += [
                    Finding(each.sort, f"{place}.{key}", each.what, each.hint)
                    for each in secrets_in_env({str(key): one}, place)
                ]
            else:
                _look(f"{place}.{key}", one, found, depth + 1)
    elif depth < _DEPTH and isinstance(value, list | tuple):
        for at, one in enumerate(value):
            _look(f"{place}[{at}]", one, found, depth + 1)
