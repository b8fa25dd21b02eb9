"""Parses a policy file, as YAML text or as a mapping, into `Rules`, or into one error with every mistake in it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from muster.core import policy_units, units
from muster.core.document import Sort, read_document
from muster.core.errors import SpecError
from muster.core.fields import as_text
from muster.core.policy_check import clashes, complete, wrong
from muster.core.policy_notes import FIELDS, NOTES, PLACES, Model, Note, choices
from muster.core.report import At, Report, Stop, is_clean, is_null, shown
from muster.core.rules import WORK_CLASSES, QueueRules, Rules, Window
from muster.core.suggest import did_you_mean

POLICY: Final = Sort("policy", "a mapping such as `{defaults: {order: predicted}}`", "between: fair")
HINT: Final = "Mend each and apply it again; the rules in force stay as they are."


def parse_rules(text: str | bytes | Mapping[str, Any], *, source: str = "policy", orders: Collection[str]) -> Rules:
    """The rules; raises SpecError with all problems at once. `orders` are the policies that a queue may name."""
    report = Report()
    rules = None
    try:
        # 1. text to plain data; 2. plain data to rules, as far as valid; 3. contradictions between parts
        reader = _Reader(report, orders)
        rules = reader.read(read_document(text, report, POLICY))
        for at, given, expected, hint in clashes(rules):
            if not any(at[:n] in reader.failed for n in range(1, len(at) + 1)):
                report.add(at, given, expected, hint)
    except Stop:
        pass
    if rules is None or report.found:
        raise SpecError(report.problems(), source, HINT)
    return rules


@dataclass(frozen=True, slots=True)
class _Bare:
    """A number of accelerators without the name of the pool."""

    amount: int


@dataclass(slots=True)
class _Reader:
    """Reads sections from the inside out and leaves invalid values out, so that the rest can still be read."""

    report: Report
    orders: Collection[str]
    defaults: QueueRules = field(default_factory=QueueRules)
    pools: tuple[str, ...] = ()  # pools that the file names
    failed: set[At] = field(default_factory=set)  # locations of values that could not be read

    def read(self, raw: Mapping[Any, Any]) -> Rules:
        pools = raw.get("pools")
        self.pools = tuple(map(str, pools)) if isinstance(pools, Mapping) else ()
        first = {key: raw[key] for key in raw if key == "defaults"}  # before the queues: they inherit from it
        rules = self._section(Rules, {**first, **raw}, ())
        assert isinstance(rules, Rules)  # all its fields have defaults
        return rules

    def _section(self, model: Model, raw: Mapping[Any, Any], at: At) -> BaseModel | None:
        """The section without its invalid values; None when a required value is missing."""
        values: dict[str, Any] = {}
        for key, value in raw.items():
            name = FIELDS[model].get(key) if isinstance(key, str) else None
            if name is None:
                self._report_unknown(key, model, at)
            elif not is_null(value):
                self._put(values, model, name, value, (*at, str(key)))
        if model is QueueRules:
            self._name_pools(values, at)
            values = {**dict(self.defaults), **values}
        complete(model, values)
        return self._validated(model, values, raw, at)

    def _put(self, values: dict[str, Any], model: Model, name: str, raw: Any, at: At) -> None:
        note = NOTES[model][name]
        try:
            values[name] = self._value(note, model, name, raw, at)
        except units.InvalidValue as unfit:
            self._add(at, shown(raw), note.expected, unfit.hint or self._advice(model, name, raw))
        if name == "defaults" and isinstance(values.get(name), QueueRules):
            self.defaults = values[name]

    def _value(self, note: Note, model: Model, name: str, raw: Any, at: At) -> Any:
        word = raw.strip().lower() if isinstance(raw, str) else None
        if note.absent and word == note.absent:
            return None
        if note.form == "amounts" and not isinstance(raw, Mapping):
            return {} if word == "none" else _Bare(units.parse_integer(as_text(raw)))
        if not note.many:
            return self._item(note, model, name, raw, at)
        if note.many == "mapping":
            if not isinstance(raw, Mapping):
                raise units.InvalidValue
            return self._items(note, model, name, {as_text(key): item for key, item in raw.items()}, at)
        if name == "days" and isinstance(raw, str):
            return policy_units.parse_days(raw)
        items = dict(enumerate(raw)) if isinstance(raw, list | tuple) else {None: raw}
        return tuple(self._items(note, model, name, items, at).values())

    def _items(self, note: Note, model: Model, name: str, items: Mapping[Any, Any], at: At) -> dict[Any, Any]:
        read: dict[Any, Any] = {}
        for key, item in items.items():
            below = at if key is None else (*at, key)
            try:
                value = self._item(note, model, name, item, below)
                read |= {key: value} if value is not None else {}
            except units.InvalidValue as unfit:
                self._add(below, shown(item), note.expected, unfit.hint or self._advice(model, name, item))
        return read

    def _item(self, note: Note, model: Model, name: str, raw: Any, at: At) -> Any:
        if note.model is None:
            value = self._order(as_text(raw)) if note.form == "order" else _READ[note.form](as_text(raw))
            if isinstance(value, float) and not isfinite(value):
                raise units.InvalidValue
            return value
        if name == "targets":
            self._check_class(str(at[-1]))
        if isinstance(raw, Mapping):
            return self._section(note.model, raw, at)
        if is_null(raw) and note.many == "mapping":
            return self._section(note.model, {}, at)
        if note.model is Window:
            return self._validated(Window, policy_units.parse_window(as_text(raw)), {}, at)
        if not note.shorthand:
            raise units.InvalidValue
        values: dict[str, Any] = {}
        self._put(values, note.model, note.shorthand, raw, at)
        complete(note.model, values)
        return self._validated(note.model, values, {note.shorthand: raw}, at)

    def _validated(self, model: Model, values: dict[str, Any], raw: Mapping[Any, Any], at: At) -> BaseModel | None:
        """The model of these values. Values that don't fit are reported and left out."""
        for mistake in wrong(model, values):
            self._add(at, *mistake)
            return None
        try:
            return model.model_validate(values)
        except ValidationError as error:
            faults = error.errors(include_url=False, include_context=False, include_input=False)
        for fault in faults:
            name, rest = str(fault["loc"][0]), tuple(part for part in fault["loc"][1:] if part != "[key]")
            key, note = NOTES[model][name].key or name, NOTES[model][name]
            below: At = (*at, key, *rest) if key in raw else at
            if fault["type"] == "missing":
                if (*at, key) not in self.failed:
                    self._add(at, f"no `{key}`", note.expected, f"Write, for example, `{key}: {note.example}`.")
                return None
            value = _at(raw.get(key), rest)
            given = shown(rest[-1] if fault["loc"][-1] == "[key]" else value)
            self._add(below, given, note.expected, self._advice(model, name, value))
            self.failed.add((*at, key))
            kept = values.pop(name, None)
            if isinstance(kept, dict) and rest:
                values[name] = {other: item for other, item in kept.items() if other != rest[0]}
        return self._validated(model, values, raw, at)

    def _name_pools(self, values: dict[str, Any], at: At) -> None:
        """Assigns a bare number to a pool: the queue's only pool, or else the only pool that the file names."""
        pools = values.get("pools", self.defaults.pools) or self.pools
        for name in ("quota", "borrow"):
            bare = values.get(name)
            if isinstance(bare, _Bare):
                del values[name]
                if len(pools) == 1:
                    values[name] = {pools[0]: bare.amount}
                else:
                    example = f"`{name}: {{{pools[0] if pools else 'a100'}: {bare.amount}}}`"
                    self._add((*at, name), str(bare.amount), NOTES[QueueRules][name].expected,
                              f"Say of which pool: {example}.")  # fmt: skip

    def _order(self, text: str) -> str:
        name = text.strip().lower()
        if name not in self.orders:
            raise units.InvalidValue(_pick(name, self.orders))
        return name

    def _check_class(self, name: str) -> None:
        if name not in WORK_CLASSES:
            raise units.InvalidValue(_pick(name, WORK_CLASSES))

    def _advice(self, model: Model, name: str, raw: Any) -> str:
        note = NOTES[model][name]
        words = [*choices(model.model_fields[name]), note.absent] if note.form == "choice" else [note.absent]
        said = raw[:80].lower() if isinstance(raw, str) else ""
        write = f"Write, for example, `{note.key or name}: {note.example}`."
        return did_you_mean(said, [word for word in words if word], write)

    def _report_unknown(self, key: object, model: Model, at: At) -> None:
        place = PLACES[model]
        if not isinstance(key, str) or not is_clean(key):
            self.report.add(at, f"the key {shown(key)}", f"a key that stands {place}, as text", "Remove it.")
            return
        text = str(key)[:80]
        elsewhere = next((other for other, keys in FIELDS.items() if text in keys), None)
        near = _pick(text.lower().replace("-", "_"), FIELDS[model])
        hint = near if elsewhere is None else f"It stands {PLACES[elsewhere]}."
        self.report.add((*at, text), "a key that does not exist", f"a key that stands {place}", hint)

    def _add(self, at: At, given: str, expected: str, hint: str) -> None:
        self.failed.add(at)
        self.report.add(at, given, expected, hint)


def _pick(name: str, among: Collection[str]) -> str:
    return f"{did_you_mean(name, among, '')} There are: {', '.join(among)}.".lstrip()


def _at(raw: Any, path: tuple[Any, ...]) -> Any:
    """The value at the path, or at the part of the path that exists."""
    for part in path:
        if isinstance(raw, list | tuple) or (isinstance(raw, Mapping) and part in raw):
            raw = raw[part]
    return raw


_READ: Final[Mapping[str, Callable[[str], Any]]] = {
    "text": str,
    "choice": lambda text: text.strip().lower(),
    "integer": units.parse_integer,
    "amounts": units.parse_integer,
    "number": units.parse_number,
    "size": units.parse_size,
    "flag": units.parse_flag,
    "priority": units.parse_priority,
    "duration": units.parse_duration,
    "clock": policy_units.parse_clock,
    "moment": policy_units.parse_moment,
}
