"""The fields of the query language, and suggestions for unknown ones."""

from __future__ import annotations

from typing import Final, get_args

from muster.api.search import FieldKind
from muster.core.suggest import closest, did_you_mean
from muster.track.query.errors import QueryError
from muster.track.query.lex import Token
from muster.track.query.nodes import Field, MetricPart, quoted

PARTS: Final[tuple[MetricPart, ...]] = get_args(MetricPart)
LONGEST_NAME: Final = 1000  # characters: longer than any stored name
# Name in a query → kind and column.
PLAIN: Final[dict[str, tuple[FieldKind, str]]] = {
    "name": ("column", "name"),
    "id": ("column", "id"),
    "user": ("column", "user"),
    "owner": ("column", "user"),
    "project": ("column", "project"),
    "experiment": ("experiment", "experiment"),
    "kind": ("column", "kind"),
    "source": ("column", "source"),
    "phase": ("phase", "phase"),
    "purpose": ("column", "purpose"),
    "parent": ("column", "parent"),
    "valid": ("flag", "valid"),
    "attempts": ("number", "attempts"),
    "created": ("time", "created_at"),
    "started": ("time", "started_at"),
    "ended": ("time", "ended_at"),
    "duration": ("duration", "duration"),
    "data": ("data", "data"),
    "note": ("note", "note"),
    "code.commit": ("commit", "code_commit"),
    "code.branch": ("column", "code_branch"),
    "code.dirty": ("flag", "code_dirty"),
    "code.tree": ("column", "code_tree"),
    "env.python": ("version", "python"),
    "env.image": ("env", "image"),
    "env.host": ("env", "host"),
    "env.driver": ("version", "driver"),
}
_KEYED: Final = {
    "params": "param", "param": "param", "parameters": "param", "metrics": "metric", "metric": "metric",
    "tags": "tag", "tag": "tag",
}  # fmt: skip
_OFFERED: Final = ("params.NAME", "metrics.NAME", "tags.NAME", *PLAIN, "env.packages.NAME")


def is_field(token: Token) -> bool:
    """Whether the word can only be a field."""
    return _plain(token) in PLAIN or token.text.partition(".")[0].lower() in (*_KEYED, "env", "code")


def resolve(text: str, token: Token) -> Field:
    """The field that a word of the query `text` names. Raises QueryError with the nearest ones."""
    if token.kind != "word":
        raise QueryError(text, token.start, token.end, "a field was expected here.", f"Name one: {_list()}.")
    plain = _plain(token)
    if plain in PLAIN:
        kind, column = PLAIN[plain]
        return Field(kind, column)
    head, dot, rest = token.parts[0][0].partition(".")
    if head.lower() in _KEYED and dot:
        return _keyed(text, token, head.lower(), rest)
    if token.text.lower().startswith("env.packages.") and not token.parts[0][1]:
        name = token.text[len("env.packages.") :]
        return Field("version", f"packages.{_checked(text, token, name)}")
    raise QueryError(text, token.start, token.end, f"there is no field {token.text!r}.", _nearest(token.text))


def _plain(token: Token) -> str:
    return "" if any(in_quotes for _, in_quotes in token.parts) else token.text.lower()


def _keyed(text: str, token: Token, head: str, rest: str) -> Field:
    kind = _KEYED[head]
    pieces = [(rest, False), *token.parts[1:]]
    part: MetricPart = "last"
    if kind == "metric":
        last, in_quotes = pieces[-1]
        before, dot, suffix = last.rpartition(".")
        named = before or len(pieces) > 1  # `metrics.min` is a metric with this name
        if not in_quotes and dot and named and suffix in PARTS:
            pieces[-1] = (before, False)
            part = suffix
    name = _checked(text, token, "".join(piece for piece, _ in pieces))
    if kind == "param":
        return Field("param", name)
    return Field("metric", name, part) if kind == "metric" else Field("tag", name)


def _checked(text: str, token: Token, name: str) -> str:
    if not name or "\0" in name or len(name) > LONGEST_NAME or not _encodes(name):
        what = "a name of characters that can be stored" if name else f"a name after `{token.text}`"
        raise QueryError(text, token.start, token.end, f"{what} was expected.", "For example `params.lr`.")
    return name


def _encodes(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _nearest(name: str) -> str:
    head, _, rest = name.lower().partition(".")
    if near := did_you_mean(name.lower(), PLAIN, "", cutoff=0.7):
        return near
    if rest and (space := closest(head, ("params", "metrics", "tags", "env", "code"))):
        return f"Did you mean `{space}.{quoted(name.partition('.')[2])}`? The fields are {_list()}."
    shown = quoted(name)
    return f"Did you mean `params.{shown}`, `metrics.{shown}` or `tags.{shown}`? The fields are {_list()}."


def _list() -> str:
    return ", ".join(
        f"{name}.NAME" if name in ("params", "metrics", "tags", "env.packages") else name for name in _OFFERED
    )
