"""Reads plain data (from YAML, TOML or JSON) into a tree of dataclasses by their annotations; reports all mistakes."""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
import types
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from muster.train.errors import Problem, TrainError

T = TypeVar("T")
_FAILED: Final[Any] = object()  # marks a value with a recorded problem
_NUMBER: Final = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|[-+]?inf")
_DURATION: Final = re.compile(r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")
_FLAGS: Final = {True: ("on", "yes", "true"), False: ("off", "no", "false", "none")}  # YAML 1.1 reads `off` as false


def bounded(default: Any, low: float | None = None, high: float | None = None, above: float | None = None) -> Any:
    """A number field with a range: `low` and `high` are inclusive, `above` is exclusive."""
    return dataclasses.field(default=default, metadata={"low": low, "high": high, "above": above})


def parsed(default: Any, parse: Callable[[Any], Any], expected: str) -> Any:
    """A field with its own notation; `parse` raises ValueError for an invalid text."""
    return dataclasses.field(default=default, metadata={"parse": parse, "expected": expected})


def short(default: Any, whole: Callable[[Any], Mapping[str, Any]]) -> Any:
    """A section that may be given as one word; `whole` converts the word to the section's mapping."""
    return dataclasses.field(default=default, metadata={"short": whole})


def duration(raw: Any) -> float:
    """Parses `90`, `30s`, `10m` or `1h30m` into seconds."""
    if isinstance(raw, int | float) and not isinstance(raw, bool) and math.isfinite(raw) and raw >= 0:
        return float(raw)
    found = _DURATION.fullmatch(raw.strip()) if isinstance(raw, str) and raw.strip() else None
    if found is None:
        raise ValueError(f"{raw!r} is not a duration")
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def read(cls: type[T], raw: Any, problems: list[Problem], where: str = "") -> T | None:
    """The dataclass from a mapping; None if it is invalid: then `problems` has the reasons."""
    if not isinstance(raw, Mapping):
        problems.append(Problem(where or "the whole file", shown(raw), f"a mapping of {_names(cls)}"))
        return None
    before, hints = len(problems), get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}  # type: ignore[arg-type]
    values = {}
    for key, given in raw.items():
        path = f"{where}.{key}" if where else str(key)
        if key not in fields:
            problems.append(Problem(path, "an unknown name", f"one of {_names(cls)}", nearest(key, fields)))
            continue
        values[key] = _value(hints[key], given, problems, path, fields[key].metadata)
    for name, field in fields.items():
        if name not in raw and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            path = f"{where}.{name}" if where else name
            problems.append(Problem(path, "nothing", _expected(hints[name], field.metadata), "It has no default."))
    return _made(cls, values, problems, where) if len(problems) == before else None


def nearest(name: Any, known: Any) -> str:
    """`Did you mean ...?`, or "" if no known name is similar."""
    found = difflib.get_close_matches(str(name), [str(each) for each in known], n=1, cutoff=0.6)
    return f"Did you mean `{found[0]}`?" if found else ""


def shown(raw: Any) -> str:
    """The value for display, in at most 80 characters."""
    if raw is None:
        return "nothing"
    if isinstance(raw, Mapping):
        return f"a mapping of {len(raw)}"
    if isinstance(raw, list | tuple):
        return f"a list of {len(raw)}"
    text = repr(raw)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _made(cls: type[T], values: dict[str, Any], problems: list[Problem], where: str) -> T | None:
    """Creates the dataclass. An error raised by its `__post_init__` is a problem like the others."""
    try:
        return cls(**values)
    except (ValueError, TrainError) as error:
        problems.append(Problem(where or "the whole file", "values that don't go together", f"what this asks: {error}"))
        return None


def _value(hint: Any, raw: Any, problems: list[Problem], where: str, rules: Mapping[str, Any]) -> Any:
    if "parse" in rules:
        try:
            return rules["parse"](raw)
        except (ValueError, TypeError, TrainError) as error:
            problems.append(Problem(where, shown(raw), rules["expected"], str(error)))
            return _FAILED
    origin, args = get_origin(hint), get_args(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        whole = rules["short"](raw) if "short" in rules and isinstance(raw, str) else raw
        return read(hint, whole, problems, where)
    if origin in (Union, types.UnionType):
        return _union(args, raw, problems, where, rules)
    if origin in (list, tuple) and isinstance(raw, list | tuple):
        return _items(hint, raw, problems, where, rules)
    if origin is dict and isinstance(raw, Mapping):
        return {str(key): _value(args[1], each, problems, f"{where}.{key}", rules) for key, each in raw.items()}
    found = _scalar(hint, raw)
    if found is _FAILED or not _within(found, rules):
        near = nearest(raw, get_args(hint)) if origin is Literal and isinstance(raw, str) else ""
        problems.append(Problem(where, shown(raw), _expected(hint, rules), near))
        return _FAILED
    return found


def _union(args: tuple[Any, ...], raw: Any, problems: list[Problem], where: str, rules: Mapping[str, Any]) -> Any:
    """The first member that accepts the value. If none does: the problems of the mapping's member, or one for all."""
    if raw is None and type(None) in args:
        return None
    for member in args:
        trial: list[Problem] = []
        found = _value(member, raw, trial, where, rules)
        if not trial:
            return found
        if isinstance(raw, Mapping) and dataclasses.is_dataclass(member):
            problems.extend(trial)
            return _FAILED
    problems.append(Problem(where, shown(raw), _expected(Union[args], rules)))  # noqa: UP007 - made from a tuple
    return _FAILED


def _items(hint: Any, raw: Any, problems: list[Problem], where: str, rules: Mapping[str, Any]) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    fixed = origin is tuple and args[-1:] != (Ellipsis,)
    if fixed and len(raw) != len(args):
        problems.append(Problem(where, shown(raw), _expected(hint, rules)))
        return _FAILED
    each = args if fixed else (args[0],) * len(raw)
    found = [_value(each[n], item, problems, f"{where}[{n}]", rules) for n, item in enumerate(raw)]
    return tuple(found) if origin is tuple else found


def _scalar(hint: Any, raw: Any) -> Any:
    if hint is Any or (hint is object):
        return raw
    if get_origin(hint) is Literal:
        spellings = _FLAGS[raw] if isinstance(raw, bool) else ("none", "off") if raw is None else (raw,)
        return next((each for each in spellings if each in get_args(hint)), _FAILED)
    if hint is bool:
        return raw if isinstance(raw, bool) else _FAILED
    if hint in (int, float) and isinstance(raw, str) and _NUMBER.fullmatch(raw.strip().replace("_", "")):
        raw = float(raw)  # YAML 1.1 parses 3e-4 as text
        raw = int(raw) if hint is int and raw.is_integer() else raw
    if hint is int:
        return raw if isinstance(raw, int) and not isinstance(raw, bool) else _FAILED
    if hint is float:
        good = isinstance(raw, int | float) and not isinstance(raw, bool) and not math.isnan(raw)
        return float(raw) if good else _FAILED
    if hint is str:
        return raw if isinstance(raw, str) and raw else _FAILED
    if get_origin(hint) is dict or hint is dict:
        return dict(raw) if isinstance(raw, Mapping) else _FAILED
    return None if hint is type(None) and raw is None else _FAILED


def _within(value: Any, rules: Mapping[str, Any]) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return True
    low, high, above = rules.get("low"), rules.get("high"), rules.get("above")
    return (low is None or value >= low) and (high is None or value <= high) and (above is None or value > above)


def _expected(hint: Any, rules: Mapping[str, Any]) -> str:
    if "expected" in rules:
        return str(rules["expected"])
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_expected(arg, rules) for arg in args)
    if origin is Literal:
        return f"one of {', '.join(map(str, args))}"
    if origin in (list, tuple):
        count = f"{len(args)} of: " if origin is tuple and args[-1:] != (Ellipsis,) else ""
        return f"a list, {count}each {_expected(args[0], rules)}" if args else "a list"
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return f"a mapping of {_names(hint)}"
    words = {int: "a whole number", float: "a number", str: "text", bool: "true or false", type(None): "nothing"}
    limits = [f"{word} {rules[key]:g}" for key, word in _LIMITS if rules.get(key) is not None]
    return " ".join([words.get(hint, "a mapping"), " and ".join(limits) if hint in (int, float) else ""]).strip()


def _names(cls: Any) -> str:
    return ", ".join(field.name for field in dataclasses.fields(cls) if field.init)


_LIMITS: Final = (("low", "of at least"), ("above", "above"), ("high", "of at most"))
