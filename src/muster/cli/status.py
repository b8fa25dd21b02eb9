"""`muster status` and `muster why`: the state of one job, and its history."""

from __future__ import annotations

import time

from rich.table import Table
from rich.text import Text

from muster.api.goodput import HeldTime
from muster.api.jobs import AttemptView
from muster.api.studies import StudyStatus, TrialRow
from muster.api.why import TimelineStep
from muster.cli import format
from muster.cli.call import Json
from muster.cli.connect import client
from muster.cli.forecast import show_offers, when
from muster.cli.jobs import JobRef
from muster.cli.output import cause_lines, emit, hint_of, out, phase_text
from muster.cli.runs_goodput import goodput_of, share_line
from muster.cli.tune_job import study_commands, study_of, study_rows, trial_of, trial_rows
from muster.client import Job
from muster.core.reasons import page_of
from muster.core.units import format_priority

_SHOWN_ATTEMPTS = 8


def status(ref: JobRef, json: Json = False) -> None:
    """Show one job: where it stands and why, its attempts, its checkpoint, where it runs."""
    with client() as to:
        job = to.job(ref)
        attempts = to.attempts(job.id)
        ledger = goodput_of(to, job.id) if attempts else None
        study, trial = study_of(to, job), trial_of(to, job)
    if json:
        more = {name: found for name, found in (("study", study), ("trial", trial)) if found is not None}
        emit({**job.raw, "attempts": attempts, "goodput": ledger, **more})
        return
    screen = out()
    screen.print(_headline(job, attempts))
    card = Table.grid(padding=(0, 2))
    card.add_column(style="dim")
    card.add_column(overflow="fold")
    for name, value in _rows(job, attempts, ledger, study, trial):
        card.add_row(f"  {name}", value)
    screen.print(card, soft_wrap=False)


def why(ref: JobRef, json: Json = False) -> None:
    """Say why a job waits, restarted or ended, what would change it, and how it came to it."""
    with client() as to:
        answer = to.why(ref)
        job = Job.from_view(answer["job"], to)
        attempts = to.attempts(job.id) if job.final and not json else []
        study = study_of(to, job) if not json and not job.final else None
    reason, causes = answer["reason"], answer["all"]
    page = page_of(reason["code"]) if reason else None
    if json:
        emit({**answer, "docs": page})
        return
    screen = out()
    if study is not None:
        screen.print(Text.assemble(_headline(job, attempts), (": it is a study, whose trials run", "bold")))
    elif len(causes) > 1:
        screen.print(Text.assemble(_headline(job, attempts), (f", for {len(causes)} reasons:", "bold")))
        for cause in causes:
            screen.print(Text("\n").join(cause_lines(cause, job.id)))
    else:
        screen.print(Text.assemble(_headline(job, attempts), (f": {reason['message']}" if reason else "", "bold")))
        if reason and reason["hint"]:
            screen.print(Text.assemble(("  what would change it: ", "dim"), (hint_of(job.id, reason["hint"]), "green")))
    for name, text in study_rows(study) if study is not None else ():
        screen.print(Text.assemble((f"  {name}: ", "dim"), text))
    if trace := _traceback(job):
        screen.print(Text(trace, style="dim"))
    if answer["ahead"]:
        ahead = ", ".join(one["id"] for one in answer["ahead"])
        more = ", ..." if (answer["place"] or 0) > len(answer["ahead"]) + 1 else ""
        screen.print(Text.assemble((f"  place {answer['place']} in line, behind: ", "dim"), f"{ahead}{more}"))
    label = "would let it start" if len(causes) < 2 else "would help"  # one cause may be left
    for one in answer["unblock"]:
        screen.print(Text.assemble((f"  {label}: ", "dim"), (one["message"], "green")))
    if answer["forecast"]:
        screen.print(Text.assemble(("  expected start: ", "dim"), when(answer["forecast"])))
    show_offers(answer["offers"])
    screen.print(Text("  how it came to it:", style="dim"))
    for step in answer["timeline"]:
        screen.print(_timeline_line(step))
    if page and study is None:
        screen.print(Text(f"  docs: {page}", style="dim"))


def _headline(job: Job, attempts: list[AttemptView]) -> Text:
    ended = job.finished_at or job.since
    lasted = format.lasted(attempts, job.submitted_at, job.started_at, ended)
    told = lasted if job.final else f"for {format.since(job.since)}"
    return Text.assemble((job.id, "bold"), " ", phase_text(job.phase), f" {told}")


def _rows(
    job: Job,
    attempts: list[AttemptView],
    ledger: HeldTime | None,
    study: StudyStatus | None,
    trial: TrialRow | None,
) -> list[tuple[str, Text]]:
    rows: list[tuple[str, Text]] = []
    if job.reason and job.reason.code != "completed":
        rows.append(("why", Text.assemble(job.reason.message, (f"  {hint_of(job.id, job.reason.hint)}", "green"))))
    if trace := _traceback(job):
        rows.append(("", Text(trace, style="dim")))
    if job.purpose:
        rows.append(("purpose", Text(job.purpose)))
    if job.array:
        limit = f", at most {job.array['limit']} at once" if job.array["limit"] is not None else ""
        rows.append(("tasks", Text(f"{job.array['tasks']} ({job.array['indexes']}){limit}: {format.tasks(job.array)}")))
        rows.append(("", Text(f"muster ls --parent {job.id} · muster status '{job.id}[...]'", style="dim")))
    if study is not None:
        rows += study_rows(study)
    if trial is not None:
        rows += trial_rows(job.parent or "", trial)
    elif job.index is not None:
        rows.append(("task", Text(f"{job.name} of {job.parent}")))
    if job.run:
        rows.append(("command", Text(job.run)))
        rows.append(("folder", Text(job.workdir or "-")))
    if bar := format.progress_line(job.progress):
        rows.append(("progress", Text(bar)))
    if metrics := format.metrics_line(job.progress):
        rows.append(("metrics", Text(metrics)))
    if ledger is not None:
        rows.append(("goodput", Text(share_line(ledger))))
    if missing := format.output_kept(job.output):
        rows.append(("output", Text(missing, style="yellow")))
    if start := job.start_from:
        rows.append(("starts from", Text(format.start(start))))
    if mark := job.checkpoint:
        text = f"step {mark['step']}, {format.since(mark['time'])} ago, {format.size(mark['bytes'])}: {mark['path']}"
        rows.append(("checkpoint", Text(text)))
    ranks = f"{job.ranks} rank{'' if job.ranks == 1 else 's'}"
    where = (
        f"{', '.join(job.nodes)} ({ranks})"
        if job.nodes and (job.placed or job.final)
        else f"{ranks} on {job.num_nodes} node(s), not placed"
    )
    holds = job.num_nodes and not job.array
    text = f"{where}, {format.resources(job.resources)} a node" if holds else "it holds no nodes"
    rows.append(("where", Text(text)))
    rank = format_priority(job.priority)
    rows.append(("queue", Text(f"{job.queue} of project {job.project}, priority {rank}")))
    rows.append(("submitted", Text(f"by {job.user} at {format.clock(job.submitted_at)}")))
    if job.needs:
        rows.append(("needs", Text(", ".join(f"{name} ({outcome})" for name, outcome in job.needs.items()))))
    if job.parent:
        rows.append(("parent", Text(job.parent)))
    if job.tags:
        rows.append(("tags", Text(", ".join(f"{name}={value}" for name, value in job.tags.items()))))
    left_out = len(attempts) - _SHOWN_ATTEMPTS
    rows += [("attempts" if not i else "", _attempt_line(one)) for i, one in enumerate(attempts[-_SHOWN_ATTEMPTS:])]
    if left_out > 0:
        rows.append(("", Text(f"and {left_out} before them; see `muster why {job.id}`", style="dim")))
    look = study_commands(job.id, job.final) if study is not None else _next_commands(job, trial)
    rows.append(("look", Text(look, style="dim")))
    return rows


def _traceback(job: Job) -> str:
    """The traceback of a job that ended with the same one twice."""
    same = job.reason is not None and job.reason.code == "same_error_twice"
    return str(job.reason.data.get("detail", "")) if job.reason is not None and same else ""


def _attempt_line(attempt: AttemptView) -> Text:
    began = attempt["running_at"] or attempt["planned_at"]
    lasted = format.span((attempt["ended_at"] or time.time()) - began)
    step = f" from step {attempt['from_step']}" if attempt["from_step"] is not None else ""
    outcome = attempt["outcome"] or ("running" if attempt["running_at"] else "starting")
    reason = attempt["reason"]
    text = f": {reason['message']}" if reason and reason["code"] != "completed" else ""
    return Text.assemble(f"{attempt['number']} ", phase_text(outcome), f" {lasted}{step}{text}")


def _timeline_line(step: TimelineStep) -> Text:
    reason = step["reason"]
    attempt = f" (attempt {step['attempt']})" if step["attempt"] and step["phase"] in ("starting", "running") else ""
    text = f"  {reason['message']}" if reason else ""
    return Text.assemble((f"    {format.clock(step['time'])}  ", "dim"), phase_text(step["phase"]), f"{attempt}{text}")


def _next_commands(job: Job, trial: TrialRow | None) -> str:
    last = f"muster stop {job.id}"
    if trial is not None:  # it is stopped and continued by its study
        last = f"muster tune trials {job.parent}"
    elif job.final:
        last = f"muster resume {job.id}" if job.phase != "succeeded" else f"muster events --job {job.id}"
    follow = "" if job.final else "-f "
    return f"muster logs {follow}{job.id} · muster why {job.id} · {last}"
