"""Parses a job file, as YAML text or as a mapping, into a `JobSpec`, or into one error with every mistake in it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from muster.core import units
from muster.core.document import read_document
from muster.core.errors import SpecError
from muster.core.fields import FAILED, FIELDS, Entry, advice, read_fields
from muster.core.notation import FieldPath
from muster.core.report import At, Report, Stop, shown
from muster.core.spec import RESERVED, RESERVED_PREFIX, SECTIONS, JobSpec, section


@dataclass(frozen=True, slots=True)
class Overrides:
    """Fields that replace those of a job file, written like it, and what errors call them.

    `envs` and `tags` are merged with the file's, name by name. A relative `workdir` starts from `base`.
    """

    values: Mapping[str, Any]
    source: str = "The command line"
    base: Path | None = None


def parse_job(
    job: str | bytes | Mapping[str, Any],
    *,
    source: str = "job",
    base: Path | None = None,
    defaults: Mapping[str, Any] | None = None,
    overrides: Overrides | None = None,
) -> JobSpec:
    """Returns the job, or raises SpecError with all problems at once: those of the job, else those of `overrides`.

    `base` is the folder that a relative `workdir` starts from. `defaults` is written like a job file and fills in what
    the job leaves out; its `envs` and `tags` are merged with the job's, name by name.
    """
    report, changes, last = Report(), Report(), overrides or Overrides({})
    spec = None
    try:
        # 1. text to plain data; 2. plain data to fields, each value in canonical form, and the one over the other
        given = read_fields(read_document(job, report), (), report)
        entries = _over(read_fields(defaults or {}, ("defaults",), report), given)
        entries = _over(entries, read_fields(last.values, (), changes))
        # 3. checks that the models can't do; 4. validation by the models
        _check_names(entries)
        where = entries.get(("workdir",))
        values = _values(entries, last.base if where and where.report is changes else base)
        _check_nodes(values, entries)
        _check_rung(entries)
        spec = _validated(values, entries, report)
    except Stop:
        pass
    for problems, name in ((report.problems(), source), (changes.problems(), last.source)):
        if problems:
            raise SpecError(problems, name)
    assert spec is not None
    return spec


def _over(defaults: dict[FieldPath, Entry], given: dict[FieldPath, Entry]) -> dict[FieldPath, Entry]:
    for path, entry in given.items():
        below = defaults.get(path)
        if path != ("needs",) and below and isinstance(below.value, dict) and isinstance(entry.value, dict):
            entry.value, entry.under = {**below.value, **entry.value}, below
    return {**defaults, **given}


def _check_names(entries: Mapping[FieldPath, Entry]) -> None:
    """Checks names in the ranks' environment: none that the launcher sets, none both in `envs` and in `secrets`."""
    envs, secrets = entries.get(("envs",)), entries.get(("secrets",))
    shared: dict[str, Entry] = {}
    hidden: list[tuple[str, Entry, At]] = []
    if envs and envs.value is not FAILED:
        shared = {name: envs.holder(name) for name in envs.value}
    if secrets and secrets.value is not FAILED:
        hidden = [(name, secrets, secrets.item_at(key)) for name, key in zip(secrets.value, secrets.keys, strict=True)]
    for name, entry, at in (*((name, entry, entry.item_at(name)) for name, entry in shared.items()), *hidden):
        if name in RESERVED or name.startswith(RESERVED_PREFIX):
            entry.report.add(at, "a name that the launcher sets on every rank", "a name of your own", "Rename it.")
    for name in sorted(shared.keys() & {name for name, _, _ in hidden}):
        hint = "Remove it from `envs`: the secret is put into the environment under that name."
        entry = shared[name]
        entry.report.add(entry.item_at(name), "a name that `secrets` has too", "a name in one of the two", hint)


def _check_nodes(values: dict[str, Any], entries: Mapping[FieldPath, Entry]) -> None:
    """Checks that only a sweep has no nodes, and that only a job without nodes has no command."""
    nodes, run = entries.get(("num_nodes",)), entries.get(("run",))
    if values.get("num_nodes") == 0 and nodes is not None:
        if values.get("kind") == "sweep":
            values.setdefault("run", "")
            for name in ("needs", "array", "start_from"):
                if entry := entries.get((name,)):
                    hint = f"Leave it out: a job without nodes is not queued. Its own jobs may have `{name}`."
                    entry.report.add(entry.at, f"`{name}` of a job without nodes", "a job with nodes", hint)
            return
        nodes.report.add(nodes.at, shown(nodes.raw), nodes.field.note.expected, advice(nodes.field, nodes.raw))
    if run is not None and run.value == "":
        run.report.add(run.at, shown(run.raw), run.field.note.expected, advice(run.field, run.raw))


def _check_rung(entries: Mapping[FieldPath, Entry]) -> None:
    """Checks that only a job that is a rung has a number of steps to end after."""
    steps, rung = entries.get(("preflight", "steps")), entries.get(("preflight", "rung"))
    if steps is not None and rung is None:
        hint = "`muster preflight JOB_FILE --steps` says it for the rungs of this job."
        steps.report.add(steps.at, "steps of a job that is no rung", "`preflight: {rung: ..., steps: ...}`", hint)


def _values(entries: Mapping[FieldPath, Entry], base: Path | None) -> dict[str, Any]:
    """The input of the model: nested, without failed values, with a name and an absolute `workdir`."""
    values: dict[str, Any] = {}
    for path, entry in entries.items():
        if entry.value is not FAILED:
            section = values if len(path) == 1 else values.setdefault(path[0], {})
            section[path[-1]] = entry.value
    if asked := values.get("resources", {}).get("accelerators"):
        values["resources"].update(zip(("accelerator", "accelerators", "share"), asked, strict=True))
    if isinstance(values.get("num_nodes"), tuple):
        values["min_nodes"], values["num_nodes"] = values["num_nodes"]
    if base is not None and values.get("workdir"):
        # `os.path` and not `Path.resolve`, which would access the disk.
        inside = os.path.join(base, os.path.expanduser(values["workdir"]))  # noqa: PTH111, PTH118
        values["workdir"] = os.path.abspath(inside)  # noqa: PTH100
    if "name" not in values:
        values["name"] = units.name_from_command(values.get("run", ""))
    return values


def _validated(values: dict[str, Any], entries: Mapping[FieldPath, Entry], report: Report) -> JobSpec | None:
    try:
        spec = JobSpec.model_validate(values)
        idle = [name for name in SECTIONS if name in values and not section(spec, name)]
        return spec.model_copy(update=dict.fromkeys(idle)) if idle else spec
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
    reported: set[tuple[int, At]] = set()  # a union reports one error for each of its members
    for fault in faults:
        loc = tuple(fault["loc"])
        path = next(tuple(map(str, loc[:n])) for n in (2, 1) if loc[:n] in FIELDS)
        field, entry = FIELDS[path], entries.get(path)
        if entry is None:
            report.add(path, "nothing", field.note.expected, advice(field, None))
        elif entry.value is not FAILED:
            holder, at, raw, expected = _faulty(entry, loc[len(path) :])
            if (id(holder), at) not in reported:
                reported.add((id(holder), at))
                holder.report.add(at, shown(raw), expected, advice(field, raw))
    return None


def _faulty(entry: Entry, rest: tuple[int | str, ...]) -> tuple[Entry, At, Any, str]:
    """Who wrote it and where, the value found and what was expected; of the item, if the fault is in one item."""
    note = entry.field.note
    if not rest or note.form not in ("list", "mapping", "needs"):
        return entry, entry.at, entry.raw, note.expected
    if isinstance(rest[0], str):
        # Only the name is shown: environment values are often more private than their names.
        holder = entry.holder(rest[0])
        return holder, holder.item_at(rest[0]), rest[0], note.item
    key = entry.keys[rest[0]]
    at = entry.item_at(key)
    return entry, at, entry.raw if at == entry.at else entry.raw[key], note.item
