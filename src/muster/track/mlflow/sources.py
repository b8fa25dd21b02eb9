"""Import sources: a folder `mlruns` or MLflow's SQLite database, both read directly, or a server.

Runs have the format of MLflow's JSON. MLflow need not be installed.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

import yaml

from muster.core.errors import Invalid, NotFound
from muster.track.mlflow.server_source import Point, ServerSource, View

_STATES: Final = {1: "RUNNING", 2: "SCHEDULED", 3: "FINISHED", 4: "FAILED", 5: "KILLED"}


__all__ = ["DatabaseSource", "FolderSource", "Point", "ServerSource", "Source", "View", "fingerprint", "open_source"]


class Source(Protocol):
    def experiments(self) -> list[View]:
        """{experiment_id, name, tags, lifecycle_stage}, including deleted ones."""

    def runs(self, experiment: str) -> Iterator[View]:
        """{info, data}, including deleted ones."""

    def history(self, run: str, key: str) -> list[Point]: ...

    def artifacts(self, run: View) -> Iterator[tuple[str, bytes | Path]]:
        """Paths and contents; empty if they can't be reached from here."""

    def models(self) -> list[View]:
        """{name, description, tags, versions: [...], aliases}, versions in order."""


def open_source(where: str) -> Source:
    if urlsplit(where).scheme in ("http", "https"):
        return ServerSource(where.rstrip("/"))
    path = Path(where.removeprefix("sqlite:///").removeprefix("file://")).expanduser()
    if path.is_file():
        return DatabaseSource(path)
    if path.is_dir() and "experiment_id" in _yaml(path / "meta.yaml"):
        return FolderSource(path.absolute().parent, path.absolute().name)
    if path.is_dir():
        return FolderSource(path / "mlruns" if (path / "mlruns").is_dir() else path)
    raise NotFound(f"{where} is neither a server's address, a folder nor a file.", "Name mlruns, mlflow.db or a URL.")


class FolderSource:
    """A folder `mlruns` of MLflow's file store, or only its experiments whose folders match `which`."""

    def __init__(self, folder: Path, which: str = "*") -> None:
        self.folder, self._which = folder, which

    def experiments(self) -> list[View]:
        found = []
        for folder in (self.folder, self.folder / ".trash"):
            for path in sorted(folder.glob(f"{self._which}/meta.yaml")):
                meta = _yaml(path)
                if "experiment_id" in meta:
                    found.append(
                        {**meta, "experiment_id": str(meta["experiment_id"]), "tags": _entries(path.parent, "tags")}
                    )
        if not found:
            raise Invalid(f"{self.folder} holds no experiments of MLflow's.", "Name the folder `mlruns` itself.")
        return found

    def runs(self, experiment: str) -> Iterator[View]:
        for folder in (self.folder, self.folder / ".trash"):
            for path in sorted(folder.glob(f"{experiment}/*/meta.yaml")):
                meta = _yaml(path)
                if "run_id" in meta or "run_uuid" in meta:
                    yield self._run(path.parent, meta)

    def history(self, run: str, key: str) -> list[Point]:
        path = next(self.folder.glob(f"*/{run}/metrics/{key}"), None)
        return [] if path is None else [_line(line) for line in path.read_text().splitlines() if line.strip()]

    def artifacts(self, run: View) -> Iterator[tuple[str, bytes | Path]]:
        yield from _files(self.folder / run["info"]["experiment_id"] / run["info"]["run_id"] / "artifacts")

    def models(self) -> list[View]:
        return [_model(path) for path in sorted((self.folder / "models").glob("*/meta.yaml"))]

    def _run(self, folder: Path, meta: View) -> View:
        number = str(meta.get("run_id") or meta["run_uuid"])
        status = meta.get("status", 3)
        info = {
            **{name: meta.get(name) for name in ("start_time", "end_time", "lifecycle_stage", "artifact_uri")},
            "run_id": number,
            "experiment_id": folder.parent.name,
            "user_id": meta.get("user_id") or "",
            "run_name": meta.get("run_name") or "",
            "status": _STATES.get(status, str(status)) if isinstance(status, int) else status,
        }
        keys = [path.relative_to(folder / "metrics").as_posix() for path in _walk(folder / "metrics")]
        data = {"params": _entries(folder, "params"), "tags": _entries(folder, "tags")}
        return {"info": info, "data": {**data, "metrics": [{"key": key} for key in keys]}}


class DatabaseSource:
    """MLflow's SQLite database, opened read-only."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def experiments(self) -> list[View]:
        rows = self._rows("SELECT experiment_id, name, lifecycle_stage FROM experiments ORDER BY experiment_id")
        for row in rows:
            asked = "SELECT key, value FROM experiment_tags WHERE experiment_id = ?"
            row["tags"] = self._rows(asked, row["experiment_id"])
            row["experiment_id"] = str(row["experiment_id"])
        return rows

    def runs(self, experiment: str) -> Iterator[View]:
        columns = "run_uuid AS run_id, experiment_id, name AS run_name, user_id, status, start_time, end_time"
        asked = f"SELECT {columns}, lifecycle_stage, artifact_uri FROM runs WHERE experiment_id = ?"  # noqa: S608
        for info in self._rows(asked, int(experiment)):
            number = info["run_id"]
            yield {
                "info": {**info, "experiment_id": str(info["experiment_id"])},
                "data": {
                    "params": self._rows("SELECT key, value FROM params WHERE run_uuid = ?", number),
                    "tags": self._rows("SELECT key, value FROM tags WHERE run_uuid = ?", number),
                    "metrics": self._rows("SELECT key FROM latest_metrics WHERE run_uuid = ?", number),
                },
            }

    def history(self, run: str, key: str) -> list[Point]:
        asked = "SELECT timestamp, step, value, is_nan FROM metrics WHERE run_uuid = ? AND key = ?"
        rows = self._rows(asked, run, key)
        return [(row["timestamp"], row["step"], float("nan") if row["is_nan"] else row["value"]) for row in rows]

    def artifacts(self, run: View) -> Iterator[tuple[str, bytes | Path]]:
        folder = _local(run["info"].get("artifact_uri") or "")
        if folder is not None:
            yield from _files(folder)

    def models(self) -> list[View]:
        found = self._rows("SELECT name, description FROM registered_models ORDER BY name")
        for one in found:
            name = one["name"]
            one["tags"] = self._rows("SELECT key, value FROM registered_model_tags WHERE name = ?", name)
            one["aliases"] = self._rows("SELECT alias, version FROM registered_model_aliases WHERE name = ?", name)
            asked = (
                "SELECT version, source, run_id, current_stage, description, user_id FROM model_versions "
                "WHERE name = ? AND current_stage != 'Deleted_Internal' ORDER BY version"
            )
            one["versions"] = self._rows(asked, name)
            for version in one["versions"]:
                tags = "SELECT key, value FROM model_version_tags WHERE name = ? AND version = ?"
                version["tags"] = self._rows(tags, name, version["version"])
        return found

    def _rows(self, asked: str, *values: Any) -> list[View]:
        try:
            connection = sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True)
            connection.row_factory = sqlite3.Row
            try:
                return [dict(row) for row in connection.execute(asked, values)]
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise Invalid(f"{self.path} can't be read as MLflow's database: {error}.", "Name mlflow.db.") from error


def _yaml(path: Path) -> View:
    try:
        found = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError, UnicodeDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def _entries(folder: Path, kind: str) -> list[View]:
    root = folder / kind
    return [{"key": path.relative_to(root).as_posix(), "value": path.read_text()} for path in _walk(root)]


def _walk(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file()) if root.is_dir() else []


def _files(folder: Path) -> Iterator[tuple[str, bytes | Path]]:
    for path in _walk(folder):
        yield path.relative_to(folder).as_posix(), path


def _line(line: str) -> Point:
    """Parses `TIME VALUE STEP`; old lines have no step."""
    parts = line.split()
    return int(float(parts[0])), int(parts[2]) if len(parts) > 2 else 0, float(parts[1])


def _local(uri: str) -> Path | None:
    parts = urlsplit(uri)
    path = Path(unquote(parts.path)) if parts.scheme == "file" else Path(uri) if not parts.scheme else None
    return path if path is not None and path.is_dir() else None


def _model(path: Path) -> View:
    meta = _yaml(path)
    versions = [_yaml(each) for each in path.parent.glob("version-*/meta.yaml")]
    for each, folder in zip(versions, path.parent.glob("version-*"), strict=False):
        each["tags"] = _entries(folder, "tags")
    kept = [each for each in versions if each.get("current_stage") != "Deleted_Internal"]
    aliases = [{"alias": one["key"], "version": one["value"]} for one in _entries(path.parent, "aliases")]
    return {
        "name": meta.get("name", path.parent.name),
        "description": meta.get("description"),
        "tags": _entries(path.parent, "tags"),
        "aliases": aliases,
        "versions": sorted(kept, key=lambda each: int(each.get("version", 0))),
    }


def fingerprint(run: View) -> str:
    """A text that changes when the run continues."""
    info = run["info"]
    return json.dumps([info.get(name) for name in ("status", "end_time", "lifecycle_stage")])
