"""`muster up` and `muster down`: the server on this machine."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from muster.api.words import ACTIVE, UNFINISHED
from muster.cli import daemon
from muster.cli.call import Json, home_folder
from muster.cli.lazy import load
from muster.cli.open import link_line
from muster.cli.output import emit, err, note, out
from muster.client import Client, Job, MusterError
from muster.core.errors import Conflict, Invalid


def up(
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Start it apart from this terminal.")] = False,
    host: Annotated[str | None, typer.Option(help="Address to listen on; 127.0.0.1 if unset.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port; 6878 if unset, 0 for any free one.")] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="Logical nodes on this machine.")] = None,
    accelerators: Annotated[str | None, typer.Option(help="Logical accelerators of each node: H100:8.")] = None,
    cpus: Annotated[float | None, typer.Option(min=0.001, help="CPUs of each node; an even share if unset.")] = None,
    pool: Annotated[str | None, typer.Option(help="Pool of this machine's nodes; local if unset.")] = None,
    engine: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Run jobs on it: ray, slurm, kubernetes, or local. Repeatable."),
    ] = None,
    store: Annotated[str | None, typer.Option(metavar="URL", help="Database; else MUSTER_STORE, else SQLite.")] = None,
    policy: Annotated[Path | None, typer.Option(metavar="FILE", help="Policy file to put in force first.")] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate, to listen with TLS.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Key of the certificate.")] = None,
    allow_insecure: Annotated[
        bool, typer.Option("--allow-insecure", help="Listen beyond this machine without TLS.")
    ] = False,
    trust_members: Annotated[
        bool,
        typer.Option(
            "--trust-members",
            help="Run members' jobs as the server's user, with no sandbox: each may read what the server may.",
        ),
    ] = False,
    standby: Annotated[
        bool, typer.Option("--standby", help="Beside a server that runs: wait, and take over when it dies.")
    ] = False,
    json: Json = False,
) -> None:
    """Start a server on this machine. Jobs that outlived the last one are taken up again."""
    home = home_folder()
    options: dict[str, Any] = {"host": host, "port": port, "nodes": nodes, "accelerators": accelerators}
    options |= {
        "cpus": cpus,
        "pool": pool,
        "engines": engine or None,
        "store_url": store,
        "allow_insecure": allow_insecure or None,
    }
    options["trust_members"] = trust_members or None
    # Absolute: a detached server has another current folder.
    options |= {"tls_cert": _absolute(tls_cert), "tls_key": _absolute(tls_key), "policy": _absolute(policy)}
    given = {name: value for name, value in options.items() if value is not None}
    server = daemon.find(home)
    if detach and standby:
        raise Invalid("--detach waits until the server leads, which one that stands by may never do.", "Leave one out.")
    if detach:
        started = server is None
        # A database URL may contain a password, and every user of the machine can read command lines.
        address = given.pop("store_url", None)
        server = server or daemon.start(home, _words(given), {"MUSTER_STORE": address} if address else {}, note)
        _say_up(home, server, started, json)
        return
    if server is not None and not standby:
        where = ", ".join(server.urls)
        hint = "Stop it with `muster down`, or stand by for it with --standby."
        raise Conflict(f"A server of {home} runs already at {where} (pid {server.pid}).", hint)
    settings = load("muster.server.settings:Settings").load(home, given)
    where = f"{settings.host}:{settings.port}" if settings.port else f"a free port of {settings.host}"
    if json:
        emit({"host": settings.host, "port": settings.port, "home": str(home), "token_file": str(home / "token")})
    else:
        note(f"Muster listens on {where}. Token: in {home / 'token'}. Ctrl-C stops the server, not the jobs.")
    load("muster.server.main:serve")(settings, None if json else partial(_say_link, home))


def down(
    stop_jobs: Annotated[bool, typer.Option("--stop-jobs", help="First stop every job that is not over.")] = False,
    json: Json = False,
) -> None:
    """Stop the server. Running jobs go on without it, and the next `muster up` takes them up again."""
    home = home_folder()
    server = daemon.find(home)
    if server is None:
        if json:
            emit({"stopped": False, "running": []})
        else:
            note(f"No server is running for {home}.")
        return
    with Client(",".join(server.urls), home=home) as to:
        left = _stop_all(to, json) if stop_jobs else _active(to)
    daemon.stop(server)
    if json:
        emit({"stopped": True, "running": [job.id for job in left]})
        return
    out().print(Text(f"The server (pid {server.pid}) has ended."))
    if left:
        names = ", ".join(job.id for job in left[:5]) + (" and others" if len(left) > 5 else "")
        note(f"{names} {'goes' if len(left) == 1 else 'go'} on; the next `muster up` takes up what is left.")


def _say_link(home: Path, url: str) -> None:
    """Prints how to open the web page of this server; never a link into a log, which others may read."""
    if sys.stderr.isatty():
        line = link_line(home, url)
        if line is not None:
            err().print(line)
            return
    note(f"The web page is at {url}; `muster open` prints a link that signs you in.")


def _say_up(home: Path, server: daemon.Running, started: bool, json: bool) -> None:
    token_file = home / "token"
    if json:
        urls = list(server.urls)
        emit({"urls": urls, "pid": server.pid, "home": str(home), "token_file": str(token_file), "started": started})
        return
    word = "Muster is up at" if started else "Muster is up already at"
    out().print(Text.assemble(f"{word} ", (", ".join(server.urls), "bold"), f" (pid {server.pid})"))
    if (line := link_line(home, *server.urls)) is not None:
        out().print(line)
    if find_spec("mlflow") is not None:
        note((f"MLflow's pages: {server.urls[0]}/mlflow/   any name, and the token as the password", "dim"))
    note((f"token: in {token_file}   log: {home / 'server.log'}   stop it: muster down", "dim"))


def _words(given: dict[str, Any]) -> list[str]:
    names = {"engines": "engine"}
    words = []
    for name, value in given.items():
        for each in value if isinstance(value, list) else [value]:
            words.append(f"--{names.get(name, name).replace('_', '-')}")
            words += [] if each is True else [str(each)]
    return words


def _absolute(path: Path | None) -> str | None:
    return None if path is None else os.path.abspath(path.expanduser())  # noqa: PTH100  (keeps links as they are)


def _active(to: Client) -> list[Job]:
    """The jobs that continue without the server; empty if it does not answer, and it is still stopped."""
    try:
        return to.jobs(phase=sorted(ACTIVE), limit=100)
    except MusterError:
        return []


def _stop_all(to: Client, json: bool) -> list[Job]:
    """Stops queued jobs first, in the order of their numbers: else they would start as soon as others end."""
    jobs = sorted(to.jobs(phase=UNFINISHED, limit=None), key=lambda job: (job.phase != "queued", job.number))
    for job in jobs:
        with suppress(Invalid):  # it has ended meanwhile
            to.stop(job.id)
    for job in jobs:
        ended = job.wait()
        if not json:
            note((f"{ended.id} {ended.phase}", "dim"))
    return []
