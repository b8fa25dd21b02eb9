"""Studies and trials where jobs are shown: what `muster ls`, `status`, `why`, `logs` and `resume` say of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

from rich.text import Text

from muster.api.studies import StudyLine, StudyStatus, TrialRow
from muster.cli.lazy import load
from muster.cli.tune_format import params_text, result_text, spent_text, state_text, trials_text, value_text
from muster.client import Client, Job
from muster.core.errors import MusterError, NotFound, Unavailable


def may_be_study(job: Job) -> bool:
    """Whether it can be the job of a study; other programs submit jobs without nodes too."""
    return job.kind == "sweep" and not job.num_nodes and job.array is None


def study_of(to: Client, job: Job) -> StudyStatus | None:
    """The study whose job this is."""
    if may_be_study(job):
        with suppress(NotFound):
            return to.study_status(job.id)
    return None


def trial_of(to: Client, job: Job) -> TrialRow | None:
    """The trial whose job this is."""
    if job.kind == "sweep" and job.num_nodes and job.array is None and job.parent and job.index is not None:
        with suppress(NotFound):
            return next(
                (one for one in to.trials(job.parent, after=job.index - 1, limit=1) if one["job"] == job.id), None
            )
    return None


def study_lines(to: Client, jobs: Iterable[Job]) -> Mapping[str, StudyLine]:
    """Studies among these jobs, by their ids; none of a server that does not know them."""
    if not any(map(may_be_study, jobs)):
        return {}
    try:
        return {one["id"]: one for one in to.studies(everything=True, limit=1000)}
    except Unavailable:
        raise
    except MusterError:
        return {}


def progress_cell(one: StudyLine) -> str:
    """For a column of a table."""
    return f"{one['trials']:,}/{one['limit']:,} trials" if one["limit"] is not None else f"{one['trials']:,} trials"


def best_cell(one: StudyLine) -> str:
    return f"best {one['objective']} {value_text(one['best'])}" if one["best"] is not None else ""


def study_rows(found: StudyStatus) -> list[tuple[str, Text]]:
    head, best = found["study"], found["best"]
    states = load("muster.cli.tune_words:states_text")(found)  # charts are imported with it, for few commands
    rows = [("study", Text(f"{trials_text(found)} trials: {states}; {spent_text(found)}"))]
    if best is not None:
        metric = head["objectives"][0]["metric"]
        told = f"{metric} {result_text(best)}, trial {best['number']}: {params_text(best['params'])}"
        rows.append(("best", Text(told)))
    if head["wait"] is not None:
        rows.append(("waits", Text(f"{head['wait']['message']} {head['wait']['hint']}".strip(), style="yellow")))
    return rows


def trial_rows(study: str, row: TrialRow) -> list[tuple[str, Text]]:
    told = f": {row['note']}" if row["note"] else ""
    return [
        ("trial", Text(f"{row['number']} of {study}, {state_text(row)}{told}")),
        ("parameters", Text(params_text(row["params"]))),
    ]


def study_commands(study: str, over: bool) -> str:
    last = f"muster tune report {study}" if over else f"muster tune stop {study}"
    return f"muster tune status {study} · muster tune trials {study} · {last}"
