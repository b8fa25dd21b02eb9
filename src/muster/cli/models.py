"""`muster models`: the model registry, with stages and the evidence for each promotion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.text import Text

from muster.api.words import STAGES
from muster.cli import complete, format
from muster.cli.call import Json, Usage
from muster.cli.connect import client
from muster.cli.group import bare_lists, group
from muster.cli.model_names import One, one_version, parse_name
from muster.cli.models_verify import download, keys, verify
from muster.cli.output import emit, note, out, show_table, table

app = group("Register models, promote them with evidence, and see where they came from.")

_STAGE_STYLES = {"production": "green", "staging": "yellow", "archived": "bright_black"}
Name = Annotated[str, typer.Argument(metavar="MODEL", help="Name.")]


@app.command()
def ls(json: Json = False) -> None:
    """List the models that you can see."""
    with client() as to:
        models = to.models()
    if json:
        emit({"models": models})
        return
    if not models:
        note("No models. Register one with `muster models register NAME RUN`.")
        return
    made = table("name", "project", "production", "staging", "newest", "aliases", "updated", right=("updated",))
    for one in models:
        latest = one["latest"]
        versions = [str(latest.get(stage, "-")) for stage in ("production", "staging")]
        newest = str(max(latest.values(), default="-"))
        aliases = ", ".join(f"{alias}={version}" for alias, version in one["aliases"].items())
        made.add_row(
            Text(one["name"], style="bold"), one["project"], *versions, newest, aliases, format.since(one["updated_at"])
        )
    show_table(made)


bare_lists(app, ls)
app.command()(verify)
app.command()(download)
app.command()(keys)


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="MODEL[/VERSION]", help="A model, or one version: gpt/3 or gpt@best.")],
    json: Json = False,
) -> None:
    """Show a model's versions, or one version with its promotions and their evidence."""
    with client() as to:
        model, version = parse_name(to, name)
        found = to.model(model, version)
    if json:
        emit(found)
    elif version is None:
        _show_model(found)
    else:
        _show_version(found)


@app.command()
def register(
    name: Name,
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="That made it.", autocompletion=complete.jobs)
    ] = None,
    step: Annotated[int | None, typer.Option(help="Its checkpoint at this step.")] = None,
    artifact: Annotated[str | None, typer.Option(help="This artifact of it.")] = None,
    source: Annotated[str, typer.Option(help="Or an address: s3://bucket/model.")] = "",
    project: Annotated[
        str, typer.Option("--project", "-p", help="Where a new model goes.", autocompletion=complete.projects)
    ] = "default",
    description: Annotated[str, typer.Option(help="What it is.")] = "",
    json: Json = False,
) -> None:
    """Register the next version of a model, from a run, its checkpoint or artifact, or an address."""
    if run is None and not source:
        raise Usage("Nothing is named to register.", "Name a run, or an address with --source.")
    with client() as to:
        made = to.register_model(
            name, run, step=step, artifact=artifact, source=source, project=project, description=description
        )
    if json:
        emit(made)
    else:
        out().print(Text(f"{made['name']}/{made['version']} is registered, from {made['source']}"))


@app.command()
def promote(
    name: One,
    stage: Annotated[str, typer.Argument(metavar="STAGE", help="staging, production, archived or none.")],
    evidence: Annotated[
        list[str] | None,
        typer.Option(
            "--evidence", "-e", help="A run that speaks for it; may be repeated.", autocompletion=complete.jobs
        ),
    ] = None,
    metric: Annotated[list[str] | None, typer.Option("--metric", "-m", help="Keep only this metric of them.")] = None,
    why: Annotated[str, typer.Option("--why", help="In a sentence.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Although something is missing; --why must say why.")] = False,
    keep_others: Annotated[bool, typer.Option("--keep-others", help="Leave others in that stage.")] = False,
    json: Json = False,
) -> None:
    """Move a version to a stage; production wants runs as evidence, whose metrics are kept as they are now."""
    if stage not in STAGES:
        raise Usage(f"STAGE: got {stage!r}.", f"Expected one of {', '.join(STAGES)}.")
    with client() as to:
        model, version = one_version(to, name)
        made = to.promote_model(
            model, version, stage, evidence=evidence or [], metrics=metric or [], why=why, force=force,
            archive_others=not keep_others,
        )  # fmt: skip
    if json:
        emit(made)
    else:
        out().print(Text(f"{model}/{version}: {made['old']} → {made['new']}"))


@app.command()
def rollback(
    name: Name,
    why: Annotated[str, typer.Option("--why", help="In a sentence.")],
    stage: Annotated[str, typer.Option(help="staging or production.")] = "production",
    to: Annotated[int | None, typer.Option("--to", metavar="VERSION", help="Else the one before.")] = None,
    json: Json = False,
) -> None:
    """Put back the version that was in a stage before; the one that is there is archived."""
    with client() as at:
        made = at.roll_back_model(name, why, stage, to)
    if json:
        emit(made)
    else:
        out().print(Text(f"{name}/{made['version']}: {made['old']} → {made['new']}"))


@app.command()
def alias(
    name: One,
    alias: Annotated[str, typer.Argument(metavar="ALIAS", help="Such as best.")],
    remove: Annotated[bool, typer.Option("--remove", help="Take the alias away.")] = False,
    json: Json = False,
) -> None:
    """Give a version an alias, which leaves the version that had it."""
    with client() as to:
        model, version = one_version(to, name)
        made = to.set_model_alias(model, alias, None if remove else version)
    if json:
        emit(made)
    else:
        out().print(Text(f"{model}@{alias} is {'gone' if remove else f'{model}/{version}'}"))


@app.command()
def rm(
    name: Annotated[str, typer.Argument(metavar="MODEL[/VERSION]", help="A model with all its versions, or one.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    json: Json = False,
) -> None:
    """Delete a version, or a model with all of them; runs and artifacts stay."""
    with client() as to:
        model, version = parse_name(to, name)
        what = f"{model}/{version}" if version else f"model {model} with all its versions"
        if not yes and not json:
            typer.confirm(f"Delete {what}?", abort=True)
        made = to.delete_model(model, version)
    if json:
        emit(made)
    else:
        out().print(Text(f"{what} is deleted"))


def _show_model(found: Mapping[str, Any]) -> None:
    out().print(Text.assemble((found["name"], "bold"), f"  project {found['project']}"))
    if found["description"]:
        out().print(Text(found["description"]))
    made = table("version", "stage", "source", "by", "age", "aliases", "description", right=("age",))
    for one in reversed(found["versions"]):
        stage = Text(one["stage"], style=_STAGE_STYLES.get(one["stage"], "dim"))
        cells = [one["source"], one["user"], format.since(one["created_at"]), ", ".join(one["aliases"])]
        made.add_row(str(one["version"]), stage, *cells, one["description"])
    show_table(made)


def _show_version(found: Mapping[str, Any]) -> None:
    out().print(Text.assemble((f"{found['name']}/{found['version']}", "bold"), f"  {found['stage']}"))
    facts = {"from": found["source"], "run": found["run"], "by": found["user"], "about": found["description"]}
    facts["scan"] = found.get("scan") or ""
    facts |= {"registered": format.clock(found["created_at"]), "aliases": ", ".join(found["aliases"])}
    facts["tags"] = ", ".join(f"{key}={value}" for key, value in found["tags"].items())
    for key, value in facts.items():
        if value:
            out().print(Text.assemble((f"{key:<11}", "dim"), value))
    for one in found["promotions"]:
        why = f": {one['doc']['why']}" if one["doc"]["why"] else ""
        who = f"  {one['old']} → {one['new']} by {one['actor']}{why}"
        out().print(Text.assemble((format.clock(one["time"]), "dim"), who))
        for proof in one["doc"]["evidence"]:
            values = ", ".join(f"{name} {item['value']}" for name, item in proof["metrics"].items())
            out().print(Text.assemble("    ", (proof["run"], "bold"), f"  {values}"))
