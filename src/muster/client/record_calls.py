"""Calls for the record: runs outside of jobs, notes, logbooks, lineage and the model registry."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from muster.client.artifact_calls import put_artifact
from muster.client.connection import Anyone, Doc, part, run_path

if TYPE_CHECKING:
    from muster.api.data_sets import DataDetail, DataList
    from muster.api.lineage import LineageView
    from muster.api.logbook import NoteView
    from muster.api.models import (
        ModelAliases,
        ModelDeleted,
        ModelDetail,
        ModelView,
        PromotionView,
        VersionDeleted,
        VersionDetail,
        VersionView,
    )
    from muster.api.runs import ChangeView, CheckpointView, RunAttempt, RunDetail, RunPurged

_PAGE: Final = 500  # entries in one response
_TIMEOUT: Final = 60.0  # seconds without a byte


# --- runs -------------------------------------------------------------------------------------------------------


async def create_run(to: Anyone, /, name: str = "", project: str = "default", **fields: Any) -> RunDetail:
    """Creates a run without a job. `fields`: params, tags, purpose, kind, phase, parent, created_at, id, ..."""
    return await to._send("POST", "/v1/runs", {"name": name, "project": project, **fields})


async def update_run(to: Anyone, /, ref: str | int, **changes: Any) -> RunDetail:
    """`changes`: name, purpose, experiment and, unless it is the run of a job, phase, started_at and ended_at."""
    return await to._send("PATCH", run_path(ref), changes)


async def delete_run(to: Anyone, /, ref: str | int, purge: bool = False) -> RunDetail | RunPurged:
    """Hides the run; with `purge` it is deleted permanently, and "rows" says how many rows were deleted."""
    return await to._transport.call("DELETE", run_path(ref), params={"purge": purge})


async def restore_run(to: Anyone, /, ref: str) -> RunDetail:
    """Lists a hidden run again; `ref` is its full id."""
    return await to._send("POST", run_path(ref, "restore"), {})


async def set_params(
    to: Anyone, /, ref: str | int, values: Mapping[str, Any], refuse_change: bool = False
) -> dict[str, str]:
    """Sets parameters and returns all of them; the old value of a changed one is kept as a change."""
    body = {"values": dict(values), "refuse_change": refuse_change}
    return (await to._send("PUT", run_path(ref, "params"), body))["params"]


async def set_tags(to: Anyone, /, ref: str | int, values: Mapping[str, str | None]) -> dict[str, str]:
    """Sets tags and returns all of them; None removes one."""
    return (await to._send("PUT", run_path(ref, "tags"), {"values": dict(values)}))["tags"]


async def run_changes(to: Anyone, /, ref: str | int) -> list[ChangeView]:
    """Later changes of parameters and tags, oldest first."""
    return (await to._send("GET", run_path(ref, "changes")))["changes"]


async def run_attempts(to: Anyone, /, ref: str | int) -> list[RunAttempt]:
    """The attempts: nodes, times, how each ended, environment, parameters."""
    return (await to._send("GET", run_path(ref, "attempts")))["attempts"]


async def run_checkpoints(to: Anyone, /, ref: str | int) -> list[CheckpointView]:
    """The saved checkpoints and how to load them, ordered by step."""
    return (await to._send("GET", run_path(ref, "checkpoints")))["checkpoints"]


# --- logbook ----------------------------------------------------------------------------------------------------


async def note(
    to: Anyone, /, ref: str | int, text: str, *, files: Iterable[str | Path] = (), step: int | None = None
) -> NoteView:
    """Adds a Markdown note to the logbook of a run; `files` become artifacts of the run under `notes/`."""
    paths = []
    for file in files:
        paths.append(f"notes/{Path(file).name}")
        await put_artifact(to, ref, file, paths[-1])
    return await to._send("POST", run_path(ref, "notes"), {"text": text, "attachments": paths, "step": step})


async def project_note(to: Anyone, /, project: str, text: str) -> NoteView:
    return await to._send("POST", f"/v1/projects/{part(project)}/notes", {"text": text})


async def notes(
    to: Anyone,
    /,
    ref: str | int | None = None,
    *,
    project: str | None = None,
    search: str | None = None,
    kinds: Sequence[str] = (),
    last: int | None = None,
) -> AsyncGenerator[NoteView, None]:
    """Entries of a run's logbook, or of a project's with all its runs: all, or the `last` ones."""
    path = run_path(ref, "notes") if ref is not None else f"/v1/projects/{part(project or 'default')}/notes"
    params: Doc = {"search": search, "kind": list(kinds) or None, "limit": min(last or _PAGE, 1000)}
    after: int | None = 0
    while after is not None:
        page = await to._get(path, **params, **({"after": after} if last is None else {"last": True}))
        for entry in page["entries"]:
            yield entry
        after = page["next"] if last is None else None


async def logbook(to: Anyone, /, ref: str | int | None = None, *, project: str | None = None) -> str:
    """The whole logbook as one Markdown document."""
    path = run_path(ref, "logbook") if ref is not None else f"/v1/projects/{part(project or 'default')}/logbook"
    return (await to._transport.read(path, {}, _TIMEOUT)).decode()


# --- lineage ----------------------------------------------------------------------------------------------------


async def lineage(to: Anyone, /, ref: str | int, way: str = "both", depth: int | None = None) -> LineageView:
    """What it was made from ("up") and what was made from it ("down"), as trees of {ref, role, about, nodes}.

    `ref`: a run, `data:NAME@VERSION`, `checkpoint:RUN/STEP`, `artifact:RUN/PATH` or `model:NAME/VERSION`.
    """
    path = f"/v1/lineage/{quote(str(ref), safe='/')}"
    return await to._transport.call("GET", path, params={"way": way, "depth": depth})


async def data_sets(to: Anyone, /, contains: str = "") -> DataList:
    """The data sets that runs have named, by version, the last used first: {"data", "more"}."""
    return await to._transport.call("GET", "/v1/data", params={"contains": contains or None})


async def data_set(to: Anyone, /, name: str) -> DataDetail:
    """One data set, or one version as `c4-en@v3`: its "versions", and the "uses" of it by runs, the newest first."""
    return await to._transport.call("GET", f"/v1/data/{quote(name, safe='/')}")


# --- models -----------------------------------------------------------------------------------------------------


async def models(to: Anyone, /, project: str | None = None, contains: str | None = None) -> list[ModelView]:
    params = {"project": project, "contains": contains}
    return (await to._transport.call("GET", "/v1/models", params=params))["models"]


async def model(to: Anyone, /, name: str, version: int | None = None) -> ModelDetail | VersionDetail:
    """The model with its versions, or one version with its promotions."""
    return await to._send("GET", _model(name) if version is None else _version(name, version))


async def create_model(to: Anyone, /, name: str, project: str = "default", description: str = "") -> ModelView:
    return await to._send("POST", "/v1/models", {"name": name, "project": project, "description": description})


async def register_model(
    to: Anyone,
    /,
    name: str,
    run: str | int | None = None,
    *,
    step: int | None = None,
    artifact: str | None = None,
    source: str = "",
    project: str | None = "default",
    description: str = "",
    tags: Mapping[str, str] | None = None,
) -> VersionView:
    """Registers the next version: a run, its checkpoint at a `step`, one of its artifacts, or any `source`.

    A model that does not exist is created in `project`.
    """
    if run is not None and step is not None:
        source = f"checkpoint:{run}/{step}"
    elif run is not None and artifact is not None:
        source = f"artifact:{run}/{artifact}"
    body = {"source": source, "run": None if run is None else str(run), "project": project,
            "description": description, "tags": dict(tags or {})}  # fmt: skip
    return await to._send("POST", f"{_model(name)}/versions", body)


async def promote_model(to: Anyone, /, name: str, version: int, stage: str, **given: Any) -> PromotionView:
    """`given`: why, evidence (runs), metrics (names), force, archive_others."""
    return await to._send("POST", f"{_version(name, version)}/stage", {"stage": stage, **given})


async def roll_back_model(
    to: Anyone, /, name: str, why: str, stage: str = "production", version: int | None = None
) -> PromotionView:
    """Puts back the version that was in the stage before, or this one; the present one is archived."""
    return await to._send("POST", f"{_model(name)}/rollback", {"stage": stage, "version": version, "why": why})


async def set_model_alias(to: Anyone, /, name: str, alias: str, version: int | None) -> ModelAliases:
    """None removes the alias."""
    path = f"{_model(name)}/aliases/{part(alias)}"
    return await to._send("DELETE", path) if version is None else await to._send("PUT", path, {"version": version})


async def delete_model(to: Anyone, /, name: str, version: int | None = None) -> ModelDeleted | VersionDeleted:
    """Deletes one version, or the model with all its versions."""
    return await to._send("DELETE", _model(name) if version is None else _version(name, version))


def _model(name: str) -> str:
    return f"/v1/models/{part(name)}"


def _version(name: str, version: int) -> str:
    return f"{_model(name)}/versions/{version}"
