"""A verb with sub-verbs: called without one, it lists its objects."""

from __future__ import annotations

from collections.abc import Callable

import typer

from muster.cli.call import Json


def group(help_: str) -> typer.Typer:
    return typer.Typer(add_completion=False, rich_markup_mode="rich", help=help_)


def bare_lists(app: typer.Typer, ls: Callable[[bool], None]) -> None:
    """Makes `muster nodes` mean `muster nodes ls`."""

    @app.callback(invoke_without_command=True)
    def bare(ctx: typer.Context, json: Json = False) -> None:
        if ctx.invoked_subcommand is None:
            ls(json)
