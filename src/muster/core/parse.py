"""A job file, as YAML text or as a mapping, into a `JobSpec`, or into one error that holds every mistake in it."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from muster.core import units
from muster.core.errors import Problem, SpecError
from muster.core.spec import RESERVED, RESERVED_PREFIX, JobSpec, Retry, Written, accepted_names, section_model, written

MAX_BYTES: Final = 1 << 20  # of a job file
MAX_DEPTH: Final = 20  # levels of nesting; a job file needs four
MAX_WEIGHT: Final = 4 << 20  # characters, plus 64 for every value, once each YAML alias is written out
MAX_PROBLEMS: Final = 100  # after so many, reading on helps nobody

At = tuple[str | int, ...]  # where the user wrote something: keys and list positions from the top
FieldPath = tuple[str, ...]  # the field that it means


def parse_job(
    job: str | bytes | Mapping[str, Any],
    *,
    source: str = "job",
    base: Path | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> JobSpec:
    """The job, or SpecError with every problem at once.

    `base` is the folder that a relative `workdir` starts from. `defaults` is written like a job file and fills in what
    the job leaves out; its `envs` and `tags` are joined with the job's, name by name.
    """
    report = _Report()
    spec = None
    try:
        # 1. text to plain data; 2. plain data to fields, aliases resolved; 3. each value to its canonical form
        given = _entries(_document(job, report), (), report)
        entries = _over(_entries(defaults or {}, ("defaults",), report), given)
        # 4. what the models can't check; 5. what they can
        values = _values(entries, base)
        _check_names(entries, report)
        spec = _validated(values, entries, report)
    except _Stop:
        pass
    if spec is None or report.found:
        raise SpecError(report.problems(), source)
    return spec


class _Stop(Exception):
    """Nothing further can be found out; the report says why."""


@dataclass(slots=True)
class _Report:
    """The problems so far, and the lines on which things stand."""

    lines: dict[At, int] = field(default_factory=dict)
    found: list[tuple[float, Problem]] = field(default_factory=list)

    def add(self, at: At, given: str, expected: str, mend: str) -> None:
        line = next((self.lines[at[:n]] for n in range(len(at), 0, -1) if at[:n] in self.lines), None)
        if "secrets" in at[:2]:  # the second place is for `defaults.secrets`
            given = "something that is not shown here, because it may be secret"
            at = tuple(part for n, part in enumerate(at) if n <= at.index("secrets") or isinstance(part, int))
        self.put(line, Problem(_spelled(at) + (f" (line {line})" if line else ""), given, expected, mend))

    def put(self, line: int | None, problem: Problem) -> None:
        self.found.append((line or float("inf"), problem))
        if len(self.found) >= MAX_PROBLEMS:
            raise _Stop

    def stop(self, where: str, given: str, expected: str, mend: str) -> NoReturn:
        self.put(None, Problem(where, given, expected, mend))
        raise _Stop

    def problems(self) -> list[Problem]:
        return [problem for _, problem in sorted(self.found, key=lambda pair: pair[0])]


@dataclass(slots=True)
class _Entry:
    """One field as the user wrote it; `value` is its canonical form, or _FAILED."""

    at: At
    raw: Any
    value: Any = None
    keys: tuple[Any, ...] = ()  # of the items that made it into `value`: a bad one before them shifts their places


_FAILED: Final = object()


# --- 1. text to plain data --------------------------------------------------------------------------------------------
class _Plain(str):
    """Text that stood without quotes. What it means is the field's affair, so `no` and `1.10` come to no harm."""

    __slots__ = ()


def _document(job: object, report: _Report) -> Mapping[Any, Any]:
    raw: object = job
    if isinstance(job, bytes | str):
        raw = _read_yaml(_checked_text(job, report), report)
    if not isinstance(raw, Mapping):
        given = "text without keys" if isinstance(raw, str) and raw else _shown(raw)
        mend = "Write one `key: value` a line, such as `run: python train.py`."
        report.stop("the whole file", given, "a mapping with at least `run`", mend)
    return raw


def _checked_text(job: bytes | str, report: _Report) -> str:
    if len(job) > MAX_BYTES:
        mend = "Move scripts and data into files of their own."
        report.stop("the whole file", f"{len(job):,} characters", f"at most {MAX_BYTES:,}", mend)
    try:
        text = job.decode("utf-8") if isinstance(job, bytes) else job
    except UnicodeDecodeError as error:
        report.stop(f"byte {error.start}", "bytes that are not UTF-8", "text in UTF-8", "Save the file as UTF-8.")
    if match := _FORBIDDEN.search(text):
        line, column = text.count("\n", 0, match.start()) + 1, match.start() - text.rfind("\n", 0, match.start())
        given = f"the control character {match[0]!r}"
        report.stop(f"line {line}, column {column}", given, "printable text", "Remove it.")
    return text


def _read_yaml(text: str, report: _Report) -> Any:
    try:
        return _Tree(yaml.parse(text, Loader=_LOADER), report).document()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        # The line itself is not quoted: it may hold a secret.
        given = f"text that YAML can't read ({getattr(error, 'problem', None) or 'it breaks off'})"
        mend = "Check the quotes, the colons and the indentation there."
        if "\t" in "".join(text.splitlines()[line - 1 : line]):
            mend = "There is a tab on that line: indent with spaces."
        report.stop(f"line {line}, column {column}", given, "valid YAML", mend)


class _Tree:
    """Plain data from YAML events, read one by one so that no file can cost more than its limits."""

    def __init__(self, events: Iterator[Any], report: _Report) -> None:
        self._events = events
        self._report = report
        self._anchors: dict[str, tuple[Any, int]] = {}  # name → value, and its weight when written out
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
            self._report.stop(where, "a second document", "one job in a file", "Put each job in a file of its own.")
        return root

    def _node(self, event: Any, at: At, depth: int) -> Any:
        before = self._weight
        self._weigh(64, event)
        if depth > MAX_DEPTH:
            self._stop(event, f"more than {MAX_DEPTH} levels of nesting", "a flat job file", "Nest less deeply.")
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if event.tag not in _TAGS:
            self._report.add(at, f"the YAML tag {_cut(event.tag)}", "a plain value", "Remove the tag.")
        value: Any
        if isinstance(event, yaml.ScalarEvent):
            self._weigh(len(event.value), event)
            plain = not event.style and event.tag != "tag:yaml.org,2002:str"
            value = _Plain(event.value) if plain else event.value
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
            self._stop(event, "more values than any job needs", "a smaller file", "Use fewer YAML anchors and values.")

    def _stop(self, event: Any, given: str, expected: str, mend: str) -> NoReturn:
        self._report.stop(f"line {event.start_mark.line + 1}", given, expected, mend)


# --- 2. plain data to fields ------------------------------------------------------------------------------------------
def _entries(raw: Mapping[Any, Any], at: At, report: _Report) -> dict[FieldPath, _Entry]:
    entries: dict[FieldPath, _Entry] = {}
    for path, entry in _fields(JobSpec, (), raw, at, report):
        if path in entries:
            one, two = _spelled(entries[path].at), _spelled(entry.at)
            mend = f"They mean the same: keep `{'.'.join(path)}`."
            report.add(entry.at, f"both `{one}` and `{two}`", "one of the two", mend)
            continue
        entries[path] = entry
        note, info = _FIELDS[path]
        try:
            entry.value = _canonical(path, entry, report)
        except units.Unfit as unfit:
            entry.value = _FAILED
            mend = unfit.mend or _advice(path, note, info, entry.raw)
            # `envs: HF_TOKEN=...` is a common slip, and not one to print.
            given = "text" if note.form == "mapping" and isinstance(entry.raw, str) else _shown(entry.raw)
            report.add(entry.at, given, note.expected, mend)
    return entries


def _fields(
    model: type[BaseModel], path: FieldPath, raw: Mapping[Any, Any], at: At, report: _Report
) -> Iterator[tuple[FieldPath, _Entry]]:
    names = accepted_names(model)
    for key, value in raw.items():
        # A YAML 1.1 reader turns the key `on` into True.
        name = "on" if key is True and model is Retry else key
        if not isinstance(name, str) or name not in names:
            _report_unknown(name, names, path, at, report)
        elif not _is_null(value):
            below, target = (*at, str(name)), (*path, *names[name])
            section, note = _SECTIONS.get(target, (None, None))
            if section is None or note is None:
                yield target, _Entry(below, value)
            elif isinstance(value, Mapping):
                yield from _fields(section, target, value, below, report)
            elif note.shorthand and not isinstance(value, list | tuple):
                yield (*target, note.shorthand), _Entry(below, value)
            else:
                report.add(below, _shown(value), note.expected, f"Write, for example, `{name}: {note.example}`.")


def _report_unknown(key: object, names: Mapping[str, FieldPath], path: FieldPath, at: At, report: _Report) -> None:
    section = f"`{path[0]}`" if path else "the job file"
    if not isinstance(key, str) or not _is_clean(key):
        report.add(at, f"the key {_shown(key)}", f"a key of {section}, as text", "Remove it.")
        return
    text = str(key)[:80]
    near = difflib.get_close_matches(text.lower().replace("-", "_"), names, n=1)
    elsewhere = [other for other in _FIELDS if other[-1] == text]
    if elsewhere:
        place = f"under `{elsewhere[0][0]}`" if len(elsewhere[0]) > 1 else "at the top level"
        mend = f"Write it {place}."
    elif near:
        mend = f"Did you mean `{near[0]}`?"
    else:
        mend = "Remove it, or keep it under `tags` if it is a note of your own."
    report.add((*at, text), "a key that does not exist", f"a key of {section}", mend)


# --- 3. each value to its canonical form ------------------------------------------------------------------------------
def _canonical(path: FieldPath, entry: _Entry, report: _Report) -> Any:
    raw, note = entry.raw, _FIELDS[path][0]
    if isinstance(raw, Mapping) != (note.form == "mapping") and note.form in ("mapping", "list"):
        raise units.Unfit
    if note.form == "list":
        items = list(raw) if isinstance(raw, list | tuple) else [raw]
        return tuple(_item_texts(path, dict(enumerate(items)), entry, report).values())
    if note.form == "mapping":
        return _item_texts(path, raw, entry, report)
    if note.form == "commands" and isinstance(raw, list | tuple):
        return _joined_commands(raw, entry)
    if note.form == "accelerators" and isinstance(raw, Mapping):
        if len(raw) != 1:
            raise units.Unfit("A node has one kind of accelerator: name one.")
        raw = ":".join(_text(part) for part in next(iter(raw.items())))
    return _READ[note.form](_text(raw))


def _item_texts(path: FieldPath, items: Mapping[Any, Any], entry: _Entry, report: _Report) -> dict[Any, str]:
    (note, info), texts = _FIELDS[path], dict[Any, str]()
    for key, item in items.items():
        try:
            name = key if note.form == "list" else _text(key)
            texts[name] = _text(item)
        except units.Unfit as unfit:
            mend = unfit.mend or _advice(path, note, info, None)
            report.add(_item_at(entry, key), _shown(item), note.item, mend)
    entry.keys = tuple(texts)
    return texts


def _joined_commands(raw: list[Any] | tuple[Any, ...], entry: _Entry) -> str:
    if entry.at[-1] != "commands":
        # Elsewhere a list is one command's arguments: taking it for several commands would run something else.
        raise units.Unfit("Write the command as one text, or several of them as a list under `commands`.")
    commands = [_text(command) for command in raw]
    return "\n".join(["set -e", *commands] if len(commands) > 1 else commands)


def _text(raw: Any) -> str:
    """What was written, as text; numbers and truth values from a program become what YAML would have for them."""
    if _is_null(raw):
        raise units.Unfit('Write `""` for empty text.')
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, int | float):
        try:
            return repr(raw)
        except ValueError:  # an integer of thousands of digits
            raise units.Unfit from None
    if not isinstance(raw, str):
        raise units.Unfit
    if not _is_clean(raw):
        raise units.Unfit("Remove the NUL or broken character from it.")
    return str.__str__(raw)


def _over(defaults: dict[FieldPath, _Entry], given: dict[FieldPath, _Entry]) -> dict[FieldPath, _Entry]:
    for path, entry in given.items():
        below = defaults.get(path)
        if below and isinstance(below.value, dict) and isinstance(entry.value, dict):
            entry.value = {**below.value, **entry.value}
    return {**defaults, **given}


# --- 4. and 5. the checks ---------------------------------------------------------------------------------------------
def _values(entries: Mapping[FieldPath, _Entry], base: Path | None) -> dict[str, Any]:
    """What the model is made from: nested, without what failed, with a name and an absolute `workdir`."""
    values: dict[str, Any] = {}
    for path, entry in entries.items():
        if entry.value is not _FAILED:
            section = values if len(path) == 1 else values.setdefault(path[0], {})
            section[path[-1]] = entry.value
    if pair := values.get("resources", {}).get("accelerators"):
        values["resources"].update(accelerator=pair[0], accelerators=pair[1])
    if base is not None and values.get("workdir"):
        # `os.path` and not `Path.resolve`, which would ask the disk.
        inside = os.path.join(base, os.path.expanduser(values["workdir"]))  # noqa: PTH111, PTH118
        values["workdir"] = os.path.abspath(inside)  # noqa: PTH100
    values.setdefault("name", units.name_from_command(values.get("run", "")))
    return values


def _check_names(entries: Mapping[FieldPath, _Entry], report: _Report) -> None:
    """Names in the ranks' environment: none that the launcher sets, none given both openly and as a secret."""
    nothing = _Entry((), None, ())
    envs, secrets = (entries.get((name,), nothing) for name in ("envs", "secrets"))
    env_names = list(envs.value) if isinstance(envs.value, dict) else []
    secret_names = list(secrets.value) if isinstance(secrets.value, tuple) else []
    placed = [(name, _item_at(envs, name)) for name in env_names]
    placed += [(name, _item_at(secrets, key)) for name, key in zip(secret_names, secrets.keys, strict=True)]
    for name, at in placed:
        if name in RESERVED or name.startswith(RESERVED_PREFIX):
            report.add(at, "a name that the launcher sets on every rank", "a name of your own", "Rename it.")
    for name in sorted({*env_names} & {*secret_names}):
        mend = "Remove it from `envs`: the secret is put into the environment under that name."
        report.add(_item_at(envs, name), "a name that `secrets` has too", "a name in one of the two", mend)


def _validated(values: dict[str, Any], entries: Mapping[FieldPath, _Entry], report: _Report) -> JobSpec | None:
    try:
        return JobSpec.model_validate(values)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
    reported: set[At] = set()  # a union reports one fault for each of its members
    for fault in faults:
        loc = tuple(fault["loc"])
        path = next(tuple(map(str, loc[:n])) for n in (2, 1) if loc[:n] in _FIELDS)
        note, info = _FIELDS[path]
        entry = entries.get(path)
        if entry is None:
            report.add(path, "nothing", note.expected, _advice(path, note, info, None))
        elif entry.value is not _FAILED:
            at, raw, expected = _faulty(note, entry, loc[len(path) :])
            if at not in reported:
                reported.add(at)
                report.add(at, _shown(raw), expected, _advice(path, note, info, raw))
    return None


def _faulty(note: Written, entry: _Entry, rest: tuple[int | str, ...]) -> tuple[At, Any, str]:
    """Where exactly, what stood there and what should: of the item, where the fault is in one item."""
    if not rest or note.form not in ("list", "mapping"):
        return entry.at, entry.raw, note.expected
    if isinstance(rest[0], str):
        # Only the name is shown: values of an environment are often more private than their names.
        return _item_at(entry, rest[0]), rest[0], note.item
    key = entry.keys[rest[0]]
    at = _item_at(entry, key)
    return at, entry.raw if at == entry.at else entry.raw[key], note.item


# --- how things are said ----------------------------------------------------------------------------------------------
def _advice(path: FieldPath, note: Written, info: FieldInfo, raw: Any) -> str:
    if path == ("secrets",):
        return "Set the value with `muster project secret set NAME`, and write only the name here."
    if note.form == "name" and isinstance(raw, str):
        return f"Call it `{units.mended_name(raw[:200])}`."
    choices = [*get_args(info.annotation), *(name for inner in get_args(info.annotation) for name in get_args(inner))]
    said = raw[:80].lower() if isinstance(raw, str) else ""
    near = difflib.get_close_matches(said, [choice for choice in choices if isinstance(choice, str)], n=1)
    return f"Did you mean `{near[0]}`?" if near else f"Write, for example, `{path[-1]}: {note.example}`."


def _shown(raw: Any) -> str:
    """For a person, in at most 80 characters. Never what a list or mapping holds: it may be secret."""
    if _is_null(raw):
        return "nothing"
    if isinstance(raw, Mapping):
        return "a mapping"
    if isinstance(raw, list | tuple | set | frozenset):
        return "a list"
    if isinstance(raw, str) and not _is_clean(raw):
        return "text with a NUL or a broken character in it"
    if not isinstance(raw, str | int | float):
        return f"a Python {type(raw).__name__}"
    try:
        bare = isinstance(raw, _Plain) and _BARE.fullmatch(raw)
        return _cut(str.__str__(raw) if bare else repr(raw))
    except ValueError:
        return "a number of thousands of digits"


def _cut(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."


def _spelled(at: At) -> str:
    words = ""
    for part in at:
        if isinstance(part, str) and _SIMPLE_KEY.fullmatch(part):
            words += f".{part}" if words else part
        else:
            words += f"[{_cut(repr(part))}]"
    return words or "the whole file"


def _item_at(entry: _Entry, key: Any) -> At:
    if not isinstance(entry.raw, Mapping | list | tuple):
        return entry.at
    return (*entry.at, key if isinstance(key, str | int) else _shown(key))


def _is_null(raw: Any) -> bool:
    return raw is None or (isinstance(raw, _Plain) and raw in ("", "~", "null", "Null", "NULL"))


def _is_clean(text: str) -> bool:
    return not _BROKEN.search(text)


def _field_tables() -> None:
    for name, info in JobSpec.model_fields.items():
        note, section = written(info), section_model(info)
        if section and note:
            _SECTIONS[(name,)] = section, note
            notes = {below: (written(deep), deep) for below, deep in section.model_fields.items()}
            _FIELDS.update({(name, below): (deep, info) for below, (deep, info) in notes.items() if deep})
        elif note:
            _FIELDS[(name,)] = note, info


_FIELDS: Final[dict[FieldPath, tuple[Written, FieldInfo]]] = {}
_SECTIONS: Final[dict[FieldPath, tuple[type[BaseModel], Written]]] = {}
_field_tables()
_READ: Final[dict[str, Callable[[str], Any]]] = {
    **dict.fromkeys(("text", "name", "path", "commands"), str),
    "choice": lambda text: text.strip().lower(),
    "integer": units.parse_integer,
    "number": units.parse_number,
    "flag": units.parse_flag,
    "priority": units.parse_priority,
    "duration": units.parse_duration,
    "duration_or_auto": units.parse_duration_or_auto,
    "size": units.parse_size,
    "accelerators": units.parse_accelerators,
}
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_CORE_TAGS: Final = ("str", "int", "float", "bool", "null", "map", "seq")
_TAGS: Final = (None, "!", *(f"tag:yaml.org,2002:{kind}" for kind in _CORE_TAGS))
_FORBIDDEN: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
_BROKEN: Final = re.compile("[\x00\ud800-\udfff]")  # what no process can be given
_BARE: Final = re.compile(r"[0-9.+-]+|true|false")
_SIMPLE_KEY: Final = re.compile(r"[A-Za-z0-9_./-]{1,80}")
