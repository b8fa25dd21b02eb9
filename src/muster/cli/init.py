"""`muster init`: copies a starter directory, ready to run, from the templates that come with Muster."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.text import Text

from muster.cli.call import Json
from muster.cli.output import emit, out, table
from muster.core.errors import Invalid
from muster.core.suggest import did_you_mean

_EVERY: Final = "_project"  # the folder of what every template is given: the CI file and what the tests need
# What several templates have, from another folder.
_SHARED: Final[Mapping[str, tuple[str, ...]]] = {
    "ddp": ("_language/grammar.py", "_language/model.py"),
    "eval": ("_language/grammar.py", "_language/model.py"),
    "lora": ("_language/grammar.py", "_language/model.py"),
    "data": ("_language/grammar.py",),
}


@dataclass(frozen=True, slots=True)
class Template:
    name: str
    title: str  # the first line of its README
    sources: Mapping[str, Traversable]  # of each file, by where it goes

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(sorted(self.sources))


def offered(incomplete: str) -> list[tuple[str, str]]:
    """The templates for shell completion."""
    return [(one.name, one.title) for one in templates() if one.name.startswith(incomplete)]


def init(
    directory: Annotated[
        Path | None,
        typer.Argument(help="Where to put it: a new folder of the template's name unless given.", metavar="[DIR]"),
    ] = None,
    template: Annotated[
        str | None,
        typer.Option("--template", "-t", autocompletion=offered, help="Which template; see --list."),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Show the templates and stop.")] = False,
    json_: Json = False,
) -> None:
    """Copy a starter template: job.yaml, a program with its tests, a CI file and a README, ready to run."""
    if list_:
        _show(templates(), json_)
        return
    if template is None:
        raise Invalid("init: no template was named.", f"Give one of them with --template: {_names()}.")
    made = find(template)
    target = directory if directory is not None else Path(made.name)
    copy(made, target)
    here = target.resolve() == Path.cwd()
    first = "muster tune study.yaml" if "study.yaml" in made.files else "muster run job.yaml"
    command = first if here else f"cd {shlex.quote(str(target))} && {first}"
    if json_:
        document = {"template": made.name, "directory": str(target), "files": list(made.files), "next": command}
        emit(document)
        return
    out().print(Text(f"Wrote {', '.join(made.files)} to {target}."))
    out().print(Text.assemble("Next: ", (command, "bold")))


def templates() -> list[Template]:
    """All templates that come with Muster, ordered by name."""
    folders = sorted(_root().iterdir(), key=lambda folder: folder.name)
    return [_read(folder) for folder in folders if (folder / "job.yaml").is_file()]


def find(name: str) -> Template:
    """The template with that name; else an error that suggests the closest one."""
    known = {one.name: one for one in templates()}
    if name in known:
        return known[name]
    meant = did_you_mean(name.lower(), known, "", cutoff=0.5)
    raise Invalid(f"--template: there is no template {name!r}.", f"{meant} There are: {_names()}.".lstrip())


def copy(template: Template, target: Path) -> None:
    """Writes the template's files into `target`, created if needed; writes nothing if any of them exists."""
    if target.exists() and not target.is_dir():
        raise Invalid(f"init: {target} is a file.", "Name a folder, new or empty.")
    taken = [name for name in template.files if (target / name).exists()]
    if taken:
        raise Invalid(
            f"init: {target} already has {', '.join(taken)}, and nothing is overwritten.",
            "Name another folder, or move those files away.",
        )
    for name, source in template.sources.items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(source.read_bytes())


def _root() -> Traversable:
    return files("muster") / "templates"


def _read(folder: Traversable) -> Template:
    title = (folder / "README.md").read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
    shared = {name.rpartition("/")[2]: _root() / name for name in _SHARED.get(folder.name, ())}
    return Template(folder.name, title, dict(_walk(_root() / _EVERY)) | shared | dict(_walk(folder)))


def _walk(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            if entry.name not in ("__pycache__", "checkpoints"):
                yield from _walk(entry, f"{prefix}{entry.name}/")
        else:
            yield prefix + entry.name, entry


def _names() -> str:
    return ", ".join(one.name for one in templates())


def _show(found: list[Template], as_json: bool) -> None:
    if as_json:
        document = [{"name": one.name, "title": one.title, "files": list(one.files)} for one in found]
        emit({"templates": document})
        return
    rows = table("NAME", "WHAT IT IS")
    for one in found:
        rows.add_row(Text(one.name, "bold"), one.title)
    out().print(rows)
    out().print(Text.assemble("Copy one with ", ("muster init --template NAME DIR", "bold")))
