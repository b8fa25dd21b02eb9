"""Verbs by import path: a module is imported when its verb is called or completed, not to print the list of verbs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from typing import Any, Literal, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb: `target` is "module:name" of a function, or of a Typer app with sub-verbs."""

    name: str
    target: str
    help: str
    panel: str
    settings: dict[str, Any] = field(default_factory=dict)  # of its Click context
    command: type[TyperCommand] = TyperCommand  # parses its words


def lazy_app(verbs: Sequence[Verb], bare: str = "", **settings: Any) -> typer.Typer:
    """An app of these verbs, in this order; `bare` is the default verb if the first word is none of them."""
    table = {verb.name: verb for verb in verbs}
    made = cache(lambda name: command_of(table[name]))

    class LazyGroup(TyperGroup):
        """Lists placeholders that only have a help line, and calls the commands behind them."""

        verbs = table

        def parse_args(self, ctx: Any, args: list[str]) -> Any:
            if bare and (not args or args[0] not in (*table, *ctx.help_option_names)):
                args = [bare, *args]
            return super().parse_args(ctx, args)

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            name, stand_in, rest = super().resolve_command(ctx, args)
            return name, made(name) if name and stand_in else None, rest

    app = typer.Typer(cls=LazyGroup, **settings)
    for verb in verbs:
        app.command(verb.name, help=verb.help, rich_help_panel=verb.panel)(_stand_in)
    return app


def command_of(verb: Verb) -> Any:
    """The verb's Click command; imports it now."""
    found = load(verb.target)
    if not isinstance(found, typer.Typer):
        single = typer.Typer(add_completion=False, rich_markup_mode="rich")
        single.command(verb.name, cls=verb.command, context_settings=verb.settings)(found)
        found = single
    return light_command(found)


def light_command(app: typer.Typer) -> Any:
    """The app's Click command, which takes values that need no conversion as they are.

    Newer Typers give every value to Pydantic, and to import that is a third of what a short command costs.
    """
    made = get_command(app)
    for command in (made, *getattr(made, "commands", {}).values()):
        command.get_params = partial(_light_params, command.get_params)
    return made


def _light_params(get: Callable[[Any], list[Any]], ctx: Any) -> list[Any]:
    params = get(ctx)
    for param in params:
        if hasattr(param, "get_runtime_param") and not isinstance(param.get_runtime_param, _LightConversion):
            param.get_runtime_param = _LightConversion(param.get_runtime_param)
    return params


class _LightConversion:
    """In the place of a parameter's `get_runtime_param` and of what that returns."""

    def __init__(self, full: Callable[[], Any]) -> None:
        self._full = full

    def __call__(self) -> _LightConversion:
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        kind = param.type_descriptor.annotation
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if type(value) is kind or (get_origin(kind) is Literal and value in get_args(kind)):
            return value
        if kind == list[str] and isinstance(value, list | tuple) and all(type(one) is str for one in value):
            return list(value)
        return self._full().coerce(value, param=param, ctx=ctx)


def load(target: str) -> Any:
    """The object that "module:name" names."""
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)


def _stand_in() -> None:
    raise AssertionError("a stand-in is never called")
