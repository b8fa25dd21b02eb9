"""Export to MLflow: a folder `mlruns` as its file store has it, or another server by its own API."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import yaml

from muster.core.errors import Unavailable
from muster.track.exporters.base import ExportedRun, Facts, Series, Written, file_name
from muster.track.mlflow.names import RUN_NAME, STATUS

_NUMBERS: Final = {"RUNNING": 1, "SCHEDULED": 2, "FINISHED": 3, "FAILED": 4, "KILLED": 5}
_BATCH: Final = 1000
_PARAMS: Final = 100
_EXPERIMENT: Final = "1"


class MlrunsExporter:
    """One experiment, `Muster`, with the runs in it. Older attempts' points that were reported anew are left out."""

    about = "a folder `mlruns` of MLflow's file store"

    def export(self, runs: Iterable[ExportedRun], folder: Path, superseded: bool = False) -> Iterator[Written]:
        root = folder / _EXPERIMENT
        root.mkdir(parents=True, exist_ok=True)
        place = root.absolute().as_uri()
        _write_yaml(
            root / "meta.yaml",
            {"artifact_location": place, "experiment_id": _EXPERIMENT, "lifecycle_stage": "active", "name": "Muster"},
        )
        for run in runs:
            yield _write_run(run, root)


def export_server(
    runs: Iterable[ExportedRun], url: str, *, experiment: str = "Muster", headers: Mapping[str, str] | None = None
) -> Iterator[tuple[str, str]]:
    """Sends runs to an MLflow server; each run's id here and there. `headers` let one in, where it must be."""
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
            {"key": name, "timestamp": round(time * 1000), "step": step, "value": _double(value)}
            for step, time, value in _points(series)
        ]
        for at in range(0, len(points), _BATCH):
            _post(http, "runs/log-batch", {"run_id": run, "metrics": points[at : at + _BATCH]})
    status = STATUS.get(facts.phase, "FINISHED")
    ended = {"end_time": round(facts.ended_at * 1000)} if facts.ended_at else {}
    _post(http, "runs/update", {"run_id": run, "status": status, **ended})


def _write_run(run: ExportedRun, root: Path) -> Written:
    facts = run.facts
    name = file_name(facts.id)
    folder = root / name
    for part in ("params", "tags", "metrics", "artifacts"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    meta: dict[str, Any] = {
        "artifact_uri": (folder / "artifacts").absolute().as_uri(),
        "end_time": round(facts.ended_at * 1000) if facts.ended_at else None,
        "entry_point_name": "",
        "experiment_id": _EXPERIMENT,
        "lifecycle_stage": "active",
        "run_id": name,
        "run_name": facts.name or facts.id,
        "run_uuid": name,
        "source_name": "",
        "source_type": 4,
        "source_version": "",
        "start_time": _millis(facts),
        "status": _NUMBERS[STATUS.get(facts.phase, "FINISHED")],
        "tags": [],
        "user_id": facts.user,
    }
    _write_yaml(folder / "meta.yaml", meta)
    tags = {**facts.tags, RUN_NAME: facts.name or facts.id, "muster.run": facts.id, "mlflow.user": facts.user}
    for kind, values in (("params", facts.params), ("tags", tags)):
        for key, value in values.items():
            _put(folder / kind / _safe(key), str(value))
    points = 0
    for series in run.series():
        lines = [f"{round(time * 1000)} {value!r} {step}\n" for step, time, value in _points(series)]
        _put(folder / "metrics" / _metric_name(series), "".join(lines))
        points += len(lines)
    media = 0
    for medium in run.media():
        path = folder / "artifacts" / "media" / f"{file_name(medium.name)}-{medium.step}-{medium.rank}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(medium.content if medium.content is not None else json.dumps(medium.data).encode())
        media += 1
    return Written(facts.id, folder, points, media)


def _points(series: Series) -> Iterator[tuple[int, float, float]]:
    return zip(series.steps.tolist(), series.times.tolist(), series.values.tolist(), strict=True)


def _metric_name(series: Series) -> str:
    """Every rank's own series beside the run's."""
    return _safe(series.name if series.rank is None else f"rank_{series.rank}/{series.name}")


def _safe(name: str) -> str:
    """A name that MLflow takes: it keeps names as paths."""
    parts = [part for part in name.split("/") if part not in ("", ".", "..")]
    kept = "".join(sign if sign.isalnum() or sign in "/_.- :" else "_" for sign in "/".join(parts))
    return kept[:250] or "_"


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _write_yaml(path: Path, values: Mapping[str, Any]) -> None:
    path.write_text(yaml.safe_dump(dict(values)))


def _millis(facts: Facts) -> int:
    return round((facts.started_at or facts.created_at) * 1000)


def _double(value: float) -> float | str:
    if value != value:
        return "NaN"
    return value if value not in (float("inf"), float("-inf")) else "Infinity" if value > 0 else "-Infinity"


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
