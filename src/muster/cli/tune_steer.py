"""`muster tune stop`, `resume`, `extend` and `enqueue`: what becomes of a study that runs, or is over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.text import Text

from muster.api.studies import StudyChange, StudyStatus
from muster.cli import complete
from muster.cli.call import Json, Usage
from muster.cli.connect import client, for_each
from muster.cli.jobs import seconds
from muster.cli.output import emit, out
from muster.cli.tune_list import StudyRef
from muster.cli.tune_words import states_text
from muster.client import Client

StudyRefs = Annotated[
    list[str], typer.Argument(metavar="STUDY", help="Ids, numbers or names.", autocompletion=complete.studies)
]


def stop(
    refs: StudyRefs,
    wait: Annotated[bool, typer.Option("--wait", help="Return when their trials have left.")] = False,
    json: Json = False,
) -> None:
    """Stop studies: no trial starts any more, and those that run save and leave, until `muster tune resume`."""

    def one(to: Client, ref: str) -> tuple[Mapping[str, Any], str]:
        found = to.stop_study(ref)
        found = to.wait_study(found["study"]["id"]) if wait else found
        done = "has stopped" if found["study"]["state"] == "ended" else "is stopping"
        return found, f"{found['study']['id']} {done}: {states_text(found)}"

    for_each("studies", refs, one, json)


def resume(
    refs: StudyRefs,
    timeout: Annotated[str, typer.Option(metavar="TIME", help="How long to wait for one that is stopping.")] = "10m",
    json: Json = False,
) -> None:
    """Continue studies that were stopped: held trials go on from their checkpoints. Also one that is over."""
    patience = seconds("--timeout", timeout)

    def one(to: Client, ref: str) -> tuple[Mapping[str, Any], str]:
        found = to.resume_study(ref, patience)
        return found, f"{found['study']['id']} goes on: {_where(found)}"

    for_each("studies", refs, one, json)


def extend(
    ref: StudyRef,
    trials: Annotated[str | None, typer.Option(metavar="N", help="So many trials in all; +50: so many more.")] = None,
    cost: Annotated[str | None, typer.Option(metavar="AMOUNT", help="Such as `500 USD`, in all.")] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Such as `3 days` after its start, or 2026-11-30T08:00Z.")
    ] = None,
    parallel: Annotated[int | None, typer.Option(min=1, metavar="N", help="Trials at once.")] = None,
    json: Json = False,
) -> None:
    """Give a study other limits. One that is over goes on."""
    with client() as to:
        id_, count = ref, None
        if trials is not None:
            head = to.study_status(ref)["study"]
            id_, count = head["id"], _count(trials, head["limits"]["trials"]["limit"])
        found = to.extend_study(id_, trials=count, cost=cost, until=until, parallel=parallel)
    if json:
        emit(found)
    else:
        show_changes(found)


def enqueue(
    ref: StudyRef,
    params: Annotated[list[str], typer.Argument(metavar="NAME=VALUE", help="A value of every parameter of the space.")],
    json: Json = False,
) -> None:
    """Have a study try these parameters before any that it searches for."""
    with client() as to:
        found = to.enqueue(ref, _point(params))
    if json:
        emit(found)
    else:
        out().print(Text(f"{found['study']['id']} tries {', '.join(params)} next"))


def show_changes(found: StudyChange) -> None:
    for change in found["changes"]:
        out().print(Text(f"  {change}"))
    if found["fits"] < found["trials"]:
        left_out = found["trials"] - found["fits"]
        told = f"{left_out} of {found['trials']} trials are no points of the new space: nothing is learnt from them"
        out().print(Text(f"  {told}", style="yellow"))
    if found["applied"]:
        out().print(Text("in force"))


def _where(found: StudyStatus) -> str:
    one = found["study"]["limits"]["trials"]
    of = f" of {one['limit']:,.0f}" if one["limit"] is not None else ""
    return f"{one['used']:,.0f}{of} trials so far"


def _count(text: str, limit: float | None) -> int:
    more = text.startswith("+")
    if not text.removeprefix("+").isdecimal() or int(text) < 1:
        raise Usage(f"--trials: got {text!r}.", "Expected a whole number, such as 400, or +50 for so many more.")
    if more and limit is None:
        raise Usage("The study has no limit of trials that could be raised.", "Give the number in all.")
    return int(text) + (round(limit or 0) if more else 0)


def _point(pairs: list[str]) -> dict[str, Any]:
    # Imported late: it loads pydantic, which the other verbs here don't need.
    from muster.core.report import Plain  # noqa: PLC0415
    from muster.tune.space_file import read_value  # noqa: PLC0415

    point = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise Usage(f"got {pair!r}.", "Write a parameter and its value, as in `lr=3e-4`.")
        point[name] = read_value(Plain(text))
    return point
