"""Checks conditions of a query: converts operands to the field's type, or raises an error with the expected type."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final, Protocol

from muster.api.words import PHASES
from muster.core.suggest import did_you_mean
from muster.track.query import moments, regex
from muster.track.query.errors import QueryError
from muster.track.query.lex import Token
from muster.track.query.nodes import Compare, Field, Operand, Operator

_NUMBER: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?$", re.I)
_SPECIAL: Final = {"nan": math.nan, "inf": math.inf, "infinity": math.inf, "-inf": -math.inf, "-infinity": -math.inf}
_FLAGS: Final = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_VERSION: Final = re.compile(r"\d+(\.\d+)*")
_ORDER: Final = ("<", "<=", ">", ">=")
_TEXT_ONLY: Final = ("~", "!~", "like", "not like", "ilike", "not ilike")


def number(text: str) -> float | None:
    """The number in the text, including `nan` and `inf`; None if it is none."""
    if _NUMBER.match(text):
        return float(text)
    return _SPECIAL.get(text.lower())


def compare(text: str, field: Field, operator: Operator, values: Sequence[Token], now: float) -> Compare:
    """The condition with checked operands. `text` is the whole query, for errors."""
    return Compare(field, operator, tuple(_operand(text, field, operator, value, now) for value in values))


def _operand(text: str, field: Field, operator: Operator, value: Token, now: float) -> Operand:
    def wrong(expected: str, hint: str = "") -> QueryError:
        what = f"{field} {operator} {value.text!r}: {expected} was expected."
        return QueryError(text, value.start, value.end, what, hint or f"Give {expected}.")

    if "\0" in value.text or any("\ud800" <= letter <= "\udfff" for letter in value.text):
        raise wrong("text without NUL or half a surrogate pair")
    if operator in _TEXT_ONLY:
        if field.kind in ("metric", "number", "duration", "time", "flag"):
            what = f"{field} is no text, so `{operator}` says nothing of it."
            raise QueryError(text, value.start, value.end, what, "Use =, !=, <, <=, > or >=.")
        if operator in ("~", "!~") and not regex.is_plain(value.text):
            _check_pattern(text, value)
        return value.text
    if field.kind in ("metric", "number"):
        found = number(value.text)
        if found is None:
            raise wrong("a number")
        return found
    if field.kind in ("param", "tag"):
        return _loose(value)
    return _typed(field, operator, value, now, wrong)


def _typed(field: Field, operator: Operator, value: Token, now: float, wrong: _Wrong) -> Operand:
    if field.kind == "duration":
        seconds = moments.duration(value.text)
        if seconds is None:
            raise wrong(moments.EXPECTED_DURATION)
        return seconds
    if field.kind == "time":
        span = moments.moment(value.text, now)
        if span is None:
            raise wrong(moments.EXPECTED_TIME)
        if span.start == span.end and operator not in _ORDER:
            raise wrong("a day or a minute", "Compare a moment with <, <=, > or >=.")
        return span
    if field.kind == "flag":
        if operator not in ("=", "!=") or value.text.lower() not in _FLAGS:
            raise wrong("`= true` or `= false`")
        return _FLAGS[value.text.lower()]
    if field.kind == "phase":
        return _phase(operator, value, wrong)
    if field.kind == "version" and operator in _ORDER and not _VERSION.match(value.text):
        raise wrong("a version such as 2.6 or 3.11.4")
    if field.kind in ("commit", "data", "note", "experiment") and operator in _ORDER:
        raise wrong("=, !=, in, like or ~", "It has no order.")
    return value.text


def _phase(operator: Operator, value: Token, wrong: _Wrong) -> str:
    word = value.text.lower()
    if operator in _ORDER:
        raise wrong("=, != or in", "Phases have no order.")
    if word not in PHASES:
        raise wrong(f"one of {', '.join(PHASES)}", did_you_mean(word, PHASES, "", quote="", cutoff=0.5))
    return word


def _loose(value: Token) -> Operand:
    """An operand for a parameter or tag: a bare number is compared as a number; quoted text is text."""
    if value.kind == "text" or any(quoted for _, quoted in value.parts):
        return value.text
    if value.text.lower() in ("true", "false"):
        return value.text.lower() == "true"
    found = number(value.text) if _NUMBER.match(value.text) else None
    return value.text if found is None or not math.isfinite(found) else found


def _check_pattern(text: str, value: Token) -> None:
    try:
        regex.Pattern(value.text)
    except regex.BadPattern as bad:
        where = "" if bad.at is None else f" (at its character {bad.at + 1})"
        what = f"the pattern {value.text!r} has {bad}{where}."
        raise QueryError(text, value.start, value.end, what, bad.hint) from None


class _Wrong(Protocol):
    def __call__(self, expected: str, hint: str = "") -> QueryError: ...
