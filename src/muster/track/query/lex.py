"""Lexer of the query language: splits a query into tokens with their positions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from muster.track.query.errors import QueryError

LONGEST: Final = 20_000  # characters in a query
_OPERATORS: Final = ("==", "!=", "<=", ">=", "!~", "<>", "=", "<", ">", "~")
_WORD: Final = re.compile(r"[^\s()<>=!~,'\"`]+")
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Token:
    """A token. `parts` are a word's pieces, each with whether it was quoted: metrics.`a.b`.min has three."""

    kind: Literal["word", "text", "operator", "(", ")", ",", "end"]
    text: str
    start: int
    end: int
    parts: tuple[tuple[str, bool], ...] = ()

    def is_word(self, *words: str) -> bool:
        return self.kind == "word" and self.text.lower() in words and not any(quoted for _, quoted in self.parts)


def tokens(text: str) -> list[Token]:
    """Ends with a token of kind "end"."""
    if len(text) > LONGEST:
        raise QueryError(
            text, LONGEST, LONGEST + 1, f"it has {len(text):,} characters.", f"At most {LONGEST:,} are read; ask less."
        )
    found: list[Token] = []
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        token = _next(text, at)
        found.append(token)
        at = token.end
    return [*found, Token("end", "", len(text), len(text))]


def _next(text: str, at: int) -> Token:
    letter = text[at]
    if letter in "(),":
        return Token(letter, letter, at, at + 1)  # type: ignore[arg-type]
    if letter in "'\"":
        value, end = _quoted(text, at)
        return Token("text", value, at, end)
    for sign in _OPERATORS:
        if text.startswith(sign, at):
            plain = {"==": "=", "<>": "!="}.get(sign, sign)
            return Token("operator", plain, at, at + len(sign))
    if letter == "!":
        raise QueryError(text, at, at + 1, "a lone `!`.", "Write `not`, `!=` or `!~`.")
    return _word(text, at)


def _word(text: str, start: int) -> Token:
    """Reads a word. It may contain quoted names after a dot, and backquoted ones anywhere."""
    parts: list[tuple[str, bool]] = []
    at = start
    while at < len(text):
        if text[at] == "`" or (text[at] in "'\"" and parts and parts[-1][0].endswith(".")):
            value, at = _quoted(text, at)
            parts.append((value, True))
        elif match := _WORD.match(text, at):
            parts.append((match[0], False))
            at = match.end()
        else:
            break
    return Token("word", "".join(part for part, _ in parts), start, at, tuple(parts))


def _quoted(text: str, start: int) -> tuple[str, int]:
    """The quoted text and the position after it. A backslash escapes a quote or a backslash."""
    quote, at = text[start], start + 1
    while at < len(text) and text[at] != quote:
        at += 2 if text[at] == "\\" and quote != "`" else 1
    if at >= len(text):
        raise QueryError(text, start, len(text), f"a {quote} that is never closed.", f"Close it with another {quote} .")
    inner = text[start + 1 : at]
    if quote == "`":
        return inner, at + 1
    # Other backslashes stay: they belong to a regular expression.
    return _ESCAPE.sub(lambda escape: escape[1] if escape[1] in (quote, "\\") else escape[0], inner), at + 1
