"""Calls that give the server a study: to start it, to check it, and to change one that runs."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.client.artifact_calls import capture
from muster.client.connection import Anyone, Connection, Doc, S, study_path
from muster.client.spec import Spec, interpreter, workdir_of
from muster.client.study_file import StudyFile, StudyForm, read_study
from muster.client.surroundings import SHELL_ENVS, surroundings
from muster.client.unread import unread
from muster.core.errors import SpecError

if TYPE_CHECKING:
    from muster.api.studies import StudyChange, StudyDryRun

Objective = str | Mapping[str, Any] | Sequence[Mapping[str, Any]]


async def tune(
    to: Connection[Any, Any, S],
    /,
    study: StudyForm | StudyFile = None,
    job: Spec | None = None,
    *,
    space: Mapping[str, Any] | None = None,
    objective: Objective | None = None,
    trials: int | None = None,
    parallel: int | None = None,
    cost: str | None = None,
    until: str | None = None,
    search: Any = None,
    stop: Any = None,
    confirm: Mapping[str, int] | None = None,
    constraints: Sequence[str] | None = None,
    enqueue: Sequence[Mapping[str, Any]] | None = None,
    params: Any = None,
    warm_start: str | None = None,
    seed: int | None = None,
    name: str | None = None,
    more: Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
    project: str | None = None,
    base: str | Path | None = None,
    snapshot: bool = True,
    inherit: bool = True,
    key: str | None = None,
    on_note: Callable[[str], None] | None = None,
) -> S:
    """Starts a study: of a study file (its path, its text, a mapping), or over a function `train(params)` that returns
    the objective.

    The rest replaces what the file says, or is all of it; `more` has its other keys. `objective="loss"` is minimized.
    `job`: the job file, or job, of a trial, instead of the file's; it is prepared as by `submit`, and `overrides` are
    fields of it. Without a job, trials are for `Study.asked`. Again with the same `key`, it returns the same study.
    """
    fields = {
        "study": name, "space": space, "objective": objective, "search": search, "stop": stop, "confirm": confirm,
        "constraints": constraints, "enqueue": enqueue, "params": params, "warm_start": warm_start, "seed": seed,
        "trials": trials, "parallel": parallel, "cost": cost, "until": until, **(more or {}),
    }  # fmt: skip
    given = await _read(to, study, job, fields, overrides=overrides, project=project, base=base, inherit=inherit)
    notes = await to._transport.work(unread, given)
    if on_note is not None:
        for told in notes:
            on_note(told)
    body = await _checked(to, "/v1/studies", given.body(), given)
    if snapshot and given.job is not None and os.environ.get("MUSTER_SNAPSHOT", "1") != "0":
        folder = workdir_of({"spec": given.job})
        if folder is not None:
            body["code"] = await capture(to, folder)
    # Our own key makes it safe to send the request again when the response was lost.
    key = key or uuid.uuid4().hex
    made = await to._transport.call("POST", "/v1/studies", body=body, key=key, more=interpreter())
    return to._study({**made, "notes": [*notes, *made["notes"]]})


async def check_study(
    to: Anyone,
    /,
    study: StudyForm | StudyFile = None,
    job: Spec | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
    project: str | None = None,
    base: str | Path | None = None,
    inherit: bool = True,
    **fields: Any,
) -> StudyDryRun:
    """Does everything that `tune` does except starting it: "study" in canonical form, the "job" of a trial, "notes"."""
    given = await _read(to, study, job, fields, overrides=overrides, project=project, base=base, inherit=inherit)
    notes = await to._transport.work(unread, given)
    body = {**await _checked(to, "/v1/studies", given.body(), given), "dry_run": True}
    found: StudyDryRun = await to._transport.call("POST", "/v1/studies", body=body, more=interpreter())
    return {**found, "notes": [*notes, *found["notes"]]}


async def change_study(
    to: Anyone,
    /,
    ref: str | int,
    study: StudyForm | StudyFile,
    job: Spec | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
    base: str | Path | None = None,
    inherit: bool = True,
    dry_run: bool = False,
) -> StudyChange:
    """Puts another study file in force, and its job: "changes" in words, and how many trials fit the new space.

    With `dry_run` it only says so. The objective can't be changed. Trials that run keep their job.
    """
    given = await _read(to, study, job, {}, overrides=overrides, project=None, base=base, inherit=inherit)
    path, body = study_path(ref, "change"), {"text": given.text, "source": given.source, "dry_run": dry_run}
    await _checked(to, path, body, given)
    if given.job is not None:
        known = await to._get(study_path(ref, "file"))
        body["job"] = _with_envs_of(known["job"] or {}, given.job)
    return await to._send("POST", path, body)


async def _read(
    to: Anyone,
    study: StudyForm | StudyFile,
    job: Spec | None,
    fields: Mapping[str, Any],
    *,
    overrides: Mapping[str, Any] | None,
    project: str | None,
    base: str | Path | None,
    inherit: bool,
) -> StudyFile:
    if isinstance(study, StudyFile):
        return study
    local = inherit and to.target.local
    return await to._transport.work(
        lambda: read_study(
            study,
            job,
            fields_of(fields),
            base=Path(base).absolute() if base is not None else None,
            overrides=overrides,
            project=project,
            defaults=lambda folder: surroundings(folder, local=True) if local else {},
            local=local,
        )
    )


async def _checked(to: Anyone, path: str, body: Doc, given: StudyFile) -> Doc:
    """The body of the request. Raises SpecError with the mistakes of the job and those of the study together."""
    if not given.problems:
        return body
    problems = list(given.problems)
    try:
        await to._transport.call("POST", path, body={**body, "dry_run": True}, more=interpreter())
    except SpecError as error:
        problems = [*error.problems, *problems]
    raise SpecError(problems, given.source, "Correct each and give the file again.")


def _with_envs_of(old: Mapping[str, Any], job: Mapping[str, Any]) -> Doc:
    """The job with the Python environment of the old one: that of the shell is no part of the file."""
    known, envs = old.get("envs") or {}, dict(job.get("envs") or {})
    for name in SHELL_ENVS:
        envs.pop(name, None)
    envs = {**{name: known[name] for name in SHELL_ENVS if name in known}, **envs}
    return {**{key: value for key, value in job.items() if key != "envs"}, **({"envs": envs} if envs else {})}


def fields_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments as keys of a study file."""
    given = {name: value for name, value in fields.items() if value is not None}
    if isinstance(given.get("objective"), str):
        given["objective"] = {"minimize": given["objective"]}
    if "name" in given:
        given["study"] = given.pop("name")
    limits = {name: given.pop(name) for name in ("trials", "parallel", "cost", "until") if name in given}
    return {**given, **({"budget": {**given.get("budget", {}), **limits}} if limits else {})}
