"""Secrets in text: of files, job files, environment variables and commands; bounded in time, whatever the text."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from math import inf
from typing import Final

from muster.scan.assignments import assigned, looks_random, named_as_secret
from muster.scan.findings import MOST, Finding, mask

SECONDS: Final = 2.0  # for one file
_LINE: Final = 2000  # characters of a line that are searched at once: what a search costs grows with their square
_OVERLAP: Final = 300
_BLOCK: Final = 32_000  # characters, between two looks at the clock
_ALLOWED: Final = re.compile(r"pragma: ?allowlist secret|pragma: ?whitelist secret")
_ALLOWED_NEXT: Final = re.compile(r"pragma: ?allowlist nextline secret")

MOVE: Final = (
    "Keep it as a secret of the project (`muster project secret set NAME --project {project}`), name it in the job "
    "file (`secrets: [NAME]`), and read it from the environment. Make a new one: this one has been in a file. If it is "
    "no secret, end the line with `# pragma: allowlist secret`."
)


class OutOfTime(Exception):
    """The text takes too long to search."""


def secrets_in(text: str, place: str, seconds: float = SECONDS, numbered: bool = True) -> list[Finding]:
    """The secrets of a text, each named by its line if `numbered`. Raises OutOfTime."""
    until = time.monotonic() + seconds
    found: dict[tuple[int, str], Finding] = {}
    taken = set[tuple[int, str]]()
    for first, block in _blocks(text):
        for kind, at, value in _search(block):
            line = first + block.count("\n", 0, at)
            if (line, value) in taken or any(value in other or other in value for row, other in taken if row == line):
                continue
            taken.add((line, value))
            where = f"{place}:{line}" if numbered else place
            found[line, kind] = Finding("secret", where, f"{kind}, {mask(value)}", MOVE)
            if len(found) >= MOST:
                return list(found.values())
        if time.monotonic() > until:
            raise OutOfTime(place)
    return [found[key] for key in sorted(found)]


def secrets_in_env(envs: Mapping[str, str], place: str = "envs") -> list[Finding]:
    """Secrets in environment variables, by their values and by their names."""
    found = []
    for name, value in envs.items():
        where = f"{place}.{name}"
        try:
            here = secrets_in(value, where, numbered=False)
        except OutOfTime:
            found.append(Finding("not_scanned", where, "it takes too long to search", "Make it shorter."))
            continue
        if not here and named_as_secret(name) and looks_random(value, least=8):
            here = [Finding("secret", where, f"Secret by its name, {mask(value)}", MOVE)]
        found += here[:1]
    return found


def warm() -> None:
    """Loads what a first search would otherwise wait for, however long a busy machine takes for it."""
    secrets_in("", "", seconds=inf)


def _search(block: str) -> Iterator[tuple[str, int, str]]:
    from muster.scan.patterns import matches  # noqa: PLC0415  (detect-secrets, which takes a third of a second)

    yield from matches(block)
    yield from assigned(block)


def _blocks(text: str) -> Iterator[tuple[int, str]]:
    """Blocks of whole lines with the number of their first line. Long lines come in overlapping pieces, each a block,
    and lines that are allowed come empty."""
    first, lines, size, allowed = 1, list[str](), 0, False
    for number, line in enumerate(text.split("\n"), 1):
        if allowed or _ALLOWED.search(line, 0, 100_000):
            line = ""
        allowed = _ALLOWED_NEXT.search(line, 0, 100_000) is not None
        if len(line) > _LINE:
            if lines:
                yield first, "\n".join(lines)
            for at in range(0, len(line), _LINE - _OVERLAP):
                yield number, line[at : at + _LINE]
            first, lines, size = number + 1, [], 0
            continue
        lines.append(line)
        size += len(line) + 1
        if size >= _BLOCK:
            # A key stands on the lines after its header, so the next block begins with the last line of this one.
            yield first, "\n".join(lines)
            first, lines, size = number, [line], len(line)
    if lines:
        yield first, "\n".join(lines)
