"""Export to MLflow: to a folder `mlruns` in the format of its file store, or to another server with its REST API."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import yaml

from muster.core.errors import Invalid, Unavailable
from muster.track.exporters.base import ExportedRun, Facts, Medium, Series, Written, file_name
from muster.track.mlflow.names import RUN_NAME, STATUS, double

_NUMBERS: Final = {"RUNNING": 1, "SCHEDULED": 2, "FINISHED": 3, "FAILED": 4, "KILLED": 5}
_BATCH: Final = 1000
_PARAMS: Final = 100
_NAME: Final = re.compile(r"[A-Za-z0-9][\w\-]{0,63}")  # of an MLflow experiment


class MlrunsExporter:
    """Exports to MLflow's file store. The folder is one experiment (`mlruns/NAME`), its parent is the store to open."""

    about = "an experiment of MLflow's file store: its folder, in the folder that is the store"

    def export(self, runs: Iterable[ExportedRun], folder: Path, superseded: bool = False) -> Iterator[Written]:
        name = folder.absolute().name
        if not _NAME.fullmatch(name):
            raise Invalid(f"{folder} can't be an experiment of MLflow's.", "Name it as in mlruns/NAME, without signs.")
        location = folder.absolute().as_uri()
        meta = {"artifact_location": location, "experiment_id": name, "lifecycle_stage": "active", "name": name}
        for run in runs:
            yield _write_run(run, folder, name, superseded)
            _write_yaml(folder / "meta.yaml", meta)


def export_server(
    runs: Iterable[ExportedRun], url: str, *, experiment: str = "Muster", headers: Mapping[str, str] | None = None
) -> Iterator[tuple[str, str]]:
    """Sends runs to an MLflow server. Yields each run's id here and there. `headers` are for authentication."""
    with httpx.Client(base_url=f"{url.rstrip('/')}/api/2.0/mlflow/", headers=dict(headers or {}), timeout=60) as http:
        number = _experiment(http, experiment)
        for run in runs:
            facts = run.facts
            tags = [{"key": "muster.run", "value": facts.id}, {"key": "mlflow.user", "value": facts.user}]
            body = {
                "experiment_id": number,
                "start_time": _millis(facts),
                "run_name": facts.name or facts.id,
                "tags": tags,
            }
            made = _post(http, "runs/create", body)["run"]["info"]["run_id"]
            _send(http, made, run)
            yield facts.id, str(made)


def _send(http: httpx.Client, run: str, given: ExportedRun) -> None:
    facts = given.facts
    for kind, values in (("params", facts.params), ("tags", facts.tags)):
        items = [{"key": _safe(key), "value": value} for key, value in values.items() if key != RUN_NAME]
        for at in range(0, len(items), _PARAMS):
            _post(http, "runs/log-batch", {"run_id": run, kind: items[at : at + _PARAMS]})
    for series in given.series():
        name = _metric_name(series)
        points = [
            {"key": name, "timestamp": round(time * 1000), "step": step, "value": double(value)}
            for step, time, value in _points(series)
        ]
        for at in range(0, len(points), _BATCH):
            _post(http, "runs/log-batch", {"run_id": run, "metrics": points[at : at + _BATCH]})
    status = STATUS.get(facts.phase, "FINISHED")
    ended = {"end_time": round(facts.ended_at * 1000)} if facts.ended_at else {}
    _post(http, "runs/update", {"run_id": run, "status": status, **ended})


def _write_run(run: ExportedRun, root: Path, experiment: str, superseded: bool) -> Written:
    """Writes a run's folder. It is complete when it gets its name."""
    facts = run.facts
    name = file_name(facts.id)
    draft, folder = root / f".{name[:200]}.part", root / name
    shutil.rmtree(draft, ignore_errors=True)
    try:
        for part in ("params", "tags", "metrics", "artifacts"):
            (draft / part).mkdir(parents=True)
        _write_yaml(draft / "meta.yaml", _meta(facts, folder, experiment))
        tags = {**facts.tags, RUN_NAME: facts.name or facts.id, "muster.run": facts.id, "mlflow.user": facts.user}
        for kind, values in (("params", facts.params), ("tags", tags)):
            for key, value in values.items():
                _put(draft / kind, _safe(key), str(value))
        points = sum(_write_series(series, draft / "metrics") for series in run.series(superseded))
        media = sum(_write_medium(medium, draft / "artifacts" / "media") for medium in run.media())
        shutil.rmtree(folder, ignore_errors=True)
        draft.rename(folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return Written(facts.id, folder, points, media)


def _meta(facts: Facts, folder: Path, experiment: str) -> dict[str, Any]:
    return {
        "artifact_uri": (folder / "artifacts").absolute().as_uri(),
        "end_time": round(facts.ended_at * 1000) if facts.ended_at else None,
        "entry_point_name": "",
        "experiment_id": experiment,
        "lifecycle_stage": "active",
        "run_id": folder.name,
        "run_name": facts.name or facts.id,
        "run_uuid": folder.name,
        "source_name": "",
        "source_type": 4,
        "source_version": "",
        "start_time": _millis(facts),
        "status": _NUMBERS[STATUS.get(facts.phase, "FINISHED")],
        "tags": [],
        "user_id": facts.user,
    }


def _write_series(series: Series, folder: Path) -> int:
    lines = [f"{round(time * 1000)} {value!r} {step}\n" for step, time, value in _points(series)]
    if lines:
        _put(folder, _metric_name(series), "".join(lines))
    return len(lines)


def _write_medium(medium: Medium, folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{file_name(medium.name)}-{medium.step}-{medium.attempt}-{medium.rank}"
    path.write_bytes(medium.content if medium.content is not None else json.dumps(medium.data).encode())
    return 1


def _points(series: Series) -> Iterator[tuple[int, float, float]]:
    return zip(series.steps.tolist(), series.times.tolist(), series.values.tolist(), strict=True)


def _metric_name(series: Series) -> str:
    """The metric's name in MLflow: a rank's own series and superseded points get a prefix."""
    name = series.name if series.rank is None else f"rank_{series.rank}/{series.name}"
    return _safe(f"superseded/{name}" if series.superseded else name)


def _safe(name: str) -> str:
    """A name that MLflow accepts: it stores names as paths."""
    parts = [part for part in name.split("/") if part not in ("", ".", "..")]
    kept = "".join(sign if sign.isalnum() or sign in "/_.- :" else "_" for sign in "/".join(parts))
    return kept[:250] or "_"


def _put(folder: Path, name: str, text: str) -> None:
    """Writes a file. If the name is also a folder of other names, its slashes become underscores."""
    for path in (folder / name, folder / f"{name.replace('/', '_')}_"):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        except (NotADirectoryError, IsADirectoryError, FileExistsError):
            continue
        return


def _write_yaml(path: Path, values: Mapping[str, Any]) -> None:
    path.write_text(yaml.safe_dump(dict(values)))


def _millis(facts: Facts) -> int:
    return round((facts.started_at or facts.created_at) * 1000)


def _experiment(http: httpx.Client, name: str) -> str:
    answer = http.get("experiments/get-by-name", params={"experiment_name": name})
    if answer.is_success:
        return str(answer.json()["experiment"]["experiment_id"])
    return str(_post(http, "experiments/create", {"name": name})["experiment_id"])


def _post(http: httpx.Client, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
    try:
        answer = http.post(path, json=body)
    except httpx.TransportError as error:
        raise Unavailable(f"No MLflow server answers at {http.base_url} ({error}).", "Check the address.") from error
    if not answer.is_success:
        text = answer.text[:300]
        raise Unavailable(f"{http.base_url} answered {answer.status_code} to {path}: {text}", "Is it MLflow's server?")
    found: dict[str, Any] = answer.json()
    return found
