"""Loads MLflow's own server in a thread when it is first needed, with plug-in stores on Muster's record."""

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

from muster.server.mlflow.encryption import reencrypt, set_passphrase
from muster.store.record_tables import experiments
from muster.track.mlflow.faults import Fault
from muster.track.tracking import Tracking

COMPATIBLE: Final = "3.17.2"  # the version whose calls are answered here; reported if MLflow is not installed
_LOCK: Final = threading.Lock()
# MLflow's handlers read these with every request. It proxies artifacts to a repository in the record.
_ENVIRONMENT: Final = {
    "_MLFLOW_SERVER_SERVE_ARTIFACTS": "true",
    "_MLFLOW_SERVER_ARTIFACT_ROOT": "mlflow-artifacts:/",
    "_MLFLOW_SERVER_ARTIFACT_DESTINATION": "muster-record:/",
}


@dataclass(slots=True)
class _Loaded:
    """The state of MLflow's server, of which a process has only one; it works for the record that was loaded last."""

    app: ASGIApp | None = None
    url: str = ""
    store: Any = None
    mirrored: dict[int, bool] = field(default_factory=dict)


_LOADED: Final = _Loaded()


def version() -> str:
    """The installed version, without loading it."""
    try:
        return metadata.version("mlflow")
    except metadata.PackageNotFoundError:
        return COMPATIBLE


def load(track: Tracking, passphrase: str) -> ASGIApp:
    """The application of MLflow's server; the first call takes seconds. Raises Fault if it is not installed.

    `passphrase`: MLflow encrypts the gateway's keys with it.
    """
    url = database_url(track)
    with _LOCK:
        if _LOADED.app is None:
            _LOADED.app = _import()
        if _LOADED.url != url:
            _create_database(track)
            _set_up(url, passphrase)
        _mirror(track)
        return _LOADED.app


def database_url(track: Tracking) -> str:
    """The database for data that only MLflow has: a file in the home folder, or a schema of the same PostgreSQL."""
    database = track.db.database
    if database.kind == "sqlite":
        return f"sqlite:///{track.home / 'mlflow.db'}"
    url = database.writer.url.update_query_dict({"options": "-csearch_path=mlflow"})
    return url.render_as_string(hide_password=False)


def _create_database(track: Tracking) -> None:
    """Creates the schema, or a file that only its owner can read. SQLite gives its side files the same mode."""
    database = track.db.database
    if database.kind == "sqlite":
        path = track.home / "mlflow.db"
        path.touch(0o600)
        path.chmod(0o600)
    if database.kind == "postgresql":
        with database.writing() as connection:
            connection.execute(text("CREATE SCHEMA IF NOT EXISTS mlflow"))


def _import() -> ASGIApp:
    # Muster checks every caller. MLflow's own check of the Host header would allow local addresses only.
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
    """Sets the stores of MLflow's handlers, which would otherwise create them from a URL."""
    handlers: Any = importlib.import_module("mlflow.server.handlers")
    plugin: Any = importlib.import_module("muster.track.mlflow.plugin")
    registry: Any = importlib.import_module("muster.track.mlflow.registry")
    set_passphrase(passphrase)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _LOADED.store = plugin.MusterStore(url, "mlflow-artifacts:/")
        handlers._tracking_store = _LOADED.store
        handlers._model_registry_store = registry.MusterRegistry(url)
        reencrypt(_LOADED.store)
    handlers._job_store = None
    _LOADED.url, _LOADED.mirrored = url, {}


def _mirror(track: Tracking) -> None:
    """Mirrors experiments that were created, deleted or restored since the last request, and the default one."""
    track.experiments.of_project("default")
    with track.db.reading() as connection:
        rows = connection.execute(select(experiments.c.id, experiments.c.deleted_at)).all()
    now = {number: deleted is None for number, deleted in rows}
    fresh = [(number, active) for number, active in now.items() if _LOADED.mirrored.get(number) is not active]
    if fresh:
        _LOADED.store.mirror(fresh)
        _LOADED.mirrored |= dict(fresh)
