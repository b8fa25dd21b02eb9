"""`muster preflight FILE`: the rungs that the job has no certificate of, one after the other."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Annotated, Final, cast

import typer

from muster.api.preflight import PreflightPlan, RungVerdict
from muster.api.words import RUNGS, Rung
from muster.cli.call import Json, Usage
from muster.cli.connect import client as connected
from muster.cli.connect import sees_our_files
from muster.cli.drill_view import Screen
from muster.cli.output import emit, note
from muster.cli.preflight_view import show_plan, show_verdict
from muster.cli.prepare import from_file, parse_overrides
from muster.cli.submit import Overrides
from muster.client import Client
from muster.core.preflight import SECONDS_MAX
from muster.core.spec import JobSpec
from muster.core.units import InvalidValue, parse_duration
from muster.preflight.ladder import Ladder, due

_STOPPED: Final = 130

Levels = Annotated[
    list[str] | None,
    typer.Option("--level", "-l", metavar="|".join(RUNGS), help="Only this rung; again for several."),
]


def run(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The job file.")],
    level: Levels = None,
    override: Overrides = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Of each rung, instead of its own number.")] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="Of each rung but the canary, instead of one.")] = None,
    limit: Annotated[str | None, typer.Option(metavar="10m", help="The longest that a rung may run.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Also rungs that the job has a certificate of.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would run, and stop.")] = False,
    keep_going: Annotated[bool, typer.Option("--keep-going", help="Go on after a rung that did not pass.")] = False,
    json: Json = False,
) -> None:
    """Run the rungs of preflight that the job has no certificate of, from the cheapest to the dearest.

    Each is an ordinary job. The exit code is 1 if a rung did not pass. A rung stays valid until something changes that
    it depends on: code, configuration, data, environment or scale."""
    wanted = levels(level)
    with contextlib.ExitStack() as stack:
        to = stack.enter_context(connected())
        spec = from_file(file, parse_overrides(override or ()), sees_our_files(to)).spec
        plan = to.preflight_plan(spec, steps=steps, nodes=nodes, seconds=_seconds(limit), inherit=False)
        _check_code(plan)
        rungs = [one["rung"] for one in due(plan, wanted, again)]
        if dry_run:
            emit(cast(dict[str, object], plan)) if json else show_plan(plan, rungs)
            return
        if not json:
            show_plan(plan, rungs)
        verdicts = _climb(to, spec, plan, rungs, keep_going, json)
    if json:
        emit({"passed": all(one["passed"] for one in verdicts), "plan": plan, "verdicts": verdicts})
    if not all(one["passed"] for one in verdicts):
        raise typer.Exit(1)


def levels(given: list[str] | None) -> tuple[Rung, ...]:
    """Raises Usage for a word that is no rung."""
    words = [word for text in given or () for word in text.split(",") if word]
    for word in words:
        if word not in RUNGS and word != "all":
            raise Usage(f"--level: got {word!r}.", f"Expected one of {', '.join(RUNGS)}, or all.")
    return () if "all" in words else tuple(rung for rung in RUNGS if rung in words)


def _climb(
    to: Client, spec: JobSpec, plan: PreflightPlan, rungs: list[Rung], keep_going: bool, json: bool
) -> list[RungVerdict]:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whatever ends it, nothing is left running
    screen, verdicts = Screen(json), list[RungVerdict]()
    ladder = Ladder(to, spec, plan, _engine(to, spec), sees_our_files(to), screen.say, screen.look)
    try:
        for rung in rungs:
            with screen:
                verdict = ladder.run(rung)
            verdicts.append(verdict)
            if not json:
                show_verdict(verdict)
            if not verdict["passed"] and not keep_going:
                left = rungs[rungs.index(rung) + 1 :]
                if left and not json:
                    note((f"Not run: {', '.join(left)}. `--keep-going` runs them all the same.", "dim"))
                break
    except KeyboardInterrupt:
        note(("Stopping the jobs of preflight …", "yellow"))
        ladder.stop_all()
        raise typer.Exit(_STOPPED) from None
    except BaseException:
        ladder.stop_all()
        raise
    return verdicts


def _engine(to: Client, spec: JobSpec) -> str:
    """The kind of the engine that would run it: that of its pool, or the only one."""
    fits = [one["kind"] for one in to.engines() if spec.pool is None or spec.pool in one["pools"]]
    return fits[0] if fits else "unknown"


def _check_code(plan: PreflightPlan) -> None:
    if not plan["code"]:
        switched = " MUSTER_SNAPSHOT is 0." if os.environ.get("MUSTER_SNAPSHOT") == "0" else ""
        hint = "A certificate names the code that passed: let the job's `workdir` be a folder of this machine."
        raise Usage(f"preflight: no snapshot of the code could be taken.{switched}", hint)


def _seconds(text: str | None) -> float | None:
    try:
        found = None if text is None else parse_duration(text)
    except InvalidValue:
        found = -1.0
    if found is not None and not 0 < found <= SECONDS_MAX:
        raise Usage(f"--limit: got {text!r}.", "Expected a duration of at most an hour, such as 10m.") from None
    return found
