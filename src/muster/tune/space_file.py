"""Reads the `space` of a study file: each parameter in its notation, and what is wrong with any of them.

lr: {log: [1e-5, 1e-2]}                    # any number between, as likely at each power of ten
dropout: {float: [0, 0.5]}                 # any number; {float: [0, 0.5, 0.1]}: in steps
depth: {int: [4, 24, 4], when: "model == 'deep'"}
width: {int_log: [16, 1024]}
batch: [64, 128, 256]                      # one of these
model: {choice: [deep, wide]}
epochs: 10                                 # always this
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, Final, cast

from muster.core.field_reader import FieldReader
from muster.core.fields import as_text
from muster.core.report import At, Plain, is_null, shown
from muster.core.units import InvalidValue, parse_flag, parse_number
from muster.tune.expression import parse_expression
from muster.tune.space import Kind, Parameter, Space, Value, is_there

PARAMETERS_MAX: Final = 200
CHOICES_MAX: Final = 1_000
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}")
NOTATIONS: Final = ("float", "log", "int", "int_log", "choice", "value")
_EXAMPLE: Final = "`{log: [1e-5, 1e-2]}`, `{int: [4, 24]}` or `[64, 128, 256]`"
_TRIED: Final = 20_000  # combinations of values that are tried to see whether a condition can hold


def read_space(reader: FieldReader, raw: Any, at: At) -> Space:
    given = reader.mapping(raw, at)
    if not given and at not in reader.wrong:
        hint = f"Write at least one, such as `lr: {{log: [1e-5, 1e-2]}}`: {_EXAMPLE}."
        reader.add(at, "no parameters", "the parameters to search over", hint)
    if len(given) > PARAMETERS_MAX:
        reader.report.stop("space", f"{len(given)} parameters", f"at most {PARAMETERS_MAX}", "Write fewer.")
    found: list[Parameter] = []
    for name, one in given.items():
        if not NAME.fullmatch(name):
            expected = "a name of letters, digits, `_`, `.` and `-` that begins with a letter"
            reader.add((*at, name), shown(name), expected, "Rename the parameter.")
            continue
        made = _parameter(reader, name, one, (*at, name), [known.name for known in found])
        if made is not None:
            found.append(made)
    _check_conditions(reader, found, at)
    return Space(tuple(found))


def read_value(raw: Any) -> Value:
    """A value as YAML means it: `3`, `1e-4` and `yes` without quotes are numbers and a flag."""
    if isinstance(raw, bool | int | float):
        return raw
    if not isinstance(raw, Plain):
        return as_text(raw)
    text = str.__str__(raw).strip()
    if text.lower().lstrip("+-") in (".nan", ".inf"):
        return math.nan
    try:
        number = parse_number(text)
        return int(number) if number == int(number) and re.fullmatch(r"[+-]?[0-9_]+", text) else number
    except (InvalidValue, OverflowError):
        pass
    try:
        return parse_flag(text)
    except InvalidValue:
        return text


def read_point(reader: FieldReader, space: Space, raw: Any, at: At) -> dict[str, Value]:
    """Values of parameters that somebody wrote, with the types of the space."""
    given = reader.mapping(raw, at)
    reader.refuse(given, [one.name for one in space.parameters], at)
    point: dict[str, Value] = {}
    for one in space.parameters:
        if one.name not in given:
            if is_there(one, point):
                reader.add((*at, one.name), "nothing", "a value of every parameter", f"Write `{one.name}: ...`.")
            continue
        value = _typed(one, read_value(given[one.name]))
        if not one.fits(value):
            reader.add((*at, one.name), shown(given[one.name]), _range(one), "Write a value of the space.")
        point[one.name] = value
    kept = space.pruned(point)
    for name in point.keys() - kept.keys():
        hint = "Leave it out."
        reader.add((*at, name), shown(given[name]), f"nothing: `{space.by_name[name].when}` does not hold", hint)
    return kept


def _parameter(reader: FieldReader, name: str, raw: Any, at: At, before: Sequence[str]) -> Parameter | None:
    if isinstance(raw, list | tuple):
        return _choice(reader, name, raw, at, "")
    if not isinstance(raw, Mapping):
        if is_null(raw):
            reader.add(at, "nothing", "its values", f"Write {_EXAMPLE}.")
            return None
        return _choice(reader, name, [raw], at, "")
    given = reader.mapping(raw, at)
    reader.refuse(given, (*NOTATIONS, "when"), at)
    named = [one for one in NOTATIONS if one in given]
    if len(named) != 1:
        told = " and ".join(f"`{one}`" for one in named) if named else "none of these"
        reader.add(at, told, f"one of {', '.join(NOTATIONS)}", f"Write {_EXAMPLE}.")
        return None
    when = _condition(reader, given, at, before)
    (notation,) = named
    values = given[notation]
    if notation == "value":
        return _choice(reader, name, [values], (*at, notation), when)
    if notation == "choice":
        if not isinstance(values, list | tuple):
            hint = "Write, for example, `choice: [relu, gelu]`."
            reader.add((*at, notation), shown(values), "a list of values", hint)
            return None
        return _choice(reader, name, values, (*at, notation), when)
    return _number(reader, name, notation, values, (*at, notation), when)


def _choice(reader: FieldReader, name: str, raw: Sequence[Any], at: At, when: str) -> Parameter | None:
    if not 0 < len(raw) <= CHOICES_MAX:
        hint = f"Write from 1 to {CHOICES_MAX:,} values, or a range such as `{{int: [1, 5000]}}`."
        reader.add(at, f"{len(raw)} values", "the values to choose from", hint)
        return None
    nested = next((one for one in raw if isinstance(one, Mapping | list | tuple)), None)
    if nested is not None:
        hint = "Give each a name, and let the program know what it means."
        reader.add(at, shown(nested), "numbers, texts, and yes or no", hint)
        return None
    values = tuple(read_value(one) for one in raw)
    if any(isinstance(one, float) and not math.isfinite(one) for one in values):
        reader.add(at, "infinity or NaN", "finite numbers", "Leave it out.")
        return None
    twice = next((one for index, one in enumerate(values) if _among(one, values[:index])), None)
    if twice is not None:
        reader.add(at, f"{twice!r} twice", "each value once", "Leave one out.")
        return None
    return Parameter(name, "choice", choices=values, when=when)


def _number(reader: FieldReader, name: str, notation: str, raw: Any, at: At, when: str) -> Parameter | None:
    whole, log = notation.startswith("int"), notation in ("log", "int_log")
    most = 2 if log else 3
    hint = f"Write, for example, `{notation}: [{'1e-5, 1e-2' if notation == 'log' else '4, 24'}]`."
    if not isinstance(raw, list | tuple) or not 2 <= len(raw) <= most:
        expected = "the lowest and the highest value" + ("" if log else ", and perhaps a step")
        reader.add(at, shown(raw), expected, hint)
        return None
    try:
        numbers = [parse_number(as_text(one)) for one in raw]
    except InvalidValue:
        reader.add(at, "a value that is no number", "numbers", hint)
        return None
    low, high, step = numbers[0], numbers[1], numbers[2] if len(numbers) > 2 else 1.0 if whole else None
    told = f"{shown(raw[0])} to {shown(raw[1])}"
    if not all(map(math.isfinite, numbers)) or max(abs(low), abs(high)) > 1e300:
        reader.add(at, told, "finite numbers", hint)
    elif low > high:
        reader.add(at, told, "the lowest value first", f"Write `{notation}: [{raw[1]}, {raw[0]}]`.")
    elif log and low <= 0:
        reader.add(at, told, "numbers above 0, which have a logarithm", hint)
    elif whole and any(one != int(one) for one in numbers):
        reader.add(at, told, "whole numbers", "Write `float` for others.")
    elif step is not None and (step <= 0 or (step > high - low > 0)):
        reader.add(at, f"a step of {step:g}", "a step above 0 that is not longer than the range", hint)
    else:
        kind: Kind = "int" if whole else "float"
        return Parameter(name, kind, low, high, log, None if whole and log else step, when=when)
    return None


def _condition(reader: FieldReader, given: Mapping[str, Any], at: At, before: Sequence[str]) -> str:
    raw = given.get("when")
    if is_null(raw):
        return ""
    try:
        parse_expression(as_text(raw), frozenset(before))
    except InvalidValue as unfit:
        expected = "a condition on parameters that stand before it, such as `model == 'deep'`"
        reader.add((*at, "when"), shown(raw), expected, unfit.hint or "Compare parameters with values.")
        return ""
    return as_text(raw).strip()


def _check_conditions(reader: FieldReader, parameters: Sequence[Parameter], at: At) -> None:
    """Reports conditions that hold for no values of the parameters that they read, if these can be tried."""
    by_name = {one.name: one for one in parameters}
    for one in parameters:
        if one.condition is None:
            continue
        names = sorted(one.condition.names & by_name.keys())
        values = [by_name[name].values for name in names]
        if any(some is None for some in values) or math.prod(len(some or ()) for some in values) > _TRIED:
            continue
        tried = product(*(cast("tuple[Value, ...]", some) for some in values))
        if not any(is_there(one, dict(zip(names, point, strict=True))) for point in tried):
            hint = "Correct the condition, or leave the parameter out."
            reader.add((*at, one.name, "when"), shown(one.when), "a condition that can hold", hint)


def _typed(one: Parameter, value: Value) -> Value:
    """A number as the parameter has it: 1 where 1.0 was written for whole numbers, and the other way round."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if one.kind == "float":
        return float(value)
    if one.kind == "int" and value == int(value):
        return int(value)
    same = [each for each in one.choices if each == value and not isinstance(each, bool)]
    return same[0] if same else value


def _range(one: Parameter) -> str:
    if one.kind == "choice":
        return f"one of {', '.join(map(str, one.choices[:10]))}"
    return f"a number from {one.low:g} to {one.high:g}"


def _among(value: Value, others: Sequence[Value]) -> bool:
    return any(one == value and isinstance(one, bool) == isinstance(value, bool) for one in others)
