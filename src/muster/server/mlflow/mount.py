"""MLflow's own server, loaded in a thread when something first needs it, over the plug-in stores of this record."""

from __future__ import annotations

import importlib
import os
import threading
import warnings
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, Final

from sqlalchemy import select, text
from starlette.types import ASGIApp

from muster.server.mlflow.sealing import seal_anew, seal_with
from muster.store.record_tables import experiments
from muster.track.mlflow.faults import Fault
from muster.track.tracking import Tracking

COMPATIBLE: Final = "3.17.2"  # the version whose calls are answered here, told where none is installed
_LOCK: Final = threading.Lock()
# Read by MLflow's handlers with every request. It proxies artifacts, to a repository that keeps them in the record.
_ENVIRONMENT: Final = {
    "_MLFLOW_SERVER_SERVE_ARTIFACTS": "true",
    "_MLFLOW_SERVER_ARTIFACT_ROOT": "mlflow-artifacts:/",
    "_MLFLOW_SERVER_ARTIFACT_DESTINATION": "muster-record:/",
}


@dataclass(slots=True)
class _Loaded:
    """MLflow's server has one of everything in a process; it works for the record that asked last."""

    app: ASGIApp | None = None
    url: str = ""
    store: Any = None
    mirrored: dict[int, bool] = field(default_factory=dict)


_LOADED: Final = _Loaded()


def version() -> str:
    """Of what is installed, without loading it."""
    try:
        return metadata.version("mlflow")
    except metadata.PackageNotFoundError:
        return COMPATIBLE


def load(track: Tracking, passphrase: str) -> ASGIApp:
    """The application of MLflow's server; the first call takes seconds. Raises Fault where it is not installed.

    `passphrase` is what it seals the gateway's keys with.
    """
    url = database_url(track)
    with _LOCK:
        if _LOADED.app is None:
            _LOADED.app = _import()
        if _LOADED.url != url:
            _make_place(track)
            _set_up(url, passphrase)
        _mirror(track)
        return _LOADED.app


def database_url(track: Tracking) -> str:
    """Where MLflow keeps what only it has: a file in the home folder, or a schema of the same PostgreSQL."""
    database = track.db.database
    if database.kind == "sqlite":
        return f"sqlite:///{track.home / 'mlflow.db'}"
    url = database.writer.url.update_query_dict({"options": "-csearch_path=mlflow"})
    return url.render_as_string(hide_password=False)


def _make_place(track: Tracking) -> None:
    """A schema, or a file that its owner alone reads; what SQLite puts beside it has the file's mode."""
    database = track.db.database
    if database.kind == "sqlite":
        path = track.home / "mlflow.db"
        path.touch(0o600)
        path.chmod(0o600)
    if database.kind == "postgresql":
        with database.writing() as connection:
            connection.execute(text("CREATE SCHEMA IF NOT EXISTS mlflow"))


def _import() -> ASGIApp:
    # Muster says who may ask, from wherever; MLflow's own check of the Host header knows local addresses only.
    extra = {"MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}
    before = {name: os.environ.get(name) for name in extra}
    os.environ |= {**_ENVIRONMENT, **extra}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            app: ASGIApp = importlib.import_module("mlflow.server.fastapi_app").app
            importlib.import_module("muster.track.mlflow.plugin")
            importlib.import_module("muster.track.mlflow.registry")
            importlib.import_module("muster.track.mlflow.repository").register()
    except ModuleNotFoundError as error:
        raise Fault(
            f"This part of MLflow needs MLflow on the server ({error}): pip install 'muster-ml[mlflow]'.",
            "NOT_IMPLEMENTED",
        ) from None
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)
    return app


def _set_up(url: str, passphrase: str) -> None:
    """Gives MLflow's handlers their stores, where they would make them from an address for themselves."""
    handlers: Any = importlib.import_module("mlflow.server.handlers")
    plugin: Any = importlib.import_module("muster.track.mlflow.plugin")
    registry: Any = importlib.import_module("muster.track.mlflow.registry")
    seal_with(passphrase)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _LOADED.store = plugin.MusterStore(url, "mlflow-artifacts:/")
        handlers._tracking_store = _LOADED.store
        handlers._model_registry_store = registry.MusterRegistry(url)
        seal_anew(_LOADED.store)
    handlers._job_store = None
    _LOADED.url, _LOADED.mirrored = url, {}


def _mirror(track: Tracking) -> None:
    """Experiments that are new, deleted or restored since the last request; MLflow expects its default one."""
    track.experiments.of_project("default")
    with track.db.reading() as connection:
        rows = connection.execute(select(experiments.c.id, experiments.c.deleted_at)).all()
    now = {number: deleted is None for number, deleted in rows}
    fresh = [(number, active) for number, active in now.items() if _LOADED.mirrored.get(number) is not active]
    if fresh:
        _LOADED.store.mirror(fresh)
        _LOADED.mirrored |= dict(fresh)
