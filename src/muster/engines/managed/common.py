"""Helpers for all managed services: pack a job's command and environment, convert tags, list what is lost."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from muster import wire
from muster.core.errors import Problem, SpecError
from muster.core.spec import JobSpec
from muster.engines import base

START_FILE: Final = Path(__file__).with_name("start.py")
PORT: Final = 29500  # of rank 0; torchrun uses the same
_USUAL: Final = JobSpec(name="x", run="x")


@dataclass(slots=True)
class Notices:
    """Notes for the user: what can't be carried over, and what must exist."""

    lost: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def require(options: Mapping[str, Any], image: str, service: str, wanted: Mapping[str, str]) -> None:
    """Raises SpecError with everything that the request lacks; `wanted` is name → example."""
    problems = [
        Problem(f"{service}.{name}", "nothing", f"text such as `{example}`", f"Add `{service}: {{{name}: {example}}}`.")
        for name, example in wanted.items()
        if not options.get(name)
    ]
    if not image and "image" not in wanted:
        hint = "Add `image: registry/name:tag`, an image that the service may pull."
        problems.append(Problem("image", "nothing", "the container image that the job runs in", hint))
    if problems:
        raise SpecError(problems, source=service, hint="Mend each and render again.")


def own_envs(gang: base.GangLaunch, checkpoints: str) -> dict[str, str]:
    """The job's environment, plus those of Muster's own variables that a rank can use without a server."""
    envs = {wire.CHECKPOINT_DIR: checkpoints, wire.CHECKPOINT_KEEP: str(gang.checkpoint_keep)}
    if gang.checkpoint_every is not None:
        envs[wire.CHECKPOINT_EVERY] = f"{gang.checkpoint_every:g}"
    usual = {"PYTHONUNBUFFERED": "1", **({"OMP_NUM_THREADS": "1"} if gang.nproc > 1 else {})}
    return {**usual, **gang.envs, **envs}


def split_envs(
    envs: Mapping[str, str], fits: Callable[[str], bool], most: int
) -> tuple[dict[str, str], dict[str, str]]:
    """Splits the environment: what the service's own environment can hold unchanged, at most `most`, and the rest."""
    fitting = [name for name, value in envs.items() if fits(value)][:most]
    return {name: envs[name] for name in fitting}, {name: envs[name] for name in envs if name not in set(fitting)}


def packed(gang: base.GangLaunch, envs: Mapping[str, str], piece: int) -> list[str]:
    """The document that `start.py` reads, in pieces of `piece` characters: ASCII, on one line, without a dollar sign.

    Services expand `$(NAME)` in their input; JSON has another way to write the sign.
    """
    document = {"run": gang.run, "nproc": gang.nproc, "grace": gang.stop_grace, "port": PORT, "envs": dict(envs)}
    text = json.dumps(document).replace("$", "\\u0024")
    return [text[at : at + piece] for at in range(0, len(text), piece)]


def start_lines() -> list[str]:
    """The program `start.py` without docstrings, comments and empty lines."""
    text = START_FILE.read_text(encoding="utf-8")
    tree = ast.parse(text)
    docstrings: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef) and ast.get_docstring(node) is not None:
            docstrings.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines = [line for number, line in enumerate(text.splitlines(), start=1) if number not in docstrings]
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def all_tags(spec: JobSpec) -> dict[str, str]:
    """The job's tags and, under Muster's own names, its job, project and queue."""
    return {"muster-job": spec.name, "muster-project": spec.project, "muster-queue": spec.queue, **spec.tags}


def legal_tags(
    tags: Mapping[str, str], name: Callable[[str], str], value: Callable[[str], str], most: int, notices: Notices
) -> dict[str, str]:
    """The tags as the service allows them; changes and omissions are added to `notices`."""
    made: dict[str, str] = {}
    for given, text in tags.items():
        key, kept = name(given), value(text)
        if not key or key in made or len(made) == most:
            why = f"there may be {most}" if len(made) == most else "its name is no other than another's there"
            notices.lost.append(f"Tag {given!r} is left out: {why}.")
            continue
        made[key] = kept
        if (key, kept) != (given, text):
            notices.lost.append(f"Tag {given!r} is changed to what is allowed there: {key}={kept!r}.")
    return made


def replaced(text: str, illegal: str, most: int) -> str:
    """`text` with each of the illegal characters replaced by `_`, cut to length."""
    return re.sub(illegal, "_", text)[:most]


def add_common_notices(spec: JobSpec, notices: Notices, secret_store: str, code_hint: str) -> None:
    """Adds notes on everything in the job file that no managed service takes."""
    if spec.secrets:
        names = ", ".join(spec.secrets)
        notices.lost.append(f"Secrets ({names}) are not carried, by value or otherwise: {secret_store}")
    if spec.workdir:
        notices.lost.append(f"The code in {spec.workdir} is not carried: {code_hint}")
    if spec.data:
        notices.lost.append(
            f"Data ({', '.join(spec.data)}) is not fetched: let the program read it from where it lies."
        )
    if spec.min_nodes is not None:
        notices.lost.append(f"It does not shrink: num_nodes is {spec.num_nodes}, and {spec.min_nodes} is not tried.")
    for name, hint in _UNKNOWN.items():
        if getattr(spec, name) != getattr(_USUAL, name):
            notices.lost.append(f"`{name}` has no meaning there: {hint}")
    if spec.checkpoint.every == "auto":
        notices.lost.append(
            "`checkpoint.every: auto` needs Muster's server: give a duration, or let the program decide."
        )
    notices.notes.append("Muster does not watch this job: queues, budgets, restarts and records are the service's own.")
    notices.notes.append(
        "The image needs bash; ranks get RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT as usual."
    )


def whole_seconds(seconds: float) -> int:
    """Rounded up, and at least one."""
    return max(1, math.ceil(seconds))


_UNKNOWN: Final = {
    "pool": "the machine type says what it runs on.",
    "priority": "the service starts jobs in its own order.",
    "placement": "the service places the nodes.",
    "topology": "the service places the nodes.",
    "group": "the service places the nodes.",
    "near": "the service places the nodes.",
    "off_peak": "it starts when it is sent.",
}
