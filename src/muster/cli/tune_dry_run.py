"""The output of `muster tune FILE --dry-run`: the study in canonical form, one of its trials, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from muster.api.cost import CostEstimate
from muster.api.studies import StudyDryRun
from muster.cli import format
from muster.cli.dry_run import show_refused
from muster.cli.output import emit, note, out
from muster.cli.tune_file import study_values, study_yaml
from muster.client import Client
from muster.client.study_file import StudyFile
from muster.client.surroundings import SHELL_ENVS
from muster.core.errors import Refused
from muster.core.money import format_amount
from muster.core.spec import JobSpec
from muster.tune.space import Space
from muster.tune.spec import StudySpec


def show(to: Client, given: StudyFile, json: bool) -> None:
    found = to.check_study(given)
    study, currency = StudySpec.of(found["study"]), to.prices()["currency"]
    trial = JobSpec.model_validate({**found["job"], "parent": None}) if found["job"] is not None else None
    refused, cost = _cost(to, trial)
    if json:
        answer = {**found, "file": study_values(found["study"], currency), "points": study.space.size}
        emit({**answer, "runs": _runs(study), "cost": cost, "refused": refused.to_dict() if refused else None})
        return
    for told in found["notes"]:
        note((told, "yellow"))
    screen = out()
    screen.print(Text(f"{given.source} is in order: {_size(study.space)}\n"))
    screen.print(Text(f"{study_yaml(found['study'], currency)}\n"))
    if trial is None:
        screen.print(Text("It has no job: a program asks for its trials, as with `Study.asked` of the Python client."))
        return
    screen.print(Text("One of its trials:", style="bold"))
    _show_trial(found, trial)
    if refused is not None:
        show_refused("a trial", refused.to_dict()["reasons"])
    elif cost is not None:
        _show_cost(cost, study)


def _cost(to: Client, trial: JobSpec | None) -> tuple[Refused | None, CostEstimate | None]:
    """What one trial is expected to cost, where prices are known; or why it would not be accepted."""
    if trial is None:
        return None, None
    try:
        return None, to.check(trial, inherit=False).get("cost")
    except Refused as error:
        return error, None


def _show_trial(found: StudyDryRun, trial: JobSpec) -> None:
    own = {name: value for name, value in trial.envs.items() if name not in SHELL_ENVS}
    rows = [("command", trial.run), ("folder", trial.workdir or "-")]
    rows += [("variables", " ".join(f"{name}={value}" for name, value in own.items()) or "-")]
    rows += [("asks for", f"{trial.num_nodes} x {format.resources(_resources(trial))}")]
    for name, text in rows:
        out().print(Text.assemble((f"  {name:<10} ", "dim"), text))


def _resources(trial: JobSpec) -> Mapping[str, Any]:
    return trial.resources.model_dump()


def _show_cost(cost: CostEstimate, study: StudySpec) -> None:
    one, currency = cost["choices"][0], cost["currency"]
    if one["p50"] is None:
        told = "; ".join(one["notes"]) or "no pool that it may run in has a price"
        out().print(Text.assemble(("  cost       ", "dim"), f"not known: {told}"))
        return
    how = (
        "by how long such jobs ran" if cost["source"] == "learnt" else f"if it runs {format.span(cost['seconds_p50'])}"
    )
    out().print(Text.assemble(("  cost       ", "dim"), f"about {format_amount(one['p50'], currency)}, {how}"))
    runs = _runs(study)
    if runs is None:
        return
    early = "" if study.stop.name == "fifo" else "; less as far as trials are stopped early"
    whole = f"about {format_amount(one['p50'] * runs, currency)} for {runs:,} runs to their end{early}"
    limit = f", and at most {format_amount(study.cost, currency)}" if study.cost is not None else ""
    out().print(Text.assemble(("  study      ", "dim"), f"{whole}{limit}"))


def _runs(study: StudySpec) -> int | None:
    """How many runs it has in all, with those that confirm winners; None without a limit of trials."""
    trials = study.trials if study.trials is not None else study.space.size
    if trials is None:
        return None
    size = study.space.size
    trials = trials if size is None else min(trials, size * study.replicates)
    return trials + (study.confirm.top * study.confirm.seeds if study.confirm is not None else 0)


def _size(space: Space) -> str:
    several = "1 parameter" if len(space.parameters) == 1 else f"{len(space.parameters)} parameters"
    points = "more points than can be listed" if space.size is None else f"{space.size:,} points"
    return f"{several}, {points}"
