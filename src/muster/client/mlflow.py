"""The scheme `muster://` for MLflow's client: finds the server and the token in the same way as `muster.Client`.

`muster:` is the server of this machine or of MUSTER_URL, `muster://HOST:PORT` another one. `mlflow_plugin` has the
functions that MLflow's entry points name; nothing else in Muster imports this module.
"""

from __future__ import annotations

import json
import posixpath
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mlflow.entities import (
    DatasetInput,
    FileInfo,
    LoggedModelOutput,
    Metric,
    Param,
    Run,
    RunData,
    RunInfo,
    RunInputs,
    RunOutputs,
    RunTag,
    ViewType,
)
from mlflow.protos import service_pb2
from mlflow.store.artifact.mlflow_artifacts_repo import MlflowArtifactsRepository
from mlflow.store.model_registry.rest_store import RestStore as RegistryStore
from mlflow.store.tracking.rest_store import RestStore
from mlflow.tracking._tracking_service import utils as tracking_utils
from mlflow.utils.proto_json_utils import parse_dict
from mlflow.utils.rest_utils import MlflowHostCreds, http_request, verify_rest_response

from muster.client.target import Target, default_home, find_target, server_of

_SCHEME = "muster"
_ARTIFACTS = "/api/2.0/mlflow-artifacts/artifacts"
_SEARCH = "/api/2.0/mlflow/runs/search"
_HISTORY = "/api/2.0/mlflow/metrics/get-history"
_LANES = 8  # uploads at once
_VIEWS = {ViewType.ACTIVE_ONLY: "ACTIVE_ONLY", ViewType.DELETED_ONLY: "DELETED_ONLY", ViewType.ALL: "ALL"}


def tracking_store(store_uri: str, artifact_uri: str | None = None) -> MusterStore:
    return MusterStore(partial(credentials, store_uri))


def registry_store(store_uri: str, tracking_uri: str | None = None) -> RegistryStore:
    return RegistryStore(partial(credentials, store_uri))


def credentials(uri: str) -> MlflowHostCreds:
    target = _target(uri)
    return MlflowHostCreds(f"{target.urls[0]}/mlflow", token=target.token)


class MusterStore(RestStore):  # type: ignore[misc]
    """MLflow's own REST client, except that large responses are converted from JSON to its classes without protobuf."""

    def _search_runs(
        self,
        experiment_ids: Any,
        filter_string: Any,
        run_view_type: Any,
        max_results: Any,
        order_by: Any,
        page_token: Any,
    ) -> tuple[list[Run], str | None]:
        body = {
            "experiment_ids": [str(one) for one in experiment_ids],
            "filter": filter_string,
            "run_view_type": _VIEWS[run_view_type],
            "max_results": max_results,
            "order_by": list(order_by or ()),
            "page_token": page_token,
        }
        given = {name: value for name, value in body.items() if value is not None}
        answer = verify_rest_response(http_request(self.get_host_creds(), _SEARCH, "POST", json=given), _SEARCH)
        found = json.loads(answer.content)
        return [_run(one) for one in found.get("runs", ())], found.get("next_page_token")

    def get_metric_history(
        self, run_id: str, metric_key: str, max_results: int | None = None, page_token: str | None = None
    ) -> Any:
        """Returns all points in one response."""
        if max_results is not None or page_token is not None:
            return super().get_metric_history(run_id, metric_key, max_results=max_results, page_token=page_token)
        asked = {"run_id": run_id, "metric_key": metric_key}
        answer = verify_rest_response(http_request(self.get_host_creds(), _HISTORY, "GET", params=asked), _HISTORY)
        return [_metric(one) for one in json.loads(answer.content).get("metrics", ())]


class MusterArtifacts(MlflowArtifactsRepository):  # type: ignore[misc]
    """The proxied artifacts of `mlflow-artifacts:`. MLflow itself supports them only for http addresses."""

    def __init__(self, artifact_uri: str, tracking_uri: str | None = None, registry_uri: str | None = None) -> None:
        effective = tracking_uri or tracking_utils.get_tracking_uri()
        self._ours = _is_ours(effective)
        if self._ours:
            target = _target(effective)
            self._token, effective = target.token, f"{target.urls[0]}/mlflow"
        super().__init__(artifact_uri, effective, registry_uri)

    @property
    def _host_creds(self) -> MlflowHostCreds:
        return MlflowHostCreds(self.artifact_uri, token=self._token) if self._ours else super()._host_creds

    def log_artifacts(self, local_dir: str, artifact_path: str | None = None) -> None:
        """Uploads several files at once: on the server they share one flush."""
        if not self._ours:
            super().log_artifacts(local_dir, artifact_path)
            return
        files = [path for path in sorted(Path(local_dir).rglob("*")) if path.is_file()]
        folders = [posixpath.join(artifact_path or "", path.relative_to(local_dir).parent.as_posix()) for path in files]
        with ThreadPoolExecutor(_LANES, "muster-upload") as lanes:
            for _ in lanes.map(self.log_artifact, map(str, files), map(_folder, folders)):
                pass  # raises what an upload raised

    def list_artifacts(self, path: str | None = None) -> Any:
        if not self._ours:
            return super().list_artifacts(path)
        return _listed(self, path)

    def delete_artifacts(self, artifact_path: str | None = None) -> None:
        if not self._ours:
            super().delete_artifacts(artifact_path)
            return
        name = f"/{artifact_path}" if artifact_path else "/"
        verify_rest_response(http_request(self._host_creds, name, "DELETE"), name)

    @property
    def _artifact_server_host_creds(self) -> MlflowHostCreds:
        found: MlflowHostCreds = super()._artifact_server_host_creds
        return MlflowHostCreds(found.host, token=self._token) if self._ours else found


def _folder(path: str) -> str | None:
    normal = posixpath.normpath(path)
    return None if normal == "." else normal


def _is_ours(uri: str) -> bool:
    return urlsplit(str(uri)).scheme == _SCHEME


def _target(uri: str) -> Target:
    return find_target(server_of(str(uri)), None, Path(default_home()))


def _listed(repository: MusterArtifacts, path: str | None) -> list[FileInfo]:
    """The contents of a folder; empty for a path that is a file."""
    service, _, root = repository.artifact_uri.partition(_ARTIFACTS)
    asked = posixpath.join(root.strip("/"), path or "").rstrip("/")
    creds = MlflowHostCreds(service, token=repository._token)
    answer = verify_rest_response(http_request(creds, _ARTIFACTS, "GET", params={"path": asked}), _ARTIFACTS)
    return [
        FileInfo(posixpath.join(path or "", one["path"]), one["is_dir"], one.get("file_size"))
        for one in json.loads(answer.content).get("files", ())
    ]


def _run(view: dict[str, Any]) -> Run:
    info, data, inputs = view["info"], view["data"], view.get("inputs", {})
    return Run(
        RunInfo(
            run_id=info["run_id"],
            experiment_id=info["experiment_id"],
            user_id=info["user_id"],
            status=info["status"],
            start_time=info["start_time"],
            end_time=info.get("end_time"),
            lifecycle_stage=info["lifecycle_stage"],
            artifact_uri=info["artifact_uri"],
            run_name=info["run_name"],
        ),
        RunData(
            metrics=[_metric(one) for one in data.get("metrics", ())],
            params=[Param(one["key"], one["value"]) for one in data.get("params", ())],
            tags=[RunTag(one["key"], one["value"]) for one in data.get("tags", ())],
        ),
        RunInputs([_dataset(one) for one in inputs.get("dataset_inputs", ())], []),
        RunOutputs(
            [
                LoggedModelOutput(one["model_id"], one["step"])
                for one in view.get("outputs", {}).get("model_outputs", ())
            ]
        ),
    )


def _metric(view: dict[str, Any]) -> Metric:
    """A double that JSON can't represent as a number is sent as text."""
    return Metric(view["key"], float(view["value"]), view["timestamp"], view["step"])


def _dataset(view: dict[str, Any]) -> DatasetInput:
    message = service_pb2.DatasetInput()
    parse_dict(view, message)
    return DatasetInput.from_proto(message)
