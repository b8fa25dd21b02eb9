"""`muster token`: access tokens for people and programs."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.text import Text

from muster.api.access import TokenView
from muster.api.words import ROLES
from muster.cli import format
from muster.cli.call import Json, Usage
from muster.cli.connect import client
from muster.cli.group import bare_lists, group
from muster.cli.jobs import seconds
from muster.cli.output import emit, note, out, show_table, table

app = group("Create, list and revoke access tokens.")


@app.command()
def ls(json: Json = False) -> None:
    """List tokens: yours, or everybody's for an administrator."""
    with client() as to:
        tokens = to.tokens()
    if json:
        emit({"tokens": tokens})
        return
    now = time.time()
    made = table("id", "name", "user", "role", "created", "state")
    for token in tokens:
        role = "finance" if token["finance"] else f"{token['role']}{', superuser' if token['superuser'] else ''}"
        cells = [token["name"], token["user"], role, format.clock(token["created_at"])]
        made.add_row(Text(token["id"], style="bold"), *cells, _state(token, now))
    show_table(made)


bare_lists(app, ls)


@app.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is for, such as ci.")],
    user: Annotated[str | None, typer.Option(help="Whose it is; yours if unset.")] = None,
    role: Annotated[str, typer.Option(help="The most it may be used for: viewer, member or admin.")] = "member",
    superuser: Annotated[bool, typer.Option("--superuser", help="Administrator of everything.")] = False,
    finance: Annotated[
        bool, typer.Option("--finance", help="May read the costs of all projects, and nothing else.")
    ] = False,
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long it is valid: 30d. For ever if unset.")
    ] = None,
    json: Json = False,
) -> None:
    """Create a token. It is printed once, alone on stdout, and can't be shown again."""
    if role not in ROLES:
        raise Usage(f"--role: got {role!r}.", "Expected viewer, member or admin.")
    lasts = None if expires is None else seconds("--expires", expires)
    with client() as to:
        made = to.create_token(name, user or to.whoami()["user"], role, superuser, lasts, finance)
    if json:
        emit(made)
        return
    out().print(Text(made["token"]))
    for told in made["notes"]:
        note((told, "yellow"))
    note(("Keep it: it is not shown again. Use it as MUSTER_TOKEN.", "dim"))


@app.command()
def revoke(
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="Its id or name; see muster token ls.")],
    json: Json = False,
) -> None:
    """Make a token worthless, at once and for ever."""
    with client() as to:
        gone = to.revoke_token(token)
    if json:
        emit({"id": gone["id"]})
    else:
        named = f" ({gone['name']})" if gone["name"] else ""
        out().print(Text(f"token {gone['id']}{named} is revoked"))


@app.command()
def release(
    user: Annotated[str, typer.Argument(metavar="USER", help="Who signs in through the identity provider.")],
    json: Json = False,
) -> None:
    """Let another account of the identity provider sign in as a user, and end the sessions of the one so far."""
    with client() as to:
        released = to.release_provider_account(user)
    if json:
        emit({"accounts": released})
    elif released:
        out().print(Text(f"{released[0]['subject']} of {released[0]['issuer']} does not sign in as {user} any more"))
    else:
        out().print(Text(f"no account of the provider signs in as {user}"))


def _state(token: TokenView, now: float) -> Text:
    if token["revoked_at"]:
        return Text("revoked", style="red")
    if not token["expires_at"]:
        return Text("valid", style="green")
    left = token["expires_at"] - now
    return Text(f"valid for {format.span(left)}", style="green") if left > 0 else Text("expired", style="red")
