"""Turns plain data into fields: finds the field of each key, aliases included, and makes each value canonical."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from muster.core import money, units
from muster.core.array import format_array, parse_array
from muster.core.free import read_free
from muster.core.notation import FieldPath, Notation, accepted_names, section_model, written
from muster.core.report import At, Report, is_clean, is_null, shown, spelled
from muster.core.spec import JobSpec
from muster.core.suggest import did_you_mean

FAILED: Final = object()  # the value of an entry without a value, because of a problem that is already reported


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """A field of the job, or a section of it."""

    path: FieldPath
    note: Notation
    info: FieldInfo


@dataclass(slots=True)
class Entry:
    """One field as the user wrote it; `value` is its canonical form, or FAILED. Mistakes in it go to `report`."""

    field: Field
    at: At
    raw: Any
    report: Report
    value: Any = FAILED
    keys: tuple[Any, ...] = ()  # of the items in `value`: an invalid item shifts the positions of later ones
    under: Entry | None = None  # the mapping that this one adds items to

    def holder(self, key: Any) -> Entry:
        """The entry in which an item of a mapping is written."""
        return self.under.holder(key) if self.under is not None and key not in self.keys else self

    def item_at(self, key: Any) -> At:
        if not isinstance(self.raw, Mapping | list | tuple):
            return self.at
        return (*self.at, key if isinstance(key, str | int) else shown(key))


def read_fields(raw: Mapping[Any, Any], at: At, report: Report) -> dict[FieldPath, Entry]:
    """The entries of a job file, or of its defaults; `at` is the location of `raw`."""
    entries: dict[FieldPath, Entry] = {}
    for entry in _entries((), raw, at, report):
        path, note = entry.field.path, entry.field.note
        if path in entries:
            hint = f"They mean the same: keep `{'.'.join(path)}`."
            given = f"both `{spelled(entries[path].at)}` and `{spelled(entry.at)}`"
            report.add(entry.at, given, "one of the two", hint)
            continue
        entries[path] = entry
        try:
            entry.value = _canonical(entry)
        except units.InvalidValue as unfit:
            # `envs: HF_TOKEN=...` is a common mistake, and must not be printed.
            given = "text" if note.form == "mapping" and isinstance(entry.raw, str) else shown(entry.raw)
            report.add(entry.at, given, note.expected, unfit.hint or advice(entry.field, entry.raw))
    return entries


def advice(field: Field, raw: Any) -> str:
    """The hint for a value that does not fit."""
    path, note = field.path, field.note
    if path == ("secrets",):
        return "Set the value with `muster project secret set NAME`, and write only the name here."
    if note.form == "name" and isinstance(raw, str):
        return f"Call it `{units.mended_name(raw[:200])}`."
    kinds = get_args(field.info.annotation)
    choices = [*kinds, *(name for kind in kinds for name in get_args(kind))]
    said = raw[:80].lower() if isinstance(raw, str) else ""
    words = [choice for choice in choices if isinstance(choice, str)]
    return did_you_mean(said, words, f"Write, for example, `{path[-1]}: {note.example}`.")


# --- keys -------------------------------------------------------------------------------------------------------------
def _entries(section: FieldPath, raw: Mapping[Any, Any], at: At, report: Report) -> Iterator[Entry]:
    known = _KEYS[section]
    for key, value in raw.items():
        # A YAML 1.1 parser turns the key `on` into True.
        name = "on" if key is True and "on" in known else key
        field = known.get(name) if isinstance(name, str) else None
        if field is None:
            _report_unknown(name, section, at, report)
        elif not is_null(value):
            below, note = (*at, str(name)), field.note
            if note.form != "section":
                yield Entry(field, below, value, report)
            elif isinstance(value, Mapping):
                yield from _entries(field.path, value, below, report)
            elif note.shorthand and not isinstance(value, list | tuple):
                yield Entry(FIELDS[(*field.path, note.shorthand)], below, value, report)
            else:
                report.add(below, shown(value), note.expected, f"Write, for example, `{name}: {note.example}`.")


def _report_unknown(key: object, section: FieldPath, at: At, report: Report) -> None:
    place = f"`{section[0]}`" if section else "the job file"
    if not isinstance(key, str) or not is_clean(key):
        report.add(at, f"the key {shown(key)}", f"a key of {place}, as text", "Remove it.")
        return
    text = str(key)[:80]
    elsewhere = next((path for path in FIELDS if path[-1] == text), None)
    if elsewhere:
        hint = f"Write it under `{elsewhere[0]}`." if len(elsewhere) > 1 else "Write it at the top level."
    else:
        remove = "Remove it, or keep it under `tags` if it is a note of your own."
        hint = did_you_mean(text.lower().replace("-", "_"), _KEYS[section], remove)
    report.add((*at, text), "a key that does not exist", f"a key of {place}", hint)


# --- values -----------------------------------------------------------------------------------------------------------
def _canonical(entry: Entry) -> Any:
    raw, form = entry.raw, entry.field.note.form
    if form == "mapping":
        if not isinstance(raw, Mapping):
            raise units.InvalidValue
        return _item_texts(raw, entry)
    if form == "json":
        if not isinstance(raw, Mapping):
            raise units.InvalidValue
        return read_free(raw)
    if form == "needs":
        return _needs(raw, entry)
    if form == "list":
        if isinstance(raw, Mapping):
            raise units.InvalidValue
        items = raw if isinstance(raw, list | tuple) else [raw]
        return tuple(_item_texts(dict(enumerate(items)), entry).values())
    if form == "commands" and isinstance(raw, list | tuple):
        return _joined_commands(raw, entry)
    if form == "accelerators" and isinstance(raw, Mapping):
        if len(raw) != 1:
            raise units.InvalidValue("A node has one kind of accelerator: name one.")
        raw = ":".join(as_text(part) for part in next(iter(raw.items())))
    if form == "array" and isinstance(raw, list | tuple):
        raw = ",".join(as_text(part) for part in raw)
    if form == "nodes" and isinstance(raw, Mapping):
        return _fewest_and_most(raw)
    return _READ[form](as_text(raw))


def _fewest_and_most(raw: Mapping[Any, Any]) -> tuple[int, int]:
    if set(raw) != {"min", "max"}:
        raise units.InvalidValue("Give both, and nothing else: `num_nodes: {min: 2, max: 8}`.")
    fewest, most = (units.parse_integer(as_text(raw[name])) for name in ("min", "max"))
    if fewest > most:
        raise units.InvalidValue(f"`min` is {fewest}, more than `max`, {most}: swap them.")
    if fewest < 1:
        raise units.InvalidValue("`min` is at least 1.")
    return fewest, most


def _needs(raw: Any, entry: Entry) -> dict[str, str]:
    if isinstance(raw, Mapping):
        return {name: OUTCOMES.get(said, said) for name, said in _item_texts(raw, entry).items()}
    names = raw if isinstance(raw, list | tuple) else [raw]
    entry.raw = dict.fromkeys([as_text(name) for name in names], "succeeded")
    entry.keys = tuple(entry.raw)
    return dict(entry.raw)


def _item_texts(items: Mapping[Any, Any], entry: Entry) -> dict[Any, str]:
    note, texts = entry.field.note, dict[Any, str]()
    for key, item in items.items():
        try:
            name = key if note.form == "list" else as_text(key)
            texts[name] = as_text(item)
        except units.InvalidValue as unfit:
            entry.report.add(entry.item_at(key), shown(item), note.item, unfit.hint or advice(entry.field, None))
    entry.keys = tuple(texts)
    return texts


def _joined_commands(raw: list[Any] | tuple[Any, ...], entry: Entry) -> str:
    if entry.at[-1] != "commands":
        # Elsewhere a list means the arguments of one command. Running them as several commands would run something
        # else.
        raise units.InvalidValue("Write the command as one text, or several of them as a list under `commands`.")
    commands = [as_text(command) for command in raw]
    return "\n".join(["set -e", *commands] if len(commands) > 1 else commands)


def as_text(raw: Any) -> str:
    """What was written, as text. Numbers and booleans from a program become what YAML would have for them."""
    if is_null(raw):
        raise units.InvalidValue('Write `""` for empty text.')
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, int | float):
        try:
            return repr(raw)
        except ValueError:  # an integer with thousands of digits
            raise units.InvalidValue from None
    if not isinstance(raw, str):
        raise units.InvalidValue
    if not is_clean(raw):
        raise units.InvalidValue("Remove the NUL or broken character from it.")
    return str.__str__(raw)


# --- tables, made once: a batch reads thousands of jobs -------------------------------------------------------------
def _noted(model: type[BaseModel], above: FieldPath = ()) -> Iterator[Field]:
    for name, info in model.model_fields.items():
        if note := written(info):
            yield Field((*above, name), note, info)
            if section := section_model(info):
                yield from _noted(section, (*above, name))


def _keys(model: type[BaseModel], above: FieldPath = ()) -> dict[str, Field]:
    return {name: _NOTED[(*above, *path)] for name, path in accepted_names(model).items()}


OUTCOMES: Final = {"afterok": "succeeded", "afterany": "ended", "afternotok": "failed"}  # as Slurm calls them
# A YAML 1.1 parser turns `on` and `off` into booleans.
SWITCH: Final = {"on": "restart", "true": "restart", "false": "off"}
_NOTED: Final = {field.path: field for field in _noted(JobSpec)}
_SECTIONS: Final = {field.path: model for field in _NOTED.values() if (model := section_model(field.info))}
_KEYS: Final = {(): _keys(JobSpec), **{path: _keys(model, path) for path, model in _SECTIONS.items()}}
FIELDS: Final = {path: field for path, field in _NOTED.items() if path not in _SECTIONS}
_READ: Final[Mapping[str, Callable[[str], Any]]] = {
    **dict.fromkeys(("text", "name", "path", "commands"), str),
    "choice": lambda text: text.strip().lower(),
    "switch": lambda text: SWITCH.get(text.strip().lower(), text.strip().lower()),
    **dict.fromkeys(("integer", "nodes"), units.parse_integer),
    "number": units.parse_number,
    "flag": units.parse_flag,
    "priority": units.parse_priority,
    "duration": units.parse_duration,
    "duration_or_auto": units.parse_duration_or_auto,
    "size": units.parse_size,
    "accelerators": units.parse_accelerators,
    "array": lambda text: format_array(parse_array(text)),
    "amount": money.plain_amount,
}
