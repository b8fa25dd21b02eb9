"""The JSON form of a run with everything that was recorded of it."""

from __future__ import annotations

from dataclasses import asdict
from typing import cast

from sqlalchemy import select

from muster.api.metrics import SummaryView
from muster.api.runs import ChangeView, CheckpointView, InputView, RunAttempt, RunDetail
from muster.server.leader import Leader
from muster.server.log_reader import output_view
from muster.server.vulnerable import vulnerable_of
from muster.store import record_tables as tables
from muster.store.codec import loads
from muster.track.rows import Run
from muster.track.tracking import Tracking


def run_view(leader: Leader, track: Tracking, run: Run) -> RunDetail:
    job = leader.store.job(run.id)
    summaries = track.metrics.summaries([run.id]).get(run.id, {})
    return {
        **track.search.views([run.id])[0],
        "doc": run.doc,
        "summaries": {name: cast(SummaryView, asdict(summary)) for name, summary in summaries.items()},
        "inputs": _inputs(track, run.id),
        "output": output_view(leader, job) if job is not None else None,
        "vulnerable": vulnerable_of(leader, run.doc),
    }


def attempt_views(track: Tracking, run: str) -> list[RunAttempt]:
    return [cast(RunAttempt, doc) for doc in track.runs.attempts(run)]


def change_views(track: Tracking, run: str) -> list[ChangeView]:
    return [cast(ChangeView, asdict(change)) for change in track.runs.changes(run)]


def checkpoint_views(track: Tracking, run: str) -> list[CheckpointView]:
    table = tables.checkpoints
    query = select(table).where(table.c.run == run).order_by(table.c.step, table.c.attempt)
    with track.db.reading() as connection:
        rows = connection.execute(query).all()
    names = ("step", "attempt", "path", "bytes", "time")
    return [cast(CheckpointView, {**{name: getattr(row, name) for name in names}, **loads(row.doc)}) for row in rows]


def _inputs(track: Tracking, run: str) -> list[InputView]:
    links = tables.links.c
    query = select(links.source, links.doc).where(links.target == f"run:{run}", links.role == "reads")
    with track.db.reading() as connection:
        rows = connection.execute(query.order_by(links.source)).all()
    return [cast(InputView, {"ref": ref, **loads(doc)}) for ref, doc in rows]
