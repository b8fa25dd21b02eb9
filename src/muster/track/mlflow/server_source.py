"""An MLflow server as an import source, read by its REST API. MLflow need not be installed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx

from muster.core.errors import Unavailable

View = dict[str, Any]
Point = tuple[int, int, float]  # time in milliseconds, step, value
_PAGE: Final = 1000
_TIMEOUT: Final = 60.0  # seconds to wait for an answer


class ServerSource:
    """A live server. MLFLOW_TRACKING_TOKEN, or _USERNAME and _PASSWORD, are the credentials."""

    def __init__(self, url: str) -> None:
        self.url = url

    def experiments(self) -> list[View]:
        return self._pages("experiments/search", {"view_type": "ALL"}, "experiments")

    def runs(self, experiment: str) -> Iterator[View]:
        yield from self._pages("runs/search", {"experiment_ids": [experiment], "run_view_type": "ALL"}, "runs")

    def history(self, run: str, key: str) -> list[Point]:
        found: list[Point] = []
        asked: View = {"run_id": run, "metric_key": key, "max_results": 25_000}
        while True:
            answer = self._call("GET", "metrics/get-history", params=asked)
            found += [(one["timestamp"], one.get("step", 0), float(one["value"])) for one in answer.get("metrics", ())]
            if not answer.get("next_page_token"):
                return found
            asked["page_token"] = answer["next_page_token"]

    def artifacts(self, run: View, path: str = "") -> Iterator[tuple[str, bytes | Path]]:
        number = run["info"]["run_id"]
        asked = {"run_id": number, **({"path": path} if path else {})}
        for one in self._call("GET", "artifacts/list", params=asked).get("files", ()):
            if one.get("is_dir"):
                yield from self.artifacts(run, one["path"])
                continue
            with self._http() as http:
                answer = http.get(f"{self.url}/get-artifact", params={"run_id": number, "path": one["path"]})
            if answer.is_success:
                yield one["path"], answer.content

    def models(self) -> list[View]:
        found = self._pages("registered-models/search", {"max_results": 100}, "registered_models", get=True)
        for one in found:
            asked = {"filter": f"name='{one['name']}'", "max_results": 1000}
            versions = self._pages("model-versions/search", asked, "model_versions", get=True)
            one["versions"] = sorted(versions, key=lambda version: int(version["version"]))
        return found

    def _pages(self, path: str, body: View, what: str, get: bool = False) -> list[View]:
        found: list[View] = []
        asked = {"max_results": _PAGE, **body}
        while True:
            answer = self._call("GET", path, params=asked) if get else self._call("POST", path, json=asked)
            found += answer.get(what, ())
            if not answer.get("next_page_token"):
                return found
            asked["page_token"] = answer["next_page_token"]

    def _call(self, method: str, path: str, **parts: Any) -> View:
        try:
            with self._http() as http:
                answer = http.request(method, f"{self.url}/api/2.0/mlflow/{path}", **parts)
        except httpx.HTTPError as error:
            raise Unavailable(f"No MLflow server answers at {self.url} ({error}).", "Check the address.") from error
        if not answer.is_success:
            text = answer.text[:300]
            raise Unavailable(f"{self.url} answered {answer.status_code} to {path}: {text}", "Is it MLflow's server?")
        found: View = answer.json()
        return found

    def _http(self) -> httpx.Client:
        token, user = os.environ.get("MLFLOW_TRACKING_TOKEN"), os.environ.get("MLFLOW_TRACKING_USERNAME")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        auth = (user, os.environ.get("MLFLOW_TRACKING_PASSWORD", "")) if user and not token else None
        return httpx.Client(headers=headers, auth=auth, timeout=_TIMEOUT)
