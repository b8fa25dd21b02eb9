"""The functions that MLflow's entry points name. MLflow loads them during its own import, so they import lazily."""

from __future__ import annotations

from typing import Any


def tracking_store(store_uri: str, artifact_uri: str | None = None) -> Any:
    from muster.client import mlflow  # noqa: PLC0415

    return mlflow.tracking_store(store_uri, artifact_uri)


def registry_store(store_uri: str, tracking_uri: str | None = None) -> Any:
    from muster.client import mlflow  # noqa: PLC0415

    return mlflow.registry_store(store_uri, tracking_uri)


def artifacts(artifact_uri: str, tracking_uri: str | None = None, registry_uri: str | None = None) -> Any:
    from muster.client import mlflow  # noqa: PLC0415

    return mlflow.MusterArtifacts(artifact_uri, tracking_uri, registry_uri)
