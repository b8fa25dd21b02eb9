"""`muster render`: what Muster would send to a cluster or a managed service for a job; works without a server."""

from __future__ import annotations

import json as json_lib
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer
import yaml

from muster.cli.call import Json, Usage, home_folder
from muster.cli.output import emit, note
from muster.cli.prepare import from_file, parse_overrides
from muster.cli.terminal import stdout
from muster.engines.registry import check_engines
from muster.engines.rendering import RENDERERS, Rendered, render_job
from muster.server.settings import Settings

NOT_RUN: Final = "rendered, not run"
_FORMATS: Final = ("yaml", "json")
# Text that some parser of YAML 1.1 or 1.2 may take for a number, a time, a flag or null unless it is quoted.
_AMBIGUOUS: Final = re.compile(r"[-+.0-9~=].*|(y|n|yes|no|on|off|true|false|null|inf|nan)\Z", re.IGNORECASE)


def render(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A job file; - reads it from standard input.")],
    engine: Annotated[
        str, typer.Option("--engine", "-e", help=f"What for: {', '.join(RENDERERS)}, or an engine of config.toml.")
    ],
    form: Annotated[
        str, typer.Option(help="For Kubernetes: job, jobset, trainjob or pytorchjob; else what the job file says.")
    ] = "",
    override: Annotated[
        list[str] | None,
        typer.Option("--set", "--override", metavar="KEY=VALUE", help="Set a field of the job file: --set envs.LR=1."),
    ] = None,
    output: Annotated[str, typer.Option("--output", "-o", help="yaml or json.")] = "yaml",
    json: Json = False,
) -> None:
    """Print what Muster would hand to a cluster, or what a managed service takes, for a job file."""
    if output not in _FORMATS:
        hint = f"Fields are set by --set {output}." if "=" in output else f"There are: {', '.join(_FORMATS)}."
        raise Usage(f"-o: got {output!r}.", hint)
    spec = from_file(file, parse_overrides(override or ()), local=False).spec
    kind, settings = _settings(engine)
    if form and kind != "kubernetes":
        raise Usage(f"--form is for Kubernetes, and {engine} has none.", "Leave it out.")
    made = render_job(spec, kind, form, settings)
    if json:
        emit(_document(made, engine))
        return
    stdout().write(as_yaml(made) if output == "yaml" else as_json(made))
    if not made.run:
        note((f"{engine}: {NOT_RUN}: made by the published reference of its API.", "yellow"))
    for line in made.lost:
        note(("not carried: ", "bold yellow"), line)
    for line in made.notes:
        note(("note: ", "bold"), line)


def as_yaml(made: Rendered) -> str:
    """All documents in order, under a comment that says what they are."""
    head = [made.about, *([NOT_RUN] if not made.run else [])]
    comment = "".join(f"# {line}\n" for text in head for line in text.splitlines())
    return comment + "---\n".join(_yaml(document) for document in made.documents)


def as_json(made: Rendered) -> str:
    """One document: a request's body unchanged, and Kubernetes objects as a List, which kubectl accepts."""
    if all("apiVersion" in document and "kind" in document for document in made.documents):
        whole: Any = {"apiVersion": "v1", "kind": "List", "items": list(made.documents)}
    else:
        whole = made.documents[0] if len(made.documents) == 1 else list(made.documents)
    return json_lib.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def _settings(engine: str) -> tuple[str, dict[str, Any]]:
    """The kind of an engine and its settings, if this home has any; a bare kind has none."""
    home = home_folder()
    tables = check_engines(Settings.load(home, {}).engines) if (home / "config.toml").exists() else {}
    settings = dict(tables.get(engine, {}))
    return settings.pop("kind", engine), settings


def _document(made: Rendered, engine: str) -> dict[str, Any]:
    return {
        "engine": engine,
        "about": made.about,
        "status": "rendered" if made.run else NOT_RUN,
        "documents": list(made.documents),
        "not_carried": list(made.lost),
        "notes": list(made.notes),
    }


def _yaml(document: Mapping[str, Any] | Sequence[Any]) -> str:
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


class _Dumper(yaml.SafeDumper):
    """Quotes text that a YAML parser could take for another type; writes no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if _AMBIGUOUS.match(text) or any(mark in text for mark in "\x85\u2028\u2029") else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
