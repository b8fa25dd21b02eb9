"""What a command loads to start, and that values which Typer does not convert are those that it would have made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer
from typer.main import get_command

from muster.cli.lazy import light_command

_LOADED = """
import sys
from muster.cli.main import main
assert main(["ls", "--all"]) == 1  # there is no server
print(*sorted(sys.modules))
"""


def test_a_short_command_loads_nothing_that_it_does_not_use(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LOADED], capture_output=True, text=True, env={"MUSTER_HOME": str(tmp_path)}, check=True
    )
    assert "No server is running" in done.stderr
    loaded = set(done.stdout.split())
    assert "httpx" in loaded
    assert not loaded & {"pydantic", "yaml", "click", "pygments", "sqlalchemy", "fastapi", "numpy"}


def _app(given: list[Any]) -> typer.Typer:
    app = typer.Typer(add_completion=False)

    @app.command()
    def take(
        words: list[str],
        name: str = "n",
        size: Annotated[int, typer.Option(min=1)] = 3,
        share: float = 0.5,
        where: Path | None = None,
        kind: Literal["a", "b"] = "a",
        tag: Annotated[list[str] | None, typer.Option()] = None,
        level: Annotated[list[int] | None, typer.Option()] = None,
        flag: bool = False,
    ) -> None:
        given.append([words, name, size, share, where, kind, tag, level, flag])

    return app


@pytest.mark.parametrize(
    "line",
    [
        "one",
        "one two --name x --size 7 --share 2 --where /tmp --kind b --flag",
        "one --tag a --tag b --level 1 --level 2",
        "one --size 0",
        "one --size many",
        "one --kind c",
        "--name x",
    ],
)
def test_values_are_as_typer_makes_them(line: str) -> None:
    found = []
    for make in (get_command, light_command):
        given: list[Any] = []
        try:
            make(_app(given))(line.split(), prog_name="take", standalone_mode=False)
        except typer.BadParameter.__bases__[0] as error:
            given.append([type(error), error.format_message()])
        found.append([(value, type(value)) for value in given[0]])
    assert found[0] == found[1]
