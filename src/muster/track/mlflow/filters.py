"""Parser of MLflow's filters and order_by: `metrics.loss < 2 AND params.lr = '3e-4' AND status = 'FINISHED'`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from muster.track.mlflow.faults import Fault

Kind = Literal["metric", "parameter", "tag", "attribute", "dataset"]

_STRING: Final = r"""'(?:''|\\'|[^'])*'|"(?:""|\\"|[^"])*\""""
_TOKEN: Final = re.compile(
    rf"""\s*(?:
      (?P<string>{_STRING})
    | (?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.`]))
    | (?P<name>(?:`[^`]*`|[A-Za-z_][\w\-/:]*)(?:\.(?:`[^`]*`|{_STRING}|[\w\-/:]+))*)
    | (?P<op><=|>=|!=|<>|==|=|<|>)
    | (?P<punct>[(),])
    | (?P<other>\S+)
    )""",
    re.VERBOSE,
)
_KINDS: Final[dict[str, Kind]] = {
    **dict.fromkeys(("metric", "metrics"), "metric"),
    **dict.fromkeys(("parameter", "parameters", "param", "params"), "parameter"),
    **dict.fromkeys(("tag", "tags"), "tag"),
    **dict.fromkeys(("attribute", "attributes", "attr", "run"), "attribute"),
    **dict.fromkeys(("dataset", "datasets"), "dataset"),
}
_NUMERIC: Final = frozenset({">", ">=", "!=", "=", "<", "<="})
_TEXTUAL: Final = frozenset({"!=", "=", "LIKE", "ILIKE"})
_NULLS: Final = frozenset({"IS NULL", "IS NOT NULL"})
_LISTS: Final = frozenset({"IN", "NOT IN"})
_ALIASES: Final = {
    "created": "start_time",
    "Created": "start_time",
    "run name": "run_name",
    "Run name": "run_name",
    "Run Name": "run_name",
}
_DATASET: Final = ("name", "digest", "context")


@dataclass(frozen=True, slots=True)
class Grammar:
    """The identifiers that the filters of one call may use."""

    kinds: frozenset[Kind]
    numbers: frozenset[str]  # numeric attributes
    texts: frozenset[str]
    lists: frozenset[str]  # attributes that may be compared with a list
    orders: frozenset[str]  # attributes that can be ordered by

    @property
    def attributes(self) -> frozenset[str]:
        return self.numbers | self.texts


RUNS: Final = Grammar(
    kinds=frozenset({"metric", "parameter", "tag", "attribute", "dataset"}),
    numbers=frozenset({"start_time", "end_time"}),
    texts=frozenset({"status", "run_name", "run_id", "user_id", "artifact_uri"}),
    lists=frozenset({"run_id"}),
    orders=frozenset({"start_time", "end_time", "status", "run_name", "run_id", "user_id", "artifact_uri"}),
)
EXPERIMENTS: Final = Grammar(
    kinds=frozenset({"tag", "attribute"}),
    numbers=frozenset({"creation_time", "last_update_time"}),
    texts=frozenset({"name", "experiment_id"}),
    lists=frozenset({"experiment_id"}),
    orders=frozenset({"name", "experiment_id", "creation_time", "last_update_time"}),
)


@dataclass(frozen=True, slots=True)
class Clause:
    kind: Kind
    key: str
    op: str  # in upper case
    value: str | float | int | tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Order:
    kind: Kind
    key: str
    rising: bool


@dataclass(frozen=True, slots=True)
class _Word:
    kind: str  # name of the group in the pattern
    text: str


def parse_filter(text: str | None, grammar: Grammar) -> list[Clause]:
    """The clauses of a filter; all must hold. Raises Fault with the part that can't be parsed."""
    words = _Words(list(_words(text or "")), text or "")
    clauses: list[Clause] = []
    more = words.more
    while more:
        clauses.append(_clause(words, grammar))
        more = words.take("AND")
    if words.more:
        raise Fault(f"Invalid clause(s) in filter string: {words.rest()!r}")
    return clauses


def parse_orders(texts: Sequence[str], grammar: Grammar) -> list[Order]:
    orders: list[Order] = []
    for text in texts:
        words = list(_words(text))
        falling = [word.text.lower() for word in words[1:]]
        if not words or words[0].kind not in ("name", "string") or len(words) > 2:
            raise Fault(f"Invalid order_by clause '{text}'. Could not be parsed.")
        if falling and falling[0] not in ("asc", "desc"):
            raise Fault(f"Invalid ordering key in order_by clause '{text}'.")
        kind, key = _identifier(words[0].text, grammar, grammar.orders)
        order = Order(kind, key, falling != ["desc"])
        if any((one.kind, one.key) == (kind, key) for one in orders):
            raise Fault(f"`order_by` contains duplicate fields: {list(texts)}", "INTERNAL_ERROR")
        orders.append(order)
    return orders


def _words(text: str) -> Iterator[_Word]:
    for found in _TOKEN.finditer(text):
        if found.lastgroup is not None:
            yield _Word(found.lastgroup, found[found.lastgroup])


class _Words:
    """The tokens of a filter, read from left to right."""

    def __init__(self, words: list[_Word], text: str) -> None:
        self._words, self._at, self.text = words, 0, text

    @property
    def more(self) -> bool:
        return self._at < len(self._words)

    def next(self) -> _Word:
        if not self.more:
            raise Fault(f"Invalid clause(s) in filter string: '{self.text}'")
        self._at += 1
        return self._words[self._at - 1]

    def take(self, *keywords: str) -> bool:
        """Consumes the keywords if they come next. Returns whether they did."""
        ahead = self._words[self._at : self._at + len(keywords)]
        if [word.text.upper() for word in ahead if word.kind == "name"] != list(keywords):
            return False
        self._at += len(keywords)
        return True

    def rest(self) -> str:
        return " ".join(word.text for word in self._words[self._at :])


def _clause(words: _Words, grammar: Grammar) -> Clause:
    left = words.next()
    if left.kind not in ("name", "string"):
        raise Fault(f"Invalid clause(s) in filter string: '{left.text}'")
    op = _operator(words)
    kind, key = _identifier(left.text, grammar, grammar.attributes)
    if op in _NULLS:
        if kind not in ("tag", "parameter"):
            raise Fault(f"IS NULL / IS NOT NULL is only supported for tags and params, not for '{kind}' '{key}'")
        return Clause(kind, key, op, None)
    value = _value(words, kind, key, grammar)
    _check_operator(kind, key, op, isinstance(value, tuple), grammar)
    return Clause(kind, key, op, value)


def _operator(words: _Words) -> str:
    for phrase in (("IS", "NOT", "NULL"), ("IS", "NULL"), ("NOT", "IN"), ("IN",), ("LIKE",), ("ILIKE",)):
        if words.take(*phrase):
            return " ".join(phrase)
    word = words.next()
    if word.kind != "op":
        raise Fault(f"Invalid clause(s) in filter string: '{words.text}'. Expected a comparison, found '{word.text}'")
    return word.text


def _identifier(text: str, grammar: Grammar, attributes: frozenset[str]) -> tuple[Kind, str]:
    entity, dot, key = text.partition(".")
    if not dot:
        entity, key = "attribute", text
    kind = _KINDS.get(_unquoted(entity, "`"))
    if kind is None or kind not in grammar.kinds:
        valid = [one for one in ("metric", "parameter", "tag", "attribute", "dataset") if one in grammar.kinds]
        raise Fault(f"Invalid entity type '{entity}'. Valid values are {valid}")
    key = _unquoted(_unquoted(key, "'\""), "`")  # in this order, as MLflow does
    if kind == "attribute":
        key = _ALIASES.get(key, key)
        if key not in attributes:
            raise Fault(f"Invalid attribute key '{key}' specified. Valid keys are '{sorted(attributes)}'")
    if kind == "dataset" and key not in _DATASET:
        raise Fault(f"Invalid dataset key '{key}' specified. Valid keys are '{set(_DATASET)}'")
    return kind, key


def _value(words: _Words, kind: Kind, key: str, grammar: Grammar) -> str | float | int | tuple[str, ...]:
    word = words.next()
    if kind == "metric" or (kind == "attribute" and key in grammar.numbers):
        if word.kind != "number":
            what = "metric" if kind == "metric" else f"numeric attribute: {key}"
            raise Fault(f"Expected numeric value type for {what}. Found {word.text}")
        return int(word.text) if word.text.lstrip("+-").isdigit() and kind == "attribute" else float(word.text)
    if word.text == "(":
        return _list(words, kind, key, grammar)
    if word.kind != "string":
        raise Fault(f"Expected a quoted string value for {kind} (e.g. 'my-value'). Got value {word.text}")
    return word.text[1:-1]


def _list(words: _Words, kind: Kind, key: str, grammar: Grammar) -> tuple[str, ...]:
    if kind == "attribute" and key not in grammar.lists:
        names = sorted(grammar.lists)
        raise Fault(f"Only {names} attributes support comparison with a list of quoted string values.")
    found: list[str] = []
    while (word := words.next()).text != ")":
        if word.kind == "string":
            found.append(word.text[1:-1])
        elif word.text != ",":
            raise Fault(
                "While parsing a list in the query, expected string value, punctuation, or whitespace, "
                f"but got different type in list: {word.text}"
            )
    if not found:
        raise Fault("While parsing a list in the query, expected a non-empty list of string values, but got empty list")
    return tuple(found)


def _check_operator(kind: Kind, key: str, op: str, many: bool, grammar: Grammar) -> None:
    if kind == "metric" or key in grammar.numbers:
        valid = _NUMERIC
    elif kind == "dataset" or (kind == "attribute" and key in grammar.lists):
        valid = _TEXTUAL | _LISTS
    else:
        valid = _TEXTUAL
    if op not in valid or (op in _LISTS) != many:
        raise Fault(f"Invalid comparator '{op}' not one of '{sorted(valid)}'")


def _unquoted(text: str, quotes: str) -> str:
    for quote in quotes:
        if len(text) >= 2 and text[0] == text[-1] == quote:
            return text[1:-1]
    return text
