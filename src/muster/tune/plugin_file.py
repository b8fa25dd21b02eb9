"""Reads the searcher and the stopping rule of a study file, with the options that each declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.core.errors import NotFound
from muster.core.field_reader import FieldReader
from muster.core.fields import as_text
from muster.core.registry import Registry
from muster.core.report import At, is_null, shown
from muster.core.suggest import did_you_mean
from muster.core.units import InvalidValue, parse_flag, parse_integer, parse_number
from muster.tune.expression import parse_expression
from muster.tune.plugin import Named, Option
from muster.tune.searchers import SEARCHERS
from muster.tune.spec import Plugin


def read_searchers(reader: FieldReader, raw: Any, objectives: int) -> tuple[Plugin, ...]:
    """One searcher, or a list of them, which take turns."""
    some = list(raw) if isinstance(raw, list | tuple) and raw else [raw]
    places: list[At] = [("search", index) for index in range(len(some))] if len(some) > 1 else [("search",)]
    found = [read_plugin(reader, one, at, SEARCHERS, "auto") for one, at in zip(some, places, strict=True)]
    for one, at in zip(found, places, strict=True):
        if one.name in SEARCHERS and objectives > SEARCHERS.get(one.name).OBJECTIVES:
            able = [name for name in SEARCHERS if objectives <= SEARCHERS.get(name).OBJECTIVES]
            hint = f"Use {', '.join(able)}, or one objective and `constraints`."
            reader.add(at, f"{one.name} for {objectives} objectives", f"a search by {objectives} objectives", hint)
    return tuple(found)


def read_plugin(reader: FieldReader, raw: Any, at: At, known: Registry[Any], usual: str) -> Plugin:
    """`tpe` or `{tpe: {option: value}}`; where one option is a text, it may stand alone: `{rule: "..."}`."""
    named = reader.mapping(raw, at) if isinstance(raw, Mapping) else {}
    if isinstance(raw, Mapping) and len(named) != 1:
        hint = f"Write, for example, `{at[0]}: {usual}`."
        reader.add(at, f"{len(named)} names", "one name with its options", hint)
        return Plugin(usual)
    name = next(iter(named)) if named else usual if is_null(raw) else _text(raw)
    try:
        found: type[Named] = known.get(name)
    except NotFound:
        reader.add(at, shown(raw if not named else name), f"one of {', '.join(known)}", did_you_mean(name, list(known)))
        return Plugin(usual)
    value = named.get(name)
    short = next((one.name for one in found.OPTIONS if one.kind == "text"), None)
    given = {short: value} if short and not is_null(value) and not isinstance(value, Mapping) else value
    return Plugin(name, _options(reader, found, given, (*at, name)))


def _text(raw: Any) -> str:
    try:
        return as_text(raw).strip()
    except InvalidValue:
        return ""


def _options(reader: FieldReader, plugin: type[Named], raw: Any, at: At) -> dict[str, Any]:
    given = reader.mapping(raw, at)
    reader.refuse(given, [one.name for one in plugin.OPTIONS], at)
    for one in plugin.OPTIONS:
        if one.kind == "text" and one.default is None and one.name not in given:
            reader.add((*at, one.name), "nothing", one.words, f'Write `{plugin.NAME}: "value > 2 * best"`.')
    return {one.name: _option(reader, one, given, at) for one in plugin.OPTIONS if one.name in given}


def _option(reader: FieldReader, one: Option, raw: Mapping[str, Any], at: At) -> Any:
    if one.kind == "choice":
        return reader.choice(raw, one.name, at, one.choices, one.default)
    if one.kind == "text":
        return _expression(reader, one, raw, at)
    parse = {"integer": parse_integer, "number": parse_number, "flag": parse_flag}[one.kind]
    value = reader.value(raw, one.name, at, parse, one.words, one.default)
    low = one.least if one.least is not None else float("-inf")
    high = one.most if one.most is not None else float("inf")
    if isinstance(value, int | float) and not isinstance(value, bool) and not low <= value <= high:
        span = f"at least {low:g}" if one.most is None else f"{low:g} to {high:g}"
        reader.add((*at, one.name), shown(raw.get(one.name)), f"{one.words}, {span}", "Write such a number.")
    return value


def _expression(reader: FieldReader, one: Option, raw: Mapping[str, Any], at: At) -> str:
    text = reader.text(raw, one.name, at, one.words, "value > 2 * best")
    try:
        if text:
            parse_expression(text, frozenset(one.choices) if one.choices else None)
    except InvalidValue as unfit:
        reader.add((*at, one.name), shown(text), one.words, unfit.hint)
    return text
