"""`muster project`: projects, their members, and the secrets that their jobs may use."""

from __future__ import annotations

import getpass
import sys
from typing import Annotated

import typer
from rich.text import Text

from muster.api.words import ROLES
from muster.cli import complete
from muster.cli.call import Json, Usage
from muster.cli.connect import client
from muster.cli.group import bare_lists, group
from muster.cli.output import emit, note, out, show_table, table

app = group("Projects, their members and their secrets.")
secret = typer.Typer(add_completion=False, rich_markup_mode="rich", no_args_is_help=True)
app.add_typer(secret, name="secret", help="Secrets of a project. Values can be set, never read back.")

Project = Annotated[str, typer.Argument(metavar="PROJECT", help="Name.", autocompletion=complete.projects)]
OfProject = Annotated[
    str, typer.Option("--project", "-p", help="Project that it belongs to.", autocompletion=complete.projects)
]
SecretName = Annotated[str, typer.Argument(metavar="NAME", help="Name, such as HF_TOKEN.")]


@app.command()
def ls(json: Json = False) -> None:
    """List the projects that you can see."""
    with client() as to:
        projects = to.projects()
    if json:
        emit({"projects": projects})
        return
    made = table("name", "your role", "members", "description")
    for one in projects:
        members = ", ".join(f"{user} ({role})" for user, role in one["members"].items())
        made.add_row(Text(one["name"], style="bold"), one["role"] or "-", members or "-", one["description"])
    show_table(made)


bare_lists(app, ls)


@app.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the project.")],
    description: Annotated[str, typer.Option("--description", help="What it is for.")] = "",
    json: Json = False,
) -> None:
    """Create a project."""
    with client() as to:
        made = to.create_project(name, description)
    if json:
        emit(made)
    else:
        out().print(Text(f"project {name} is there"))


@app.command()
def member(
    project: Project,
    user: Annotated[str, typer.Argument(metavar="USER")],
    role: Annotated[str, typer.Argument(metavar="ROLE", help="viewer, member or admin; none removes the user.")],
    json: Json = False,
) -> None:
    """Give a user a role in a project."""
    if role not in (*ROLES, "none"):
        raise Usage(f"ROLE: got {role!r}.", "Expected viewer, member or admin, or none to remove the user.")
    with client() as to:
        if role == "none":
            to.remove_member(project, user)
            made: object = {"project": project, "user": user, "role": None}
        else:
            made = to.set_member(project, user, role)
    if json:
        emit(made)
    else:
        out().print(Text(f"{user} is {'no longer in' if role == 'none' else f'{role} of'} project {project}"))


@secret.command("set")
def set_(name: SecretName, project: OfProject = "default", json: Json = False) -> None:
    """Set a secret. The value is asked for, or read from standard input: never an argument that others can see."""
    value = getpass.getpass(f"value of {name}: ") if sys.stdin.isatty() else sys.stdin.read().removesuffix("\n")
    if not value:
        raise Usage(f"{name}: the value is empty.", "Type it, or send it to standard input.")
    with client() as to:
        to.set_secret(project, name, value)
    if json:
        emit({"name": name})
    else:
        out().print(Text(f"secret {name} of project {project} is set"))


@secret.command("ls")
def ls_secrets(project: OfProject = "default", json: Json = False) -> None:
    """List the names of a project's secrets."""
    with client() as to:
        names = to.secrets(project)
    if json:
        emit({"names": names})
    elif names:
        out().print(Text("\n".join(names)))
    else:
        note(f"Project {project} has no secrets.")


@secret.command()
def rm(name: SecretName, project: OfProject = "default", json: Json = False) -> None:
    """Remove a secret."""
    with client() as to:
        to.remove_secret(project, name)
    if json:
        emit({"name": name})
    else:
        out().print(Text(f"secret {name} of project {project} is gone"))
