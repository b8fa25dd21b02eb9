"""SQL expressions of queries that differ between databases: patterns, and numbers and versions in texts.

SQLite gets its own functions, registered on the connection that runs the query; PostgreSQL has built-in ones.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import ARRAY, JSON, ColumnElement, Connection, Double, Numeric, Text, case, cast, func, literal
from sqlalchemy.dialects.postgresql import aggregate_order_by

from muster.track.query.regex import Pattern, is_plain

# Numbers that both databases parse equally: PostgreSQL refuses a number that a double can't hold.
_NUMBER: Final = r"^[+-]?([0-9]{1,30}(\.[0-9]{0,30})?|\.[0-9]{1,30})([eE][+-]?[0-9]{1,2})?$"
_NUMBER_HERE: Final = re.compile(_NUMBER)
MOST_SECONDS: Final = 10.0  # for all patterns of one query
_RELEASE: Final = re.compile(r"[vV]?([0-9]{1,18}(?:\.[0-9]{1,18})*)", re.ASCII)
_RELEASE_THERE: Final = r"^[vV]?([0-9]{1,18}(?:\.[0-9]{1,18})*)"


class Dialect:
    """Expressions for one kind of database: "sqlite" or "postgresql"."""

    def __init__(self, kind: str) -> None:
        self._sqlite = kind == "sqlite"

    def matches(self, value: ColumnElement[Any], pattern: str) -> ColumnElement[bool]:
        """The pattern occurs in the text, ignoring case."""
        if is_plain(pattern):
            return self.contains(value, pattern)
        if self._sqlite:
            return func.muster_match(pattern, value) == 1
        return value.op("~*", is_comparison=True)(pattern)

    def contains(self, value: ColumnElement[Any], text: str) -> ColumnElement[bool]:
        # SQLite's LIKE ignores case only for ASCII.
        if self._sqlite and not text.isascii():
            return func.muster_contains(text, value) == 1
        return value.ilike(f"%{escaped(text)}%", escape="\\")

    def like(self, value: ColumnElement[Any], pattern: str, any_case: bool) -> ColumnElement[bool]:
        """`%` matches any text and `_` any character."""
        if any_case:
            return value.ilike(pattern.replace("\\", "\\\\"), escape="\\")
        if self._sqlite:
            return value.op("GLOB", is_comparison=True)(_glob(pattern))
        return value.like(pattern.replace("\\", "\\\\"), escape="\\")

    def number(self, value: ColumnElement[Any]) -> ColumnElement[Any]:
        """The number that a text is; NULL if it is none."""
        if self._sqlite:
            return func.muster_number(value)
        return case((value.op("~")(_NUMBER), cast(value, Double)), else_=None)

    def release(self, value: ColumnElement[Any]) -> ColumnElement[Any]:
        """A value that sorts like versions: 2.13.0 after 2.6; NULL if the text is no version."""
        if self._sqlite:
            return func.muster_release(value)
        parts = func.string_to_array(func.substring(value, _RELEASE_THERE), ".")
        return cast(parts, ARRAY(Numeric))

    def release_of(self, text: str) -> ColumnElement[Any]:
        return self.release(literal(text, Text))

    def json(self, document: ColumnElement[Any], *path: str) -> ColumnElement[Any]:
        """The text at a path of a JSON document; NULL if there is none."""
        if self._sqlite:
            steps = "".join('."{}"'.format(step.replace('"', "")) for step in path)
            return func.json_extract(document, f"${steps}")
        # PostgreSQL can't convert \u0000 to text: a document with it is skipped, so that the query doesn't fail.
        safe = case((func.strpos(document, "\\u0000") == 0, cast(document, JSON)), else_=None)
        return func.json_extract_path_text(safe, *path)

    def joined(self, value: ColumnElement[Any]) -> ColumnElement[Any]:
        """The texts of several rows joined into one, in order."""
        if self._sqlite:
            # SQLite reads `links` by an index that has them in order; only newer versions have an explicit order here.
            return func.group_concat(value, ", ")
        return func.string_agg(value, aggregate_order_by(literal(", "), self.collated(value)))

    def collated(self, value: ColumnElement[Any]) -> ColumnElement[Any]:
        """Text sorted by code points, whatever the database's locale."""
        return value if self._sqlite else value.collate("C")


class Patterns:
    """The patterns of one query and their time. Once it is used up, they find nothing, and `spent` is true."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._made: dict[str, Pattern] = {}
        self._clock, self._left = clock, MOST_SECONDS

    @property
    def spent(self) -> bool:
        return self._left < 0

    def __call__(self, pattern: str, value: object) -> bool:
        if value is None or self.spent:
            return False
        began = self._clock()
        made = self._made.get(pattern)
        if made is None:
            made = self._made[pattern] = Pattern(pattern)
        found = made.occurs(str(value))
        self._left -= self._clock() - began
        return found


def register(connection: Connection) -> Patterns:
    """Registers the functions on this connection. Their caches belong to it, so that threads don't share them."""
    patterns = Patterns()
    if connection.dialect.name != "sqlite":
        return patterns
    driver: Any = connection.connection.dbapi_connection
    functions: list[tuple[str, int, Callable[..., Any]]] = [
        ("muster_match", 2, patterns),
        ("muster_contains", 2, lambda text, value: value is not None and text.casefold() in str(value).casefold()),
        ("muster_number", 1, _number),
        ("muster_release", 1, _release),
    ]
    for name, arguments, made in functions:
        driver.create_function(name, arguments, made, deterministic=True)
    return patterns


def escaped(text: str) -> str:
    """The text escaped for LIKE with a backslash as its escape character."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, str) and _NUMBER_HERE.match(value) else None


def _release(value: object) -> str | None:
    """Each number is prefixed with its length, so that the texts sort like the numbers."""
    match = _RELEASE.match(value) if isinstance(value, str) else None
    if match is None:
        return None
    numbers = [str(int(part)) for part in match[1].split(".")]
    return ".".join(f"{len(number):02d}{number}" for number in numbers)


def _glob(pattern: str) -> str:
    """A LIKE pattern as a pattern for SQLite's GLOB, which is case-sensitive."""
    special = {"%": "*", "_": "?", "*": "[*]", "?": "[?]", "[": "[[]"}
    return "".join(special.get(letter, letter) for letter in pattern)
