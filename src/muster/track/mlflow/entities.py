"""Converts between MLflow's classes and the JSON of Muster's MLflow calls. Needs MLflow."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from mlflow.entities import Experiment, Run
from mlflow.exceptions import MlflowException
from mlflow.protos import databricks_pb2, service_pb2
from mlflow.utils.proto_json_utils import parse_dict

from muster.core.errors import MusterError
from muster.track.mlflow.context import MlflowContext, current
from muster.track.mlflow.faults import Fault, fault_of

Answer = Callable[[MlflowContext, dict[str, Any]], Any]


def ask(call: Answer, **request: Any) -> Any:
    """Makes one of Muster's own calls for the current caller. Arguments that are None are left out."""
    given = {name: value for name, value in request.items() if value is not None}
    with mlflow_errors():
        answer = call(current(), given)
        return json.loads(answer) if isinstance(answer, str) else answer


@contextmanager
def mlflow_errors() -> Iterator[None]:
    """Context manager that turns Muster's errors into MLflow's."""
    try:
        yield
    except Fault as fault:
        raise exception_of(fault) from fault
    except MusterError as error:
        raise exception_of(fault_of(error)) from error


def exception_of(fault: Fault) -> MlflowException:
    return MlflowException(fault.message, error_code=databricks_pb2.ErrorCode.Value(fault.code))


def run_of(view: Mapping[str, Any]) -> Run:
    message = service_pb2.Run()
    parse_dict(view, message)
    return Run.from_proto(message)


def experiment_of(view: Mapping[str, Any]) -> Experiment:
    message = service_pb2.Experiment()
    parse_dict(view, message)
    return Experiment.from_proto(message)


def tags_of(tags: Any) -> list[dict[str, Any]]:
    return [{"key": tag.key, "value": tag.value} for tag in tags or ()]
