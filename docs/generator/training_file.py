"""The page of training files: the sections of `muster.train.config.Config`, read from the sources without torch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from generator.imports import SOURCES
from generator.markdown import generated, table

ABOUT: Final = """\
What `python -m muster.train config.yaml` reads: YAML, TOML or JSON. `key.key=value` on the command line changes a
setting. Every mistake is told at once; `--check` only looks. [Training](training.md) says what the settings are for.

"""
FOLDERS: Final = ("train", "train/parallel")
_WORD: Final = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    kind: str
    default: str
    comment: str


@dataclass(frozen=True, slots=True)
class Section:
    about: str
    fields: tuple[Field, ...]


def training_file_page() -> str:
    known = dict(_sections())
    parts = [generated("Training files", "src/muster/train"), ABOUT, f"```yaml\n{_example()}```\n"]
    waiting, done = [("", "Config")], set[str]()
    while waiting:
        path, name = waiting.pop(0)
        if name in done:
            continue
        done.add(name)
        title = f"`{path}`" if path else "The file"
        about = "" if not path else f"{known[name].about}\n\n"
        parts.append(f"\n## {title}\n\n{about}{_table(known[name])}")
        for one in known[name].fields:
            below = f"{path}.{one.name}" if path else one.name
            waiting += [(below, word) for word in _WORD.findall(one.kind) if word in known and "`" in one.kind]
    return "".join(parts)


def _example() -> str:
    """The file in the docstring of `train/config.py`."""
    told = ast.get_docstring(ast.parse((SOURCES / "train" / "config.py").read_text(encoding="utf-8"))) or ""
    return "".join(f"{line[4:]}\n" for line in told.splitlines() if line.startswith("    "))


def _table(section: Section) -> str:
    rows = [(f"`{one.name}`", one.kind, one.default, one.comment) for one in section.fields]
    return table(("field", "what to write", "default", "meaning"), rows)


def _sections() -> Iterator[tuple[str, Section]]:
    """Dataclasses with their fields, by name."""
    for folder in FOLDERS:
        for path in sorted((SOURCES / folder).glob("*.py")):
            text = path.read_text(encoding="utf-8")
            lines = text.splitlines()
            for node in ast.parse(text).body:
                if isinstance(node, ast.ClassDef) and any(
                    "dataclass" in ast.unparse(one) for one in node.decorator_list
                ):
                    about = " ".join((ast.get_docstring(node) or "").split())
                    yield node.name, Section(about, tuple(_fields(node, lines)))


def _fields(node: ast.ClassDef, lines: list[str]) -> Iterator[Field]:
    for one in node.body:
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and not one.target.id.startswith("_"):
            comment = lines[(one.end_lineno or one.lineno) - 1].partition("  # ")[2]
            yield Field(one.target.id, _kind(one), _default(one.value), comment)


def _kind(one: ast.AnnAssign) -> str:
    """The annotation; of a field with a notation of its own, what to write there."""
    if isinstance(one.value, ast.Call) and ast.unparse(one.value.func) == "parsed":
        return str(ast.literal_eval(one.value.args[2]))
    return f"`{ast.unparse(one.annotation)}`"


def _default(value: ast.expr | None) -> str:
    """The default as it is written in a file; nothing where a section or a value must be given."""
    if isinstance(value, ast.Call):
        maker = ast.unparse(value.func)
        value = value.args[0] if maker in ("bounded", "parsed") and value.args else None
    if not isinstance(value, ast.Constant) or value.value is None:
        return ""
    words = {True: "true", False: "false"}
    return f"`{words[value.value] if isinstance(value.value, bool) else value.value}`"
