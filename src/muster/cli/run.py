"""`muster run`: runs a command, or a job file, as a job and follows it like a local process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from muster.cli import complete
from muster.cli.call import Json, Usage
from muster.cli.connect import client, sees_our_files
from muster.cli.lazy import load
from muster.cli.output import emit
from muster.cli.run_words import command_line, is_job_file
from muster.cli.watch import watch
from muster.client.surroundings import surroundings
from muster.core.errors import Unavailable


def run(
    words: Annotated[
        list[str],
        typer.Argument(metavar="COMMAND", help="The command, or a job file; `-- COMMAND` after it replaces its `run`."),
    ],
    nproc: Annotated[int | None, typer.Option(min=1, help="Ranks on each node.")] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="Nodes.")] = None,
    gpus: Annotated[str | None, typer.Option(help="Accelerators on each node: 8, H100 or H100:8.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the job; from the command if unset.")] = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", "-e", metavar="K=V", help="Environment; repeatable.")
    ] = None,
    secret: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Secret of the project; repeatable.")] = None,
    project: Annotated[str | None, typer.Option(autocompletion=complete.projects, help="Who owns and pays.")] = None,
    queue: Annotated[str | None, typer.Option(autocompletion=complete.queues, help="Whose share it uses.")] = None,
    priority: Annotated[str | None, typer.Option(help="low, normal, high, urgent, or 0 to 100.")] = None,
    max_duration: Annotated[str | None, typer.Option(metavar="TIME", help="Stop it after so long: 6h.")] = None,
    override: Annotated[
        list[str] | None, typer.Option("--override", "-o", metavar="KEY=VALUE", help="Set a field: -o envs.LR=1e-3.")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return as soon as it is submitted.")] = False,
    no_snapshot: Annotated[
        bool, typer.Option("--no-snapshot", help="Keep no copy of the code; the run can't be reproduced then.")
    ] = False,
    json: Json = False,
) -> None:
    """Run a command, or a job file, as a job and watch it: `muster run --nproc 2 -- python train.py --lr 3e-4`.

    One quoted word is a line for the shell: `muster run 'make data && python train.py'`. Options may also follow a job
    file: `muster run job.yaml -o envs.LR=1e-3`.

    The exit code is 0 if it succeeded, else the failing rank's, or 1. With --json one object a line: log, job, end.
    """
    given: dict[str, Any] = {"nproc": nproc, "num_nodes": nodes, "accelerators": gpus, "name": name, "secrets": secret}
    given |= {"project": project, "queue": queue, "priority": priority, "max_duration": max_duration}
    options = {key: value for key, value in given.items() if value is not None}
    if env:
        options["envs"] = parse_envs(env)
    with client() as to:
        prepared = _prepare(words, options, override or (), sees_our_files(to))
        try:
            job = to.submit(prepared, snapshot=not no_snapshot, inherit=False)
        except Unavailable:
            if isinstance(prepared, dict):  # the server would have checked it; its mistakes can be told without one
                load("muster.core.parse:parse_job")(prepared, source="The job")
            raise
        if not detach:
            raise typer.Exit(watch(to, job, json))
        if json:
            emit(job.raw)
        else:
            load("muster.cli.submit:show_submitted")(to, job, f"see `muster logs -f {job.id}`")


def _prepare(words: list[str], options: dict[str, Any], override: Sequence[str], local: bool) -> Any:
    """The job as data, checked by the server; a job file, or a command with -o, is parsed and checked here."""
    from_a_file = is_job_file(words[0])
    command = words[1:] if from_a_file else words
    if not from_a_file and not override:
        return _joined(surroundings(Path.cwd(), local), {"run": command_line(words), **options})
    overrides = _joined(options, load("muster.cli.prepare:parse_overrides")(override))
    if from_a_file:
        if command:
            overrides = _joined({"run": command_line(command)}, overrides)
        prepared = load("muster.cli.prepare:from_file")(words[0], overrides, local)
    else:
        prepared = load("muster.cli.prepare:from_command")(command_line(words), overrides, local)
    return prepared.spec


def parse_envs(pairs: Sequence[str]) -> dict[str, str]:
    """Parses `K=V`; a bare `K` takes its value from this shell."""
    envs = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals and name not in os.environ:
            raise Usage(f"--env {name}: no value, and {name} is not set in this shell.", f"Write --env {name}=VALUE.")
        envs[name] = value if equals else os.environ[name]
    return envs


def _joined(options: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    twice = sorted(options.keys() & overrides.keys() - {"envs"})
    if twice:
        raise Usage(f"`{twice[0]}` is given both by an option and with -o.", "Leave one of the two out.")
    envs = {**options.get("envs", {}), **overrides.get("envs", {})}
    return {**options, **overrides, **({"envs": envs} if envs else {})}
