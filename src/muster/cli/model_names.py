"""How a model's version is named on the command line: `gpt`, `gpt/3`, `gpt@best`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from muster.cli.call import Usage

One = Annotated[str, typer.Argument(metavar="MODEL/VERSION", help="Such as gpt/3, or gpt@best by its alias.")]


def parse_name(to: Any, text: str) -> tuple[str, int | None]:
    """Parses `gpt`, `gpt/3`, `gpt@best`, or `gpt@3` if no alias is called 3."""
    name, at, alias = text.partition("@")
    if at:
        aliases = to.model(name)["aliases"]
        if alias in aliases:
            return name, int(aliases[alias])
        if alias.isascii() and alias.isdigit():
            return name, int(alias)
        raise Usage(f"Model {name} has no alias {alias!r}.", f"It has: {', '.join(aliases) or 'none'}.")
    name, slash, version = text.partition("/")
    if slash and not (version.isascii() and version.isdigit()):
        raise Usage(f"{text!r}: {version!r} is no version.", "Write a number behind the slash: gpt/3.")
    return name, int(version) if slash else None


def one_version(to: Any, text: str) -> tuple[str, int]:
    name, version = parse_name(to, text)
    if version is None:
        raise Usage(f"{text!r} names no version.", f"Write {text}/1, or {text}@ALIAS.")
    return name, version
