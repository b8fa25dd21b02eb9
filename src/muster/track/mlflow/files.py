"""MLflow's calls on artifacts. Paths of the scheme `mlflow-artifacts:` are artifacts of runs, stored as blobs."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final
from urllib.parse import unquote

from muster.core.entities import Role
from muster.core.errors import Conflict, Invalid, NotFound
from muster.core.event import Event
from muster.core.payload import Audit
from muster.core.record_events import ArtifactPut, ArtifactRemoved
from muster.track.artifacts import Artifact, Folder, check_path
from muster.track.blob_store import BLOCK, Stage
from muster.track.mlflow.context import MlflowContext
from muster.track.mlflow.faults import Fault, missing
from muster.track.mlflow.names import OURS, artifact_uri
from muster.track.mlflow.run_calls import Request, run_id
from muster.track.usage import BESIDE_RUNS

_BESIDE: Final = ("models", "traces")  # parts of an experiment other than runs
_ARTIFACTS: Final = "artifacts"
_QUOTED: Final = 8  # times that a path may be quoted: each takes a pass over it


@dataclass(frozen=True, slots=True)
class ArtifactLocation:
    """The owner of an artifact (a run, or a logged model or trace of an experiment), and the path under it."""

    owner: str
    path: str
    project: str = ""


def locate(context: MlflowContext, path: str, role: Role = "viewer") -> ArtifactLocation:
    """Resolves `EXPERIMENT/RUN/artifacts/PATH`. Raises Fault if the caller may not see it."""
    parts = safe_path(path).split("/")
    if len(parts) >= 4 and parts[1] in _BESIDE and parts[3] == _ARTIFACTS:
        found = context.experiment(parts[0], role)
        return ArtifactLocation(f"{BESIDE_RUNS}{found.id}/{parts[1]}/{parts[2]}", "/".join(parts[4:]), found.project)
    if len(parts) >= 3 and parts[2] == _ARTIFACTS:
        path = "/".join(parts[3:])
        if role == "viewer":
            return ArtifactLocation(context.row(parts[1]).id, path)
        target = context.target(parts[1])
        return ArtifactLocation(target.run, path, target.project)
    raise missing(f"There are no artifacts at '{path}': paths are EXPERIMENT/RUN/artifacts/PATH.")


def list_run(context: MlflowContext, request: Request) -> dict[str, Any]:
    path = request.get("path")
    row = context.row(run_id(request))
    _check_ours(row.artifacts)
    files = _level(context, ArtifactLocation(row.id, safe_path(path) if path else ""))
    answer: dict[str, Any] = {"root_uri": artifact_uri(row.experiment, row.artifacts or "", row.id)}
    return {**answer, "files": files} if files else answer


def list_path(context: MlflowContext, request: Request) -> dict[str, Any]:
    """Lists for the service `mlflow-artifacts`: names come without the requested path."""
    files = _level(context, locate(context, str(request.get("path") or "")))
    return {"files": [{**file, "path": posixpath.basename(file["path"])} for file in files]}


def find(context: MlflowContext, path: str) -> Artifact:
    where = locate(context, path)
    return _file(context, where)


def find_of_run(context: MlflowContext, request: Request) -> Artifact:
    row = context.row(run_id(request))
    _check_ours(row.artifacts)
    return _file(context, ArtifactLocation(row.id, safe_path(str(request.get("path") or ""))))


def read(context: MlflowContext, one: Artifact, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
    return context.track.artifacts.open(one, start, stop)


def upload(
    context: MlflowContext, where: ArtifactLocation, stage: Stage, expected_bytes: int | None = None, owner: str = ""
) -> None:
    """Stores a file. One of a logged model has the kind `model`."""
    kind = "model" if where.owner.startswith(BESIDE_RUNS) and "/models/" in where.owner else "file"
    told = [_event(context, ArtifactPut(where.path), where)]
    try:
        context.track.artifacts.upload(where.owner, where.path, stage, expected_bytes, owner, kind, events=told)
    except (Invalid, Conflict) as error:
        raise Fault(str(error)) from error


def upload_file(context: MlflowContext, where: ArtifactLocation, file: BinaryIO) -> None:
    stage = context.track.blobs.stage()
    try:
        while data := file.read(BLOCK):
            stage.write(data)
        upload(context, where, stage)
    finally:
        stage.drop()


def locate_for_write(context: MlflowContext, path: str, size: int = 0) -> ArtifactLocation:
    """The place of a path that the caller may write. Raises Refused if its project has no room for so many bytes."""
    where = locate(context, path, "member")
    try:
        check_path(where.path)
    except Invalid as error:
        raise Fault(f"Invalid path. {error}") from error
    context.track.artifacts.usage.check(where.project, size)
    return where


def remove(context: MlflowContext, path: str) -> None:
    where = locate(context, path, "member")
    if not where.path:
        raise Fault("Invalid path. Name a file or a folder of a run.")
    try:
        context.track.artifacts.remove(where.owner, where.path, [_event(context, ArtifactRemoved(where.path), where)])
    except NotFound as error:
        raise missing(str(error)) from error


def _event(context: MlflowContext, data: Audit, where: ArtifactLocation) -> Event:
    return context.track.db.event(data, context.caller.user, where.project, where.owner)


def safe_path(path: str) -> str:
    """The normalised path. Raises Fault for a path that could lead elsewhere, however often it is quoted."""
    plain = path
    for _ in range(_QUOTED):
        plain = unquote(plain)
    if unquote(plain) != plain:
        raise Fault(f"Invalid path: it is quoted more than {_QUOTED} times. Send it as it is.")
    parts = plain.split("/")
    if "\\" in plain or "\0" in plain or "#" in plain or plain.startswith("/") or ".." in parts or ":" in parts[0]:
        raise Fault("Invalid path")
    return posixpath.normpath(path) if path else ""


def _file(context: MlflowContext, where: ArtifactLocation) -> Artifact:
    found = context.track.artifacts.get(where.owner, where.path)
    if found is None:
        raise missing(f"No such artifact: '{where.path}'")
    return found


def _level(context: MlflowContext, where: ArtifactLocation) -> list[dict[str, Any]]:
    try:
        found = context.track.artifacts.children(where.owner, where.path)
    except Invalid as error:
        raise Fault("Invalid path") from error
    return [
        {"path": one.path, "is_dir": True}
        if isinstance(one, Folder)
        else {"path": one.path, "is_dir": False, "file_size": one.bytes}
        for one in found
        if one.path != where.path  # for a file, MLflow lists nothing
    ]


def _check_ours(location: str | None) -> None:
    """Raises Fault for a location outside Muster.

    A client chose it, and the server would read it with its own rights.
    """
    if location and not location.startswith(OURS):
        raise Fault(
            f"The artifacts of this experiment are at '{location}', which this server does not read. "
            "Use the MLflow client there: it reads them itself."
        )
