"""Reads the values of a strict file: each mistake is reported with what was expected, and reading goes on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from muster.core import units
from muster.core.document import Sort, read_document
from muster.core.errors import SpecError
from muster.core.fields import as_text
from muster.core.report import At, Report, Stop, is_null, shown
from muster.core.suggest import did_you_mean

T = TypeVar("T")


def parse_file(
    text: str | bytes | Mapping[str, Any],
    sort: Sort,
    source: str,
    hint: str,
    read: Callable[[Mapping[str, Any], Report], T],
) -> T:
    """What `read` makes of a file of this sort. Raises SpecError with every mistake that it reports."""
    report = Report()
    try:
        found = read(read_document(text, report, sort), report)
    except Stop:
        found = None
    if report.found or found is None:
        raise SpecError(report.problems(), source, hint)
    return found


@dataclass(slots=True)
class FieldReader:
    """Readers of a sort of file have it as their base, and add the parts of that file. `wrong`: where mistakes are."""

    report: Report
    wrong: set[At] = field(default_factory=set)

    def add(self, at: At, given: str, expected: str, hint: str) -> None:
        self.wrong.add(at)
        self.report.add(at, given, expected, hint)

    def mapping(self, raw: Any, at: At) -> Mapping[str, Any]:
        if is_null(raw):
            return {}
        if not isinstance(raw, Mapping):
            self.add(at, shown(raw), "a mapping", "Write one `key: value` a line, indented.")
            return {}
        return {as_text(key): value for key, value in raw.items()}

    def refuse(self, raw: Mapping[Any, Any], known: Collection[str], at: At) -> None:
        for key in raw:
            if key not in known:
                hint = did_you_mean(as_text(key), known, f"There are: {', '.join(known)}.")
                self.add((*at, as_text(key)), "a key that does not exist", "one of the known keys", hint)

    def value(
        self, raw: Mapping[str, Any], key: str, at: At, parse: Callable[[str], Any], expected: str, usual: Any
    ) -> Any:
        given = raw.get(key)
        if is_null(given):
            return usual
        try:
            return parse(as_text(given))
        except units.InvalidValue as unfit:
            self.add((*at, key), shown(given), expected, unfit.hint or f"Write {expected}.")
            return usual

    def choice(self, raw: Mapping[str, Any], key: str, at: At, known: Collection[str], usual: str = "") -> str:
        given = raw.get(key)
        name = usual if is_null(given) else as_text(given).strip()
        if name not in known:
            self.add((*at, key), shown(given), f"one of {', '.join(known)}", did_you_mean(name, known))
        return name

    def text(self, raw: Mapping[str, Any], key: str, at: At, expected: str, example: str) -> str:
        given = raw.get(key)
        name = "" if is_null(given) or isinstance(given, Mapping | list) else as_text(given).strip()
        if not 0 < len(name) <= 500:
            self.add((*at, key), shown(given), expected, f"Write, for example, `{example}`.")
        return name

    def names(self, raw: Mapping[str, Any], key: str, at: At) -> tuple[str, ...]:
        given = raw.get(key)
        if is_null(given):
            return ()
        if isinstance(given, Mapping):
            self.add((*at, key), shown(given), "a list of names", f"Write, for example, `{key}: [one, two]`.")
            return ()
        return tuple(as_text(one) for one in (given if isinstance(given, list | tuple) else [given]))

    def known(self, names: Collection[str], known: Collection[str], at: At, expected: str) -> None:
        for name in names:
            if name not in known:
                self.add(at, shown(name), expected, did_you_mean(name, known))
