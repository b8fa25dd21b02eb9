"""The page of the command line: every verb with its usage, arguments and options, read from the Typer app."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from typer.main import get_command

from generator.markdown import generated, table
from muster.cli.lazy import command_of
from muster.cli.main import VERBS, app

ABOUT: Final = """\
Every verb has `--help`. Verbs that print something for people print JSON for programs with `--json`. The exit code is
0, or 1 for an error, or 2 for a command line that is not valid. `muster --install-completion` completes words in your
shell.

"""
HIDDEN: Final = {"help"}
_MARKUP: Final = re.compile(r"\[/?(?:bold|dim|green|italic)?\]|\[/?(?:bold|dim|green|italic)\b[^\]]*\]")


def cli_page() -> str:
    root = get_command(app)
    parts = [generated("The command line", "the commands in src/muster/cli"), ABOUT, _overview()]
    parts += ["## muster\n\nOptions that stand before the verb.\n\n", _options(root)]
    for verb in VERBS:
        command = command_of(verb)
        parts += _sections(f"muster {verb.name}", command, 2)
    return "".join(parts).rstrip() + "\n"


def _overview() -> str:
    panels = list(dict.fromkeys(verb.panel for verb in VERBS))
    rows = [
        (panel, " · ".join(f"[{verb.name}](#muster-{verb.name})" for verb in VERBS if verb.panel == panel))
        for panel in panels
    ]
    return table(("", "verbs"), rows) + "\n"


def _sections(path: str, command: Any, level: int) -> Iterator[str]:
    words = " ".join(_usage(command))
    yield f"{'#' * level} {path}\n\n{_help(command.help)}\n\n```text\n{path} {words}".rstrip() + "\n```\n\n"
    yield _arguments(command)
    yield _options(command)
    for name, stand_in in _subcommands(command):
        yield from _sections(f"{path} {name}", stand_in, level + 1)


def _subcommands(command: Any) -> Iterator[tuple[str, Any]]:
    lazy = getattr(command, "verbs", {})  # of a group whose verbs are imported when they are called
    for name, found in getattr(command, "commands", {}).items():
        if not found.hidden:
            yield name, command_of(lazy[name]) if name in lazy else found


def _usage(command: Any) -> Iterator[str]:
    if any(param.param_type_name == "option" for param in _params(command)):
        yield "[OPTIONS]"
    for param in _params(command):
        if param.param_type_name == "argument":
            name = _name(param) + ("..." if param.nargs != 1 else "")
            yield name if param.required else f"[{name}]"
    if getattr(command, "commands", None):
        yield "COMMAND ..."


def _arguments(command: Any) -> str:
    params = [param for param in _params(command) if param.param_type_name == "argument"]
    rows = [(f"`{_name(param)}`", _help(param.help)) for param in params]
    made = table(("argument", "meaning"), rows if any(row[1] for row in rows) else [])
    return f"{made}\n" if made else ""


def _options(command: Any) -> str:
    params = [param for param in _params(command) if param.param_type_name == "option"]
    made = table(("option", "meaning", "default"), [(_spelling(one), _help(one.help), _default(one)) for one in params])
    return f"{made}\n" if made else ""


def _params(command: Any) -> list[Any]:
    return [one for one in command.params if one.name not in HIDDEN and not getattr(one, "hidden", False)]


def _name(param: Any) -> str:
    return str(param.metavar or param.name).strip("[]{}").upper()


def _spelling(param: Any) -> str:
    names = sorted(param.opts, key=len, reverse=True) + param.secondary_opts
    value = "" if param.is_flag or param.count else f" {param.metavar or param.name.rpartition('_')[2].upper()}"
    return ", ".join(f"`{name}{value}`" for name in names)


def _default(param: Any) -> str:
    value = param.default
    if param.required or callable(value) or value in (None, False, "", ()) or isinstance(value, bool):
        return ""
    return f"`{value}`" if isinstance(value, str | int | float) else ""


def _help(text: str | None) -> str:
    return _MARKUP.sub("", text or "").strip()
