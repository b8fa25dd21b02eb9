"""MLflow's names and their equivalents in Muster: run states, reserved tags, artifact URIs."""

from __future__ import annotations

from typing import Any, Final

SOURCE: Final = "mlflow"  # source of runs that MLflow clients create
IMPORTED: Final = "import:mlflow"
STATUS: Final = {
    "queued": "SCHEDULED",
    "starting": "SCHEDULED",
    "running": "RUNNING",
    "stopping": "RUNNING",
    "succeeded": "FINISHED",
    "failed": "FAILED",
    "stopped": "KILLED",
}
PHASE: Final = {
    "RUNNING": "running",
    "SCHEDULED": "queued",
    "FINISHED": "succeeded",
    "FAILED": "failed",
    "KILLED": "stopped",
}
STATUS_NUMBERS: Final = {1: "RUNNING", 2: "SCHEDULED", 3: "FINISHED", 4: "FAILED", 5: "KILLED"}
VIEWS: Final = {1: "ACTIVE_ONLY", 2: "DELETED_ONLY", 3: "ALL"}
RUN_NAME: Final = "mlflow.runName"
USER: Final = "mlflow.user"
PARENT: Final = "mlflow.parentRunId"
COMMIT: Final = "mlflow.source.git.commit"
CONTEXT: Final = "mlflow.data.context"
LOGGED_MODELS: Final = "mlflow.log-model.history"
OURS: Final = "mlflow-artifacts:"  # artifacts that Muster stores
MODEL: Final = "logged-model:"  # prefix of a logged model's id in links


def artifact_location(experiment: int, given: str) -> str:
    return given or f"{OURS}/{experiment}"


def artifact_uri(experiment: int, given: str, run: str) -> str:
    location, mark, query = artifact_location(experiment, given).partition("?")
    return f"{location.rstrip('/')}/{run}/artifacts{mark}{query}"


def millis(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def pairs(items: Any) -> dict[str, Any]:
    """A mapping from a list of {key, value}, as MLflow writes it."""
    return {str(item.get("key")): item.get("value") for item in items or ()}


def double(value: float) -> float | str:
    """The value in protobuf's JSON, which has texts for NaN and infinities."""
    if value != value:
        return "NaN"
    return value if value not in (float("inf"), float("-inf")) else "Infinity" if value > 0 else "-Infinity"
