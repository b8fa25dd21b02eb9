"""Reads the text of a file into plain data and records the line of each value; enforces limits on size and nesting."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import yaml

from muster.core.report import At, Plain, Report, cut, shown

MAX_BYTES: Final = 1 << 20  # maximum size of a file
MAX_DEPTH: Final = 20  # levels of nesting; a job file needs four, a policy file seven
MAX_WEIGHT: Final = 4 << 20  # maximum characters, plus 64 for every value, after each YAML alias is expanded


@dataclass(frozen=True, slots=True)
class Sort:
    """The kind of file, for the texts of its error reports."""

    noun: str
    expected: str
    example: str


JOB: Final = Sort("job", "a mapping with at least `run`", "run: python train.py")


def read_document(given: object, report: Report, sort: Sort = JOB) -> Mapping[Any, Any]:
    """The file's keys and values: as written for text, unchanged for a mapping. Raises `Stop` for anything else."""
    raw: object = given
    if isinstance(given, bytes | str):
        raw = _read_yaml(_checked_text(given, report), report, sort)
    if not isinstance(raw, Mapping):
        found = "text without keys" if isinstance(raw, str) and raw else shown(raw)
        hint = f"Write one `key: value` a line, such as `{sort.example}`."
        report.stop("the whole file", found, sort.expected, hint)
    return raw


def _checked_text(given: bytes | str, report: Report) -> str:
    if len(given) > MAX_BYTES:
        hint = "Move scripts and data into files of their own."
        report.stop("the whole file", f"{len(given):,} characters", f"at most {MAX_BYTES:,}", hint)
    try:
        text = given.decode("utf-8") if isinstance(given, bytes) else given
    except UnicodeDecodeError as error:
        report.stop(f"byte {error.start}", "bytes that are not UTF-8", "text in UTF-8", "Save the file as UTF-8.")
    if match := _FORBIDDEN.search(text):
        line, column = text.count("\n", 0, match.start()) + 1, match.start() - text.rfind("\n", 0, match.start())
        found = f"the control character {match[0]!r}"
        report.stop(f"line {line}, column {column}", found, "printable text", "Remove it.")
    return text


def _read_yaml(text: str, report: Report, sort: Sort) -> Any:
    try:
        return _Tree(yaml.parse(text, Loader=_LOADER), report, sort.noun).document()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        # The line itself is not quoted because it may contain a secret.
        given = f"text that YAML can't read ({getattr(error, 'problem', None) or 'it breaks off'})"
        hint = "Check the quotes, the colons and the indentation there."
        if "\t" in "".join(text.splitlines()[line - 1 : line]):
            hint = "There is a tab on that line: indent with spaces."
        report.stop(f"line {line}, column {column}", given, "valid YAML", hint)


class _Tree:
    """Builds plain data from YAML events. Reads them one by one, so that no file can exceed the limits on its cost."""

    def __init__(self, events: Iterator[Any], report: Report, noun: str) -> None:
        self._events = events
        self._report = report
        self._noun = noun
        self._anchors: dict[str, tuple[Any, int]] = {}  # name → value and its weight when expanded
        self._weight = 0

    def document(self) -> Any:
        next(self._events)  # the start of the stream
        if isinstance(next(self._events), yaml.StreamEndEvent):
            return None
        root = self._node(next(self._events), (), 0)
        next(self._events)  # the end of the document
        second = next(self._events)
        if not isinstance(second, yaml.StreamEndEvent):
            where = f"line {second.start_mark.line + 1}"
            hint = f"Put each {self._noun} in a file of its own."
            self._report.stop(where, "a second document", f"one {self._noun} in a file", hint)
        return root

    def _node(self, event: Any, at: At, depth: int) -> Any:
        before = self._weight
        self._weigh(64, event)
        if depth > MAX_DEPTH:
            self._stop(event, f"more than {MAX_DEPTH} levels of nesting", "a flat file", "Nest less deeply.")
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if event.tag not in _TAGS:
            self._report.add(at, f"the YAML tag {cut(event.tag)}", "a plain value", "Remove the tag.")
        value: Any
        if isinstance(event, yaml.ScalarEvent):
            self._weigh(len(event.value), event)
            plain = not event.style and event.tag != "tag:yaml.org,2002:str"
            value = Plain(event.value) if plain else event.value
        elif isinstance(event, yaml.SequenceStartEvent):
            value = self._sequence(at, depth)
        else:
            value = self._mapping(at, depth)
        if event.anchor:
            self._anchors[event.anchor] = value, self._weight - before
        return value

    def _sequence(self, at: At, depth: int) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            self._report.lines.setdefault((*at, len(items)), event.start_mark.line + 1)
            items.append(self._node(event, (*at, len(items)), depth + 1))
        return items

    def _mapping(self, at: At, depth: int) -> dict[str, Any]:
        items: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._node(event, at, depth + 1)
            if not isinstance(key, str):
                self._stop(event, "a list or mapping as a key", "a name", "Check the braces, dashes and indentation.")
            below, line = (*at, str(key)), event.start_mark.line + 1
            if key in items:
                given = f"the same key again on line {line}"
                self._report.add(below, given, "each key once", "Keep one of the two.")
            self._report.lines.setdefault(below, line)
            items.setdefault(str(key), self._node(next(self._events), below, depth + 1))
        return items

    def _alias(self, event: Any) -> Any:
        if event.anchor not in self._anchors:
            self._stop(event, "a YAML alias to nothing", "an anchor before it", "Quote text that starts with `*`.")
        value, weight = self._anchors[event.anchor]
        self._weigh(weight, event)
        return value

    def _weigh(self, weight: int, event: Any) -> None:
        self._weight += weight
        if self._weight > MAX_WEIGHT:
            given = f"more values than any {self._noun} needs"
            self._stop(event, given, "a smaller file", "Use fewer YAML anchors and values.")

    def _stop(self, event: Any, given: str, expected: str, hint: str) -> NoReturn:
        self._report.stop(f"line {event.start_mark.line + 1}", given, expected, hint)


_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_CORE_TAGS: Final = ("str", "int", "float", "bool", "null", "map", "seq")
_TAGS: Final = (None, "!", *(f"tag:yaml.org,2002:{kind}" for kind in _CORE_TAGS))
_FORBIDDEN: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
