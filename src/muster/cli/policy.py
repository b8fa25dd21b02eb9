"""`muster policy`: test a policy file without a server, try it on the jobs of the past, show and apply it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from muster.api.rules import PolicyEffect, PolicyReplay
from muster.cli.call import Json
from muster.cli.connect import client
from muster.cli.group import group
from muster.cli.jobs import seconds
from muster.cli.output import emit, err, note, out
from muster.cli.rules import apply, read_policy_text, rules
from muster.control.policy_test import CaseResult, PolicyTest, check_policy
from muster.core.errors import Problem

app = group("Test a policy file, try it on past jobs, show and apply it.")
_FILE = Annotated[str, typer.Argument(metavar="FILE", help="A policy file.")]
_AFFECTED = 5  # users and projects of each reason that are named

app.command("show")(rules)
app.command("apply")(apply)


@app.command("test")
def run_tests(
    file: _FILE,
    cases: Annotated[
        str, typer.Option(metavar="TESTS", help="The cases; `policy_tests.yaml` beside the policy unless given.")
    ] = "",
    json: Json = False,
) -> None:
    """Run test cases through the admission checks, without a server. The exit code is 1 if one fails."""
    path = Path(cases).expanduser() if cases else Path(file).expanduser().parent / "policy_tests.yaml"
    found = check_policy(read_policy_text(file), read_policy_text(str(path)), path.parent, file, str(path))
    if json:
        emit(_document(found))
    else:
        _show_test(found)
    if not found.passed:
        raise typer.Exit(1)


@app.command("check")
def check(
    file: _FILE,
    since: Annotated[str, typer.Option(help="How far back.")] = "30d",
    json: Json = False,
) -> None:
    """Say which jobs of the past, and which that wait or run, a policy would refuse. Nothing is changed."""
    text, back = read_policy_text(file), seconds("--since", since)

    def progress(found: PolicyReplay) -> None:
        if not json and found["next"] is not None:
            note(f"{found['judged']:,} jobs so far")

    with client() as to:
        found = to.check_policy(text, back, source=file, progress=progress)
    if json:
        emit(found)
    else:
        _show_replay(found, since)


def _document(found: PolicyTest) -> dict[str, Any]:
    return {
        "ok": found.passed,
        "problems": [problem.to_dict() for problem in found.problems],
        "cases": [_case(one) for one in found.results],
    }


def _case(one: CaseResult) -> dict[str, Any]:
    expect, said = one.case.expect, one.said
    return {
        "case": one.title, "ok": not one.wrong, "expected": {"outcome": expect.outcome, "codes": list(expect.codes)},
        "got": {"outcome": said.outcome, "codes": list(said.codes), "details": list(said.details)},
        "difference": one.wrong,
    }  # fmt: skip


def _show_test(found: PolicyTest) -> None:
    screen = out()
    for one in found.results:
        word, style = ("FAIL", "bold red") if one.wrong else ("pass", "green")
        said = f"{one.said.outcome}{' for ' + ', '.join(one.said.codes) if one.said.codes else ''}"
        screen.print(Text.assemble((word, style), f"  {one.title}: {one.wrong or said}"))
        for detail in one.said.details if one.wrong else ():
            screen.print(Text(f"        {detail}", style="dim"))
    _show_problems(found.problems)
    failed = sum(bool(one.wrong) for one in found.results)
    note(f"{len(found.results) - failed} of {len(found.results)} cases passed.")


def _show_problems(problems: Sequence[Problem]) -> None:
    """Contradictions between the policy and the cluster of the cases."""
    for problem in problems:
        err().print(Text.assemble(("policy: ", "bold red"), str(problem)))


def _show_replay(found: PolicyReplay, since: str) -> None:
    screen = out()
    head = f"{found['refused']:,} of {found['judged']:,} jobs since {since} ago would be refused"
    live = (
        f", of these {found['refused_live']:,} of the {found['live']:,} that wait or run now" if found["live"] else ""
    )
    screen.print(Text(f"{head}{live}.", style="bold"))
    for one in found["effects"]:
        screen.print(Text.assemble("\n", (one["code"], "bold"), f": {one['jobs']:,} jobs"))
        screen.print(Text(f"  of {_affected(one)}"))
        for job in one["examples"]:
            words = f"  {job['job']} ({job['user']}, {job['project']}, {job['phase']}): {job['message']}"
            screen.print(Text(words, style="dim"))
    if found["freed"]:
        note(f"{found['freed']:,} that the rules in force would refuse today would be accepted.")
    note(
        "Judged by what depends on rules, against those in force, on the queues, projects and pools of now. Left out "
        "are free nodes, budgets, secrets and earlier policies. Jobs that wait or run stay as they are."
    )


def _affected(one: PolicyEffect) -> str:
    def named(counts: dict[str, int]) -> str:
        shown = [f"{name} {count:,}" for name, count in list(counts.items())[:_AFFECTED]]
        more = len(counts) - len(shown)
        return ", ".join(shown) + (f" and {more:,} more" if more > 0 else "")

    return f"{named(one['users'])}; projects: {named(one['projects'])}"
