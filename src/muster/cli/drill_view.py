"""What `muster drill` prints: a line for each thing that happens, a progress line, and the table of results."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from rich.status import Status
from rich.text import Text

from muster.cli.output import emit, err, out, show_table, table
from muster.drill.measure import Result
from muster.drill.report import seconds
from muster.drill.scenario import Scenario
from muster.drill.watch import Watch

_STYLES: Final = {"held": "green", "did not hold": "bold red", "not applicable": "dim"}


class Screen:
    """Lines go to stderr; with a terminal a last line shows the job that runs. A context manager."""

    def __init__(self, quiet: bool) -> None:
        self._console, self._quiet, self._began = err(), quiet, time.monotonic()
        self._status = Status("", console=self._console) if self._console.is_terminal and not quiet else None

    def __enter__(self) -> Screen:
        if self._status:
            self._status.start()
        return self

    def __exit__(self, *raised: object) -> None:
        if self._status:
            self._status.stop()

    def say(self, text: str) -> None:
        if not self._quiet:
            self._console.print(Text.assemble((f"{time.monotonic() - self._began:6.1f} s  ", "dim"), text))

    def look(self, watch: Watch) -> None:
        if self._status:
            job = watch.job
            step = f", step {watch.step_now}" if watch.step_now else ""
            self._status.update(Text(f"{job.id}: {job.phase}, attempt {job.attempt}{step}"))

    def result(self, result: Result) -> None:
        why = f": {result.why}" if result.why else ""
        self.say(f"{result.scenario}: {result.verdict}{why}")


def show_list(scenarios: Sequence[Scenario], as_json: bool) -> None:
    if as_json:
        emit({"scenarios": [{"name": one.name, "breaks": one.breaks, "holds": one.holds} for one in scenarios]})
        return
    rows = table("NAME", "WHAT IT BREAKS", "WHAT MUST HOLD")
    for one in scenarios:
        rows.add_row(Text(one.name, "bold"), one.breaks, one.holds)
    show_table(rows)


def show_results(results: Sequence[Result]) -> None:
    """One row each, then what did not hold or was not checked."""
    columns = ("DETECTED", "RESTARTED", "NEW STEP", "ATTEMPTS", "STEPS AGAIN")
    rows = table("SCENARIO", "VERDICT", *columns, "JOB", right=columns)
    for one in results:
        took = (
            [seconds(value) for value in (one.times.detected, one.times.restarted, one.times.new_step)]
            if one.times
            else [""] * 3
        )
        again = "" if one.steps_again is None else str(one.steps_again)
        verdict = Text(one.verdict, _STYLES[one.verdict])
        rows.add_row(one.scenario, verdict, *took, str(one.attempts or ""), again, one.job)
    show_table(rows)
    screen = out()
    for one in results:
        if one.why:
            screen.print(Text.assemble((f"{one.scenario}: ", "bold"), one.why))
        for check in one.checks:
            if check.ok is None:
                screen.print(Text.assemble((f"{one.scenario}: ", "bold"), f"{check.name}: not checked, {check.told}"))
    told = next(
        (check.told for one in results for check in one.checks if check.name.startswith("the same") and check.ok), ""
    )
    if told:
        screen.print(Text(f"weights: {told}", "dim"))
