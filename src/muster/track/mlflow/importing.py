"""Import from an MLflow server, an `mlruns` folder or a database, with the same ids where they are free.

An interrupted import is simply started again: what exists already is not sent, or not stored, a second time.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote

from muster.core.errors import Conflict, MusterError, NotFound
from muster.track.lineage import run_in
from muster.track.mlflow.muster_server import Muster
from muster.track.mlflow.names import double
from muster.track.mlflow.sources import Point, Source, View, fingerprint, open_source
from muster.track.model_rows import source_ref

Tell = Callable[[str, int], None]  # the current item, and the bytes of it just sent; -1: done
T = TypeVar("T")
_DONE: Final = "muster.imported"  # tag of a completely imported run: its fingerprint at that time
_METRICS: Final = 1000  # per call
_PARAMS: Final = 100
_API: Final = "/mlflow/api/2.0/mlflow/"
_FILES: Final = "/mlflow/api/2.0/mlflow-artifacts/artifacts/"


def import_all(
    to: Any, source: str, *, project: str = "default", dry_run: bool = False, tell: Tell = lambda name, size: None
) -> dict[str, Any]:
    """Imports all into `to`, a `muster.Client`.

    Returns {"experiments", "runs", "points", "artifacts", ..., "problems"}.
    """
    found = open_source(source)
    work = _Import(Muster(to._transport), found, project, source, tell)
    for experiment in found.experiments():
        work.experiment(experiment, dry_run)
    for model in _models(found, work.problems):
        work.model(model, dry_run)
    return {**work.counts, "problems": work.problems}


class _Import:
    def __init__(self, to: Muster, source: Source, project: str, location: str, tell: Tell) -> None:
        self._to, self._source, self._project, self._location, self._tell = to, source, project, location, tell
        self.counts = dict.fromkeys(
            ("experiments", "runs", "unchanged", "points", "artifacts", "models", "versions"), 0
        )
        self.problems: list[str] = []

    def experiment(self, one: View, dry_run: bool) -> None:
        self.counts["experiments"] += 1
        number = "" if dry_run else self._experiment(one)
        for run in self._source.runs(one["experiment_id"]):
            name = run["info"].get("run_name") or run["info"]["run_id"]
            self.counts["runs"] += 1
            if not dry_run:
                try:
                    self._run(run, number, name)
                except MusterError as error:
                    self.problems.append(f"{name}: {error}")
            self._tell(name, -1)

    def model(self, one: View, dry_run: bool) -> None:
        self.counts["models"] += 1
        self.counts["versions"] += len(one.get("versions") or ())
        if dry_run:
            return
        try:
            self._model(one)
        except MusterError as error:
            self.problems.append(f"model {one['name']}: {error}")

    def _experiment(self, one: View) -> str:
        """Finds or creates the experiment by name in the project. MLflow's Default becomes the project's default."""
        name = one["name"]
        if self._project != "default":
            name = f"{self._project}/{'default' if name == 'Default' else name}"
        try:
            found = self._call("GET", "experiments/get-by-name", params={"experiment_name": name})
            return str(found["experiment"]["experiment_id"])
        except NotFound:
            made = self._call("POST", "experiments/create", {"name": name, "tags": one.get("tags") or []})
            return str(made["experiment_id"])

    def _run(self, run: View, experiment: str, name: str) -> None:
        info, data = run["info"], run["data"]
        mark = fingerprint(run)
        here = self._begun(info, data, experiment)
        if _values(here["data"].get("tags")).get(_DONE) == mark:
            self.counts["unchanged"] += 1
            return
        number = here["info"]["run_id"]
        tags = {key: value for key, value in _values(data.get("tags")).items() if key != "mlflow.runName"}
        self._log(number, params=_values(data.get("params")), tags=tags)
        for metric in data.get("metrics") or ():
            self._points(number, metric["key"], self._source.history(info["run_id"], metric["key"]), name)
        self._artifacts(run, here, name)
        self._call("POST", "runs/update", _ended(number, info))
        self._log(number, params={}, tags={_DONE: mark})
        if info.get("lifecycle_stage") == "deleted":
            self._call("POST", "runs/delete", {"run_id": number})

    def _begun(self, info: View, data: View, experiment: str) -> View:
        """The run in Muster, created if needed: with the same id, unless something else has it."""
        try:
            found = self._call("GET", "runs/get", params={"run_id": info["run_id"]})["run"]
            if found["info"]["experiment_id"] == experiment:
                return _view(found)
        except NotFound:
            pass
        body = {
            "experiment_id": experiment,
            "start_time": info.get("start_time"),
            "run_name": info.get("run_name") or _values(data.get("tags")).get("mlflow.runName"),
            "user_id": info.get("user_id") or None,
            "muster_id": info["run_id"],
            "muster_origin": {"place": self._location, "key": info["run_id"]},
        }
        try:
            return _view(self._call("POST", "runs/create", body)["run"])
        except Conflict:
            return _view(self._call("POST", "runs/create", {**body, "muster_id": None})["run"])

    def _log(self, run: str, params: Mapping[str, str], tags: Mapping[str, str]) -> None:
        for part in _parts([{"key": key, "value": value} for key, value in params.items()], _PARAMS):
            self._call("POST", "runs/log-batch", {"run_id": run, "params": part})
        for part in _parts([{"key": key, "value": value} for key, value in tags.items()], _PARAMS):
            self._call("POST", "runs/log-batch", {"run_id": run, "tags": part})

    def _points(self, run: str, key: str, points: Sequence[Point], name: str) -> None:
        for part in _parts(points, _METRICS):
            metrics = [
                {"key": key, "timestamp": stamp, "step": step, "value": double(value)} for stamp, step, value in part
            ]
            self._call("POST", "runs/log-batch", {"run_id": run, "metrics": metrics})
            self.counts["points"] += len(part)
            self._tell(name, 24 * len(part))

    def _artifacts(self, run: View, here: View, name: str) -> None:
        number = here["info"]["run_id"]
        known = {
            one["path"] for one in self._to.call("GET", f"/v1/runs/{number}/artifacts", params={"flat": True})["files"]
        }
        for path, content in self._source.artifacts(run):
            if path not in known:
                location = f"{here['info']['experiment_id']}/{number}/artifacts/{path}"
                self._to.upload(_FILES + quote(location), content, mimetypes.guess_type(path)[0] or "")
                size = content.stat().st_size if isinstance(content, Path) else len(content)
                self._tell(name, size)
            self.counts["artifacts"] += 1

    def _model(self, one: View) -> None:
        name, tags = one["name"], _values(one.get("tags"))
        try:
            there = self._to.call("GET", f"/v1/models/{quote(name, safe='')}")
        except NotFound:
            body = {"name": name, "project": self._project, "description": one.get("description") or "", "tags": tags}
            self._to.call("POST", "/v1/models", body)
            there = {"versions": []}
        known = {int(version["version"]) for version in there.get("versions") or ()}
        for version in one.get("versions") or ():
            if int(version["version"]) not in known:
                self._version(name, version)
        for alias in one.get("aliases") or ():
            path = f"/v1/models/{quote(name, safe='')}/aliases/{quote(alias['alias'], safe='')}"
            self._to.call("PUT", path, {"version": int(alias["version"])})

    def _version(self, name: str, version: View) -> None:
        body = {
            "source": self._origin(version.get("source") or ""),
            "run": self._known(version.get("run_id")),
            "description": version.get("description") or "",
            "tags": _values(version.get("tags")),
        }
        path = f"/v1/models/{quote(name, safe='')}/versions"
        made = self._to.call("POST", path, body)
        stage = str(version.get("current_stage") or "None").lower()
        if stage != "none":
            why = f"It was there when it was imported from {self._location}."
            self._to.call("POST", f"{path}/{made['version']}/stage", {"stage": stage, "why": why, "force": True})

    def _origin(self, source: str) -> str:
        """The source of a version. If the run isn't in Muster, it is only a text."""
        ref = source_ref(source)
        return source if ref is None or self._known(run_in(ref)) else f"imported:{source}"

    def _known(self, run: str | None) -> str | None:
        """The id of the run if it is in Muster."""
        try:
            return str(self._call("GET", "runs/get", params={"run_id": run})["run"]["info"]["run_id"]) if run else None
        except NotFound:
            return None

    def _call(self, method: str, path: str, body: Any = None, params: Any = None) -> Any:
        return self._to.call(method, _API + path, body, params)


def _models(source: Source, problems: list[str]) -> list[View]:
    try:
        return source.models()
    except MusterError as error:  # old servers and databases have no registry
        problems.append(f"registry: {error}")
        return []


def _ended(run: str, info: View) -> View:
    body = {"run_id": run, "status": info.get("status") or "FINISHED"}
    return {**body, "end_time": info["end_time"]} if info.get("end_time") else body


def _values(items: Any) -> dict[str, str]:
    return {str(one["key"]): str(one.get("value") or "") for one in items or ()}


def _view(found: Any) -> View:
    view: View = found
    return view


def _parts(items: Sequence[T], size: int) -> Iterator[list[T]]:
    return (list(items[at : at + size]) for at in range(0, len(items), size))
