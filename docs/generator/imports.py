"""Which package of `src/muster` imports which, read from the sources, and the layers that `import-linter` holds."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = ROOT / "src" / "muster"
# An import statement, or a target that is imported when it is called: "muster.server.main:serve".
_IMPORT: Final = re.compile(r"^\s*(?:from|import) muster\.(\w+)|\"muster\.(\w+)[\w.]*:\w", re.MULTILINE)
_NAMES: Final = re.compile(r"^\s*from muster import ([\w, ]+)", re.MULTILINE)

Graph = dict[str, set[str]]


def layers() -> list[list[str]]:
    """The first contract of pyproject.toml, from the top layer to the lowest."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    return [[name.strip() for name in layer.split("|")] for layer in contracts[0]["layers"]]


def imports() -> Graph:
    """Direct imports between packages."""
    found: Graph = {}
    for package in sorted(path for path in SOURCES.iterdir() if (path / "__init__.py").exists()):
        text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(package.rglob("*.py")))
        named = {name for pair in _IMPORT.findall(text) for name in pair if name}
        named |= {name.strip() for names in _NAMES.findall(text) for name in names.split(",")}
        found[package.name] = named - {package.name}
    return found


def reduced(graph: Graph) -> Graph:
    """Without the imports that follow from others: a → c is left out where a → b and b → c are there."""
    return {
        name: {to for to in targets if not any(to in _reached(graph, other, {name}) for other in targets - {to})}
        for name, targets in graph.items()
    }


def _reached(graph: Graph, start: str, seen: set[str]) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for to in graph.get(waiting.pop(), set()) - found - seen:
            found.add(to)
            waiting.append(to)
    return found
