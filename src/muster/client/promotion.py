"""Calls that hand the winner of a study on: the job that runs it, and that job at the next scale with the evidence."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from muster.api.numbers import number
from muster.client.connection import Anyone, Connection, J
from muster.client.job_calls import submit
from muster.client.study_calls import study_file, study_report, trials
from muster.core.errors import Invalid, NotFound
from muster.wire import PARAMS, PARAMS_FILE, RANK_DIR

if TYPE_CHECKING:
    from muster.api.studies import ConfirmedView, StudyReport, TrialRow
    from muster.core.spec import JobSpec

_PURPOSE: Final = 500  # characters


async def promote(
    to: Connection[J, Any, Any],
    /,
    ref: str | int,
    trial: int | None = None,
    *,
    anyway: bool = False,
    overrides: Mapping[str, Any] | None = None,
    snapshot: bool = True,
    key: str | None = None,
) -> J:
    """Submits the job of the winner, or of another trial, at the next scale: `overrides={"num_nodes": 4}`.

    It has the tags "study", "trial" and "held_up", and says in its purpose how the trial held up with other seeds. A
    trial that was not run again so is refused, unless `anyway`.
    """
    report = await study_report(to, ref)
    held = _held(report, trial)
    if held is None and not anyway:
        which = "no trial" if trial is None else f"trial {trial} not"
        raise Invalid(
            f"The winners of {report['study']['id']} are not confirmed: {which} was run again with other seeds.",
            "Add `confirm: {top: 3, seeds: 5}` to the study file and give it with `muster tune change`; "
            "or promote it all the same with --anyway.",
        )
    chosen = trial if trial is not None else held["of"] if held is not None else None
    row = await _row(to, report, chosen)
    spec = await winner_job(to, ref, row)
    first = bool(report["confirmed"]) and report["confirmed"][0]["of"] == row["number"]
    better = report["verdict"]["better"] if report["verdict"] is not None and first else None
    tags = {
        "study": report["study"]["id"],
        "trial": str(row["number"]),
        "held_up": "not tested" if held is None else "yes" if better else "unclear",
    }
    told = spec.model_copy(update={"purpose": _purpose(report, row, held), "tags": {**spec.tags, **tags}})
    return await submit(to, _scaled(told, overrides or {}), key, snapshot=snapshot, inherit=False)


async def winner_job(to: Anyone, /, ref: str | int, row: TrialRow | None = None) -> JobSpec:
    """The job that runs the best trial, or the one of `row`, apart from its study."""
    from muster.tune.spec import StudySpec  # noqa: PLC0415  (pydantic)
    from muster.tune.trial_spec import base_spec, trial_spec  # noqa: PLC0415

    found = await study_file(to, ref)
    study = StudySpec.of(found["study"])
    if study.job is None:
        raise Invalid(f"The trials of {found['id']} are run by other programs.", "See `muster tune best`.")
    row = row if row is not None else await _row(to, await study_report(to, ref), None)
    base = base_spec(study)
    made = trial_spec(study, base, "", row["params"], seed=row["seed"])
    run = "\n".join([*_given(row, study.params_as == "config"), made.run])
    kept = {"name": base.name, "kind": base.kind, "purpose": base.purpose, "parent": None, "run": run}
    return made.model_copy(update=kept)


def _given(row: TrialRow, file: bool) -> list[str]:
    """Commands that give its parameters to a program, as a study does. In other jobs Muster gives none."""
    params = {**row["params"], **({"seed": row["seed"]} if row["seed"] is not None else {})}
    lines = [f"export {PARAMS}={shlex.quote(json.dumps(params))}"]
    if file:
        lines.append(f'export {PARAMS_FILE}="${RANK_DIR}/params.json"')
        lines.append(f'printf \'%s\\n\' "${PARAMS}" > "${PARAMS_FILE}"')
    return lines


def _held(report: StudyReport, trial: int | None) -> ConfirmedView | None:
    """How the trial held up with other seeds; without a number, the one that is the best of those."""
    tested = [one for one in report["confirmed"] if one["values"]]
    return next((one for one in tested if trial in (None, one["of"])), None)


async def _row(to: Anyone, report: StudyReport, number: int | None) -> TrialRow:
    if number is None:
        if report["best"] is None:
            raise NotFound(f"No trial of {report['study']['id']} has a value.", "See `muster tune trials`.")
        return report["best"]
    found = await trials(to, report["study"]["id"], after=number - 1, limit=1)
    if not found or found[0]["number"] != number:
        raise NotFound(f"{report['study']['id']} has no trial {number}.", "See `muster tune trials`.")
    return found[0]


def _purpose(report: StudyReport, row: TrialRow, held: ConfirmedView | None) -> str:
    metric, text = report["study"]["objectives"][0]["metric"], f"trial {row['number']} of {report['study']['id']}"
    if held is not None and report["verdict"] is not None:
        told = report["verdict"]["text"]
    elif held is None:
        value = number(row["values"][0]) if row["values"] else None
        told = f"{metric} {value:.5g}, not run again with other seeds" if value is not None else "it has no value"
    else:
        spread = f" ± {number(held['deviation']):.2g}" if held["deviation"] is not None else ""
        told = f"{metric} {number(held['mean']):.5g}{spread} over {len(held['values'])} seeds"
    return f"{text} at the next scale: {told}"[:_PURPOSE]


def _scaled(spec: JobSpec, overrides: Mapping[str, Any]) -> JobSpec:
    from muster.core.dump import written_values  # noqa: PLC0415  (pydantic)
    from muster.core.parse import Overrides, parse_job  # noqa: PLC0415

    return parse_job(written_values(spec), source="the winner's job", overrides=Overrides(overrides, base=Path.cwd()))
