"""Parser of the query language: turns text into a tree of conditions.

query     = or        or  = and ("or" and)*        and = not ("and" not)*        not = "not" not | term
term      = "(" query ")" | "has" FIELD | FIELD "exists" | FIELD operator VALUE | FIELD ["not"] "in" (VALUES)
          | a phase, such as `failed` | a yes-or-no field, such as `valid`
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from muster.api.words import PHASES
from muster.track.query import check
from muster.track.query.errors import QueryError
from muster.track.query.fields import is_field, resolve
from muster.track.query.lex import Token, tokens
from muster.track.query.nodes import EVERYTHING, And, Compare, Field, Has, Node, Not, Operator, Or, Sort, quoted

DEEPEST: Final = 40  # nesting of parentheses and nots
MOST_CONDITIONS: Final = 200
MOST_VALUES: Final = 1000  # per `in`
MOST_SORTS: Final = 5
_WORDS: Final = ("like", "ilike")
_EXPECTED: Final = "Expected =, !=, <, <=, >, >=, ~, !~, in, not in, like or exists."


def parse(text: str, now: float) -> Node:
    """The tree of a query; an empty text matches everything. `now`: what `-7d` counts from, seconds since the epoch."""
    reader = _Reader(text, now)
    return reader.whole()


def parse_field(text: str) -> Field:
    """A single field, given as a column or sort key."""
    found = tokens(text)
    if len(found) != 2:
        raise QueryError(text, 0, len(text), "one field was expected.", "For example `metrics.val_loss`.")
    return resolve(text, found[0])


def parse_sort(text: str) -> tuple[Sort, ...]:
    """Sort keys such as `-metrics.val_loss, created` or `metrics.val_loss desc`; `-` is descending."""
    if not text.strip():
        return ()
    sorts = []
    for part in text.split(","):
        words = part.strip().rsplit(None, 1)
        down = False
        if len(words) == 2 and words[1].lower() in ("asc", "desc"):
            down, words = words[1].lower() == "desc", words[:1]
        name = " ".join(words)
        if name[:1] in "+-" and name:
            down, name = name[0] == "-", name[1:]
        field = parse_field(name)
        if field.kind == "note":
            raise QueryError(text, 0, len(text), "notes have no order.", "Sort by `created`, say.")
        sorts.append(Sort(field, down))
    if len(sorts) > MOST_SORTS:
        raise QueryError(text, 0, len(text), f"{len(sorts)} fields to sort by.", f"Give at most {MOST_SORTS}.")
    return tuple(sorts)


class _Reader:
    """Recursive descent parser."""

    def __init__(self, text: str, now: float) -> None:
        self._text, self._now = text, now
        self._tokens = tokens(text)
        self._at = self._depth = self._conditions = 0

    def whole(self) -> Node:
        if self._peek().kind == "end":
            return EVERYTHING
        node = self._or()
        token = self._peek()
        if token.kind == ")":
            raise self._error(token, "a `)` without its `(`.", "Take it away, or open it before.")
        if token.kind != "end":
            raise self._error(token, f"{token.text!r} does not go on from what is before it.", _joined(token))
        return node

    def _or(self) -> Node:
        return self._chain("or", self._and, Or)

    def _and(self) -> Node:
        return self._chain("and", self._not, And)

    def _chain(self, word: str, read: Callable[[], Node], made: type[And] | type[Or]) -> Node:
        nodes = [read()]
        while self._peek().is_word(word):
            self._take()
            nodes.append(read())
        return nodes[0] if len(nodes) == 1 else made(tuple(nodes))

    def _not(self) -> Node:
        if not self._peek().is_word("not"):
            return self._term()
        with_not = self._take()
        self._deeper(with_not)
        node = Not(self._not())
        self._depth -= 1
        return node

    def _term(self) -> Node:
        token = self._take()
        if token.kind == "(":
            self._deeper(token)
            node = self._or()
            closing = self._take()
            if closing.kind != ")":
                raise self._error(token, "a `(` that is never closed.", "Close it with `)`.")
            self._depth -= 1
            return node
        self._conditions += 1
        if self._conditions > MOST_CONDITIONS:
            raise self._error(
                token, f"more than {MOST_CONDITIONS} conditions.", "Ask for less; `in` takes many values."
            )
        if token.kind == "end":
            raise self._error(token, "it ends where a condition was expected.", "For example `metrics.loss < 2`.")
        if token.is_word("has") and self._peek().kind == "word":
            return Has(resolve(self._text, self._take()))
        return self._condition(token)

    def _condition(self, token: Token) -> Node:
        after = self._peek()
        alone = after.kind in ("end", ")") or after.is_word("and", "or")
        if alone and token.is_word(*PHASES):
            return Compare(Field("phase", "phase"), "=", (token.text.lower(),))
        if alone and token.kind == "word" and not is_field(token):
            hint = f"To look for it in names, write `name ~ {quoted(token.text)}`. The phases are {', '.join(PHASES)}."
            raise self._error(token, f"{token.text!r} alone says nothing.", hint)
        field = resolve(self._text, token)
        if alone:
            if field.kind == "flag":
                return Compare(field, "=", (True,))
            raise self._error(after, f"nothing is asked of {token.text}.", _EXPECTED)
        return self._after_field(field, token)

    def _after_field(self, field: Field, token: Token) -> Node:
        """The condition that follows a field."""
        sign = self._take()
        if sign.kind == "operator":
            return self._compare(field, cast(Operator, sign.text), [self._value()])
        if sign.is_word("exists"):
            return Has(field)
        negative = sign.is_word("not")
        word = self._take() if negative else sign
        if word.is_word("exists"):
            return Not(Has(field))
        if word.is_word("in"):
            return self._compare(field, "not in" if negative else "in", self._values())
        if word.is_word(*_WORDS):
            name = f"not {word.text.lower()}" if negative else word.text.lower()
            return self._compare(field, cast(Operator, name), [self._value()])
        given = f"got {word.text!r}" if word.text else "the query ends"
        raise self._error(word, f"an operator was expected after {token.text}, {given}.", _EXPECTED)

    def _compare(self, field: Field, operator: Operator, values: list[Token]) -> Node:
        return check.compare(self._text, field, operator, values, self._now)

    def _value(self) -> Token:
        token = self._take()
        if token.kind not in ("word", "text"):
            given = f"got {token.text!r}" if token.text else "the query ends"
            raise self._error(token, f"a value was expected here, {given}.", 'Give a number, word or "quoted text".')
        return token

    def _values(self) -> list[Token]:
        opening = self._take()
        if opening.kind != "(":
            raise self._error(opening, "`in` needs its values in parentheses.", "For example `in (1, 2, 3)`.")
        values = [self._value()]
        while self._peek().kind == ",":
            self._take()
            values.append(self._value())
        if len(values) > MOST_VALUES:
            raise self._error(opening, f"{len(values)} values in one `in`.", f"Give at most {MOST_VALUES}.")
        closing = self._take()
        if closing.kind != ")":
            raise self._error(closing, "a `,` or `)` was expected here.", "Values stand as in `in (1, 2, 3)`.")
        return values

    def _deeper(self, token: Token) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            raise self._error(token, f"it is nested more than {DEEPEST} deep.", "Take parentheses away.")

    def _peek(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _error(self, token: Token, what: str, hint: str) -> QueryError:
        return QueryError(self._text, token.start, token.end, what, hint)


def _joined(token: Token) -> str:
    if token.text in ("&&", "&", "||", "|"):
        return f"Write `{'and' if token.text[0] == '&' else 'or'}`."
    return "Join conditions with `and` or `or`; put text with spaces into quotes."
