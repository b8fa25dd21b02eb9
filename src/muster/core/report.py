"""The mistakes found in a file so far, and functions that format the location and the value of a mistake."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from muster.core.errors import Problem

MAX_PROBLEMS: Final = 100  # reading stops here: more problems do not help the user

At = tuple[str | int, ...]  # the location of a value in the file: keys and list positions from the top


class Stop(Exception):
    """Reading can't continue; the report says why."""


class Plain(str):
    """Text that was written without quotes. The field decides what it means, so `no` and `1.10` are preserved."""

    __slots__ = ()


@dataclass(slots=True)
class Report:
    """The problems so far, and the line of each location."""

    lines: dict[At, int] = field(default_factory=dict)
    found: list[tuple[float, Problem]] = field(default_factory=list)

    def add(self, at: At, given: str, expected: str, hint: str) -> None:
        line = next((self.lines[at[:n]] for n in range(len(at), 0, -1) if at[:n] in self.lines), None)
        if "secrets" in at[:2]:  # the second position is for `defaults.secrets`
            given = "something that is not shown here, because it may be secret"
            at = tuple(part for n, part in enumerate(at) if n <= at.index("secrets") or isinstance(part, int))
        self._put(line, Problem(spelled(at) + (f" (line {line})" if line else ""), given, expected, hint))

    def stop(self, where: str, given: str, expected: str, hint: str) -> NoReturn:
        self._put(None, Problem(where, given, expected, hint))
        raise Stop

    def problems(self) -> list[Problem]:
        return [problem for _, problem in sorted(self.found, key=lambda pair: pair[0])]

    def _put(self, line: int | None, problem: Problem) -> None:
        self.found.append((line or float("inf"), problem))
        if len(self.found) >= MAX_PROBLEMS:
            raise Stop


def shown(raw: Any) -> str:
    """The value for people, in at most 80 characters. Never the contents of a list or mapping: they may be secret."""
    if is_null(raw):
        return "nothing"
    if isinstance(raw, Mapping):
        return "a mapping"
    if isinstance(raw, list | tuple | set | frozenset):
        return "a list"
    if isinstance(raw, str) and not is_clean(raw):
        return "text with a NUL or a broken character in it"
    if not isinstance(raw, str | int | float):
        return f"a Python {type(raw).__name__}"
    try:
        bare = isinstance(raw, Plain) and _BARE.fullmatch(raw)
        return cut(str.__str__(raw) if bare else repr(raw))
    except ValueError:
        return "a number of thousands of digits"


def spelled(at: At) -> str:
    words = ""
    for part in at:
        if isinstance(part, str) and _SIMPLE_KEY.fullmatch(part):
            words += f".{part}" if words else part
        else:
            words += f"[{cut(repr(part))}]"
    return words or "the whole file"


def cut(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."


def is_null(raw: Any) -> bool:
    return raw is None or (isinstance(raw, Plain) and raw in ("", "~", "null", "Null", "NULL"))


def is_clean(text: str) -> bool:
    return not _BROKEN.search(text)


_BROKEN: Final = re.compile("[\x00\ud800-\udfff]")  # characters that can't be passed to a process
_BARE: Final = re.compile(r"[0-9.+-]+|true|false")
_SIMPLE_KEY: Final = re.compile(r"[A-Za-z0-9_./-]{1,80}")
