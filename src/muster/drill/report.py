"""The report of a scenario as Markdown, and its place in the run: an artifact and an entry of the logbook."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from muster.client import Client, MusterError
from muster.drill.measure import Result

PATH: Final = "drill/report.md"
_MARKS: Final = {True: "yes", False: "NO", None: "not checked"}


def seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} s"


def markdown(result: Result, reference: str) -> str:
    """One page."""
    lines = [f"# Drill: {result.scenario}", "", f"**{result.verdict}**" + (f": {result.why}" if result.why else ""), ""]
    lines += [f"- job: {result.job}", f"- undisturbed run: {reference or 'none'}", f"- fault: {result.fault}"]
    lines += [f"- must hold: {result.holds}", ""]
    rows = [("attempts", str(result.attempts)), ("steps done again", str(result.steps_again))]
    if result.times is not None:
        told = (result.times.detected, result.times.restarted, result.times.new_step)
        names = ("time to detect", "time to restart", "time to the next new step")
        rows += [(name, seconds(value) or "none") for name, value in zip(names, told, strict=True)]
    lines += ["| what | value |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows), ""]
    lines += ["| check | holds | told |", "|---|---|---|"]
    lines += [f"| {one.name} | {_MARKS[one.ok]} | {one.told} |" for one in result.checks]
    return "\n".join(lines) + "\n"


def keep(client: Client, result: Result, reference: str) -> str:
    """Puts the report into the run. Returns what went wrong, or nothing."""
    if not result.job:
        return ""
    told = f"drill {result.scenario}: {result.verdict}" + (f" ({result.why})" if result.why else "")
    try:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "report.md")
            file.write_text(markdown(result, reference))
            client.put_artifact(result.job, file, PATH, about="what a fault on purpose did to this run")
        client.note(result.job, f"{told}. Fault: {result.fault or 'none'}. The report is the artifact {PATH}.")
    except MusterError as error:
        return f"the report of {result.job} could not be kept: {error.message}"
    return ""
