"""What a query needs from the database beyond SQL: patterns, numbers and versions in texts, in the words of either one.

SQLite gets functions of our own, registered on the connection that runs the query; PostgreSQL has what it takes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import ARRAY, JSON, ColumnElement, Connection, Double, Numeric, Text, case, cast, func, literal
from sqlalchemy.dialects.postgresql import aggregate_order_by

from muster.track.query.regex import Budget, Matcher, Spent, is_plain

# What both databases turn into the same number: PostgreSQL refuses to read one that a double can't hold.
_NUMBER: Final = r"^[+-]?([0-9]{1,30}(\.[0-9]{0,30})?|\.[0-9]{1,30})([eE][+-]?[0-9]{1,2})?$"
_NUMBER_HERE: Final = re.compile(_NUMBER)
MOST_WORK: Final = 40_000_000  # of all patterns in one query: some ten seconds
_RELEASE: Final = re.compile(r"[vV]?([0-9]{1,18}(?:\.[0-9]{1,18})*)", re.ASCII)
_RELEASE_THERE: Final = r"^[vV]?([0-9]{1,18}(?:\.[0-9]{1,18})*)"


class Words:
    """Expressions in the words of one database: "sqlite" or "postgresql"."""

    def __init__(self, kind: str) -> None:
        self._sqlite = kind == "sqlite"

    def matches(self, value: ColumnElement[Any], pattern: str) -> ColumnElement[bool]:
        """The pattern occurs in the text, in either case."""
        if is_plain(pattern):
            return self.contains(value, pattern)
        if self._sqlite:
            return func.muster_match(pattern, value) == 1
        return value.op("~*", is_comparison=True)(pattern)

    def contains(self, value: ColumnElement[Any], text: str) -> ColumnElement[bool]:
        # SQLite's own LIKE knows the cases of ASCII alone.
        if self._sqlite and not text.isascii():
            return func.muster_contains(text, value) == 1
        return value.ilike(f"%{escaped(text)}%", escape="\\")

    def like(self, value: ColumnElement[Any], pattern: str, any_case: bool) -> ColumnElement[bool]:
        """`%` stands for any text and `_` for any character."""
        if any_case:
            return value.ilike(pattern.replace("\\", "\\\\"), escape="\\")
        if self._sqlite:
            return value.op("GLOB", is_comparison=True)(_glob(pattern))
        return value.like(pattern.replace("\\", "\\\\"), escape="\\")

    def number(self, value: ColumnElement[Any]) -> ColumnElement[Any]:
        """The number that a text is; NULL when it is none."""
        if self._sqlite:
            return func.muster_number(value)
        return case((value.op("~")(_NUMBER), cast(value, Double)), else_=None)

    def release(self, value: ColumnElement[Any]) -> ColumnElement[Any]:
        """Something that orders as versions do: 2.13.0 after 2.6; NULL when the text is no version."""
        if self._sqlite:
            return func.muster_release(value)
        parts = func.string_to_array(func.substring(value, _RELEASE_THERE), ".")
        return cast(parts, ARRAY(Numeric))

    def release_of(self, text: str) -> ColumnElement[Any]:
        return self.release(literal(text, Text))

    def json(self, document: ColumnElement[Any], *path: str) -> ColumnElement[Any]:
        """The text at a path of a JSON document; NULL when there is none."""
        if self._sqlite:
            steps = "".join('."{}"'.format(step.replace('"', "")) for step in path)
            return func.json_extract(document, f"${steps}")
        # PostgreSQL can't make text of \u0000: a document with one is passed over rather than failing the query.
        safe = case((func.strpos(document, "\\u0000") == 0, cast(document, JSON)), else_=None)
        return func.json_extract_path_text(safe, *path)

    def joined(self, value: ColumnElement[Any]) -> ColumnElement[Any]:
        """The texts of several rows as one, in their order."""
        if self._sqlite:
            # It reads `links` by the index that has them in order; only newer versions can be told to sort.
            return func.group_concat(value, ", ")
        return func.string_agg(value, aggregate_order_by(literal(", "), self.collated(value)))

    def collated(self, value: ColumnElement[Any]) -> ColumnElement[Any]:
        """Text in the order of its characters, whatever language the database was made for."""
        return value if self._sqlite else value.collate("C")


class Patterns:
    """The patterns of one query, and how much work they may still do: then they find nothing, and `spent` is true."""

    def __init__(self) -> None:
        self._made: dict[str, Matcher] = {}
        self._budget = Budget(MOST_WORK)

    @property
    def spent(self) -> bool:
        return self._budget.left < 0

    def __call__(self, pattern: str, value: object) -> bool:
        if value is None or self.spent:
            return False
        try:
            matcher = self._made.get(pattern)
            if matcher is None:
                matcher = self._made[pattern] = Matcher.of(pattern, self._budget)
            return matcher.occurs(str(value))
        except Spent:
            return False


def register(connection: Connection) -> Patterns:
    """Makes the functions known to this connection; their memory is its own, so that no two threads share it."""
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
    """For LIKE with a backslash as its escape."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, str) and _NUMBER_HERE.match(value) else None


def _release(value: object) -> str | None:
    """Each number with its length before it, so that the texts order as the numbers do."""
    match = _RELEASE.match(value) if isinstance(value, str) else None
    if match is None:
        return None
    numbers = [str(int(part)) for part in match[1].split(".")]
    return ".".join(f"{len(number):02d}{number}" for number in numbers)


def _glob(pattern: str) -> str:
    """A LIKE pattern for SQLite's GLOB, which tells cases apart."""
    special = {"%": "*", "_": "?", "*": "[*]", "?": "[?]", "[": "[[]"}
    return "".join(special.get(letter, letter) for letter in pattern)
