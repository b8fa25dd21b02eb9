"""The artifact repository behind MLflow's own server: artifacts of the record, with the current caller's rights."""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import Any, Final

from mlflow.entities import FileInfo
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE
from mlflow.store.artifact.artifact_repo import ArtifactRepository
from mlflow.store.artifact.artifact_repository_registry import _artifact_repository_registry

from muster.track.mlflow import files
from muster.track.mlflow.context import current
from muster.track.mlflow.entities import ask, mlflow_errors

SCHEME: Final = "muster-record"


class RecordRepository(ArtifactRepository):  # type: ignore[misc]
    """Paths are those of the scheme `mlflow-artifacts:`; see `files.locate`."""

    def log_artifact(self, local_file: str, artifact_path: str | None = None) -> None:
        name = posixpath.join(artifact_path or "", Path(local_file).name)
        context = current()
        with mlflow_errors(), Path(local_file).open("rb") as stream:
            files.upload_file(context, files.locate_for_write(context, name), stream)

    def log_artifacts(self, local_dir: str, artifact_path: str | None = None) -> None:
        for path in sorted(Path(local_dir).rglob("*")):
            if path.is_file():
                below = path.relative_to(local_dir).parent.as_posix()
                self.log_artifact(str(path), posixpath.normpath(posixpath.join(artifact_path or "", below)))

    def list_artifacts(self, path: str | None = None) -> list[FileInfo]:
        found = ask(files.list_path, path=path or "")["files"]
        return [FileInfo(posixpath.join(path or "", one["path"]), one["is_dir"], one.get("file_size")) for one in found]

    def _download_file(self, remote_file_path: str, local_path: str) -> None:
        context = current()
        with mlflow_errors(), Path(local_path).open("wb") as target:
            for data in files.read(context, files.find(context, remote_file_path)):
                target.write(data)

    def download_artifacts(self, artifact_path: str, dst_path: str | None = None, **_: Any) -> str:
        """Downloads in this thread: the threads of MLflow's pool don't have the caller's context."""
        target = Path(dst_path or ".") / artifact_path
        below = self.list_artifacts(artifact_path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if not below:
            self._download_file(artifact_path, str(target))
        for one in below:
            self.download_artifacts(one.path, dst_path)
        return str(target)

    def delete_artifacts(self, artifact_path: str | None = None) -> None:
        with mlflow_errors():
            files.remove(current(), artifact_path or "")


def register() -> None:
    """Registers the repository under a scheme of this server's process, as the only one.

    So an address with any other scheme in MLflow's tables is never opened here.
    """
    registry: Any = _artifact_repository_registry
    registry._registry = {SCHEME: RecordRepository}
    registry.get_artifact_repository = _only_ours


def _only_ours(artifact_uri: str, tracking_uri: str | None = None, registry_uri: str | None = None) -> RecordRepository:
    if not artifact_uri.startswith(f"{SCHEME}:"):
        raise MlflowException(
            f"The artifacts are at '{artifact_uri}', which this server neither reads nor writes.",
            INVALID_PARAMETER_VALUE,
        )
    return RecordRepository(artifact_uri)
