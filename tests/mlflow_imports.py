"""MLflow, and what servers import of it besides, for the process that others are forked from: it takes seconds."""

from __future__ import annotations

import os
import warnings

QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "GIT_PYTHON_REFRESH": "quiet"}
os.environ |= QUIET  # it starts no thread then

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import mlflow
    import mlflow.pyfunc
    import mlflow.store.model_registry.sqlalchemy_store
    import mlflow.store.tracking.sqlalchemy_store  # noqa: F401
