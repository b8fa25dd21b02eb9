"""Rows of an accepted job: its run, its parameters and tags, and its lineage links.

They are written in the transaction that accepts the job. If the database is older than the record, the follower of the
event log writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from muster.core.event import Event
from muster.core.job_events import JobSubmitted
from muster.core.spec import JobSpec
from muster.store import record_tables as tables
from muster.store.base import Rows
from muster.track.experiments import Experiments
from muster.track.facts import code_columns, command_params, fitted, number_of
from muster.track.origins import Origins, RunOwner
from muster.track.rows import Run, link_row, merged, note_row, run_row


@dataclass(frozen=True, slots=True)
class _Found:
    """Data that is looked up before the transaction."""

    experiment: int
    params: Mapping[str, str]
    data: Sequence[str]  # references of the data sets that it reads
    sources: Sequence[str]  # references that its parameters name as its start


class SubmittedJobs:
    """`origins` resolves references in names and parameter values."""

    def __init__(self, experiments: Experiments, origins: Origins) -> None:
        self._experiments, self._origins = experiments, origins

    def rows_of(self, spec: JobSpec, user: str, params: Mapping[str, str] | None = None) -> Callable[[Event], Rows]:
        """Called before the commit; the event is made within it. `params`: beside those of the command line."""
        found = self._find(RunOwner(spec.project, user), spec.run, spec.envs, spec.data, params or {})

        def rows(event: Event) -> Rows:
            assert isinstance(event.data, JobSubmitted)
            return list(_rows(event, event.data, found))

        return rows

    def rows_of_event(self, event: Event, data: JobSubmitted, new: Mapping[str, str]) -> Rows:
        """`new`: runs that are not in the record yet → their projects."""
        spec = data.spec_doc
        speaker = RunOwner(event.project, data.user, new)
        found = self._find(speaker, spec["run"], spec.get("envs") or {}, spec.get("data") or ())
        return list(_rows(event, data, found))

    def _find(
        self,
        owner: RunOwner,
        run: str,
        envs: Mapping[str, str],
        data: Sequence[str],
        own: Mapping[str, str] = MappingProxyType({}),
    ) -> _Found:
        params = {**command_params(run, envs), **own}
        reads = list(self._origins.names(data, owner).values())
        sources = self._origins.find(list(params.values()), owner)
        return _Found(self._experiments.of_project(owner.project), params, reads, sources)


def _rows(event: Event, data: JobSubmitted, found: _Found) -> Iterator[tuple[Any, dict[str, Any]]]:
    run, spec = event.job, data.spec_doc
    yield tables.runs, run_row(_run(event, data, found.experiment))
    purpose = spec.get("purpose") or ""
    if purpose:
        note = note_row(event.project, run, event.time, data.user, "purpose", purpose, mark=f"{run}:purpose")
        yield tables.notes, note
    for key, value in found.params.items():
        yield tables.run_params, {"run": run, "key": key, "value": value, "number": number_of(value), "attempt": 0}
    for key, value in fitted(spec.get("tags") or {}).items():
        yield tables.run_tags, {"run": run, "key": key, "value": value}
    for ref in found.data:
        yield tables.links, link_row(ref, f"run:{run}", "reads", event.time)
    role = "evaluates" if spec.get("kind") == "eval" else "starts_from"
    for source in found.sources:
        yield tables.links, link_row(source, f"run:{run}", role, event.time)


def _run(event: Event, data: JobSubmitted, experiment: int) -> Run:
    spec, code = data.spec_doc, data.code or {}
    doc = merged({}, {
        "number": data.number, "queue": data.queue, "spec": spec, "command": spec["run"],
        "workdir": spec.get("workdir"), "code": code or None,
    })  # fmt: skip
    runs = data.seatless  # it is launched nowhere, so it runs from the start
    name = spec["name"] if data.index is None else f"{spec['name']}[{data.index}]"
    return Run(
        event.job, event.project, experiment, name, data.user, spec.get("kind", "train"), "job",
        "running" if runs else "queued", event.time, event.time if runs else None, None, spec.get("parent"), None, True,
        (), spec.get("purpose") or "", 0, doc=doc,
        **code_columns(code),
    )  # fmt: skip
