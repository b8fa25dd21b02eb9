"""MLflow's limits on names and values, and its error messages: its clients and tests expect their exact words."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from muster.track.mlflow.faults import Fault

KEY_MAX: Final = 250
PARAM_MAX: Final = 6000
TAG_MAX: Final = 8000
EXPERIMENT_TAG_MAX: Final = 20_000
EXPERIMENT_NAME_MAX: Final = 500
METRICS_MAX: Final = 1000  # per batch
PARAMS_MAX: Final = 100  # params, or tags, per batch
BATCH_MAX: Final = 1000  # all together
_SEE_DOCS: Final = " See the API docs for more information about request parameters."
_NAME: Final = re.compile(r"[/\w.\- :]*")
_RUN_ID: Final = re.compile(r"[a-zA-Z0-9][\w\-]{0,255}")
_BAD_NAME: Final = (
    "Names may only contain alphanumerics, underscores (_), dashes (-), periods (.),"
    " spaces ( ), colon(:) and slashes (/)."
)
_INTS: Final = range(-(2**63), 2**63)

Check = Callable[[Any], bool]
Schema = Mapping[str, Sequence[str]]


def check_request(request: Mapping[str, Any], schema: Schema) -> None:
    """Checks a request. The schema has for each parameter `required` and a kind (`string`, `int`, `float`, `array`)."""
    for name, wants in schema.items():
        value = request.get(name)
        if name == "run_id" and value is None:
            value = request.get("run_uuid")
        for want in wants:
            if want == "required":
                if value is None or value == "":
                    raise Fault(f"Missing value for required parameter '{name}'.{_SEE_DOCS}")
            elif value is not None and not _KINDS[want](value):
                raise wrong_value(name, value)


def wrong_value(name: str, value: Any) -> Fault:
    hint = f" Hint: Value was of type '{type(value).__name__}'."
    return Fault(invalid_value(name, value, hint) + _SEE_DOCS)


def invalid_value(path: str, value: Any, message: str = "") -> str:
    shown = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return f"Invalid value {shown} for parameter '{path}' supplied" + (f": {message}" if message else ".")


def check_name(name: Any, path: str) -> str:
    """Checks the name of a param, tag or metric."""
    if not isinstance(name, str):
        raise Fault(f"Missing value for required parameter '{path}'.")
    if not _NAME.fullmatch(name):
        raise Fault(invalid_value(path, name, _BAD_NAME))
    normal = posixpath.normpath(name)
    if normal != name or normal == "." or normal.startswith(("..", "/")):
        message = (
            "Names may be treated as files in certain cases, and must not resolve to other names"
            f" when treated as such. This name would resolve to {normal!r}"
        )
        raise Fault(invalid_value(path, name, message))
    return name


def check_length(what: str, limit: int, value: str) -> str:
    if len(value) > limit:
        raise Fault(f"'{what}' exceeds the maximum length of {limit} characters")
    return value


def check_param(key: Any, value: Any, path: str = "") -> tuple[str, str]:
    check_length("Param key", KEY_MAX, check_name(key, _join(path, "key")))
    # MLflow truncates a long value instead of refusing it.
    return str(key), _text(value, _join(path, "value"))[:PARAM_MAX]


def check_tag(key: Any, value: Any, path: str = "") -> tuple[str, str]:
    check_length(_join(path, "key"), KEY_MAX, check_name(key, _join(path, "key")))
    return str(key), _text(value, _join(path, "value"))[:TAG_MAX]


def check_experiment_tag(key: Any, value: Any) -> tuple[str, str]:
    check_length("key", KEY_MAX, check_name(key, "key"))
    return str(key), check_length("value", EXPERIMENT_TAG_MAX, _text(value, "value"))


def check_metric(metric: Mapping[str, Any], path: str = "") -> tuple[str, float, int, int]:
    """Name, value, time in milliseconds and step."""
    key, step = metric.get("key"), metric.get("step")
    check_name(key, _join(path, "name"))
    value = _number(metric.get("value"), _join(path, "value"))
    stamp = _whole(metric.get("timestamp"), _join(path, "timestamp"))
    if stamp < 0:
        message = f"metric '{key}' (value={value}). Timestamp must be a nonnegative long (64-bit integer) "
        raise Fault(invalid_value(_join(path, "timestamp"), stamp, message))
    check_length("Metric name", KEY_MAX, str(key))
    return str(key), value, stamp, 0 if step is None else _whole(step, _join(path, "step"))


def check_batch(metrics: Sequence[Any], params: Sequence[Any], tags: Sequence[Any]) -> None:
    total = len(metrics) + len(params) + len(tags)
    sizes = (
        ("metrics", METRICS_MAX, len(metrics)),
        ("params", PARAMS_MAX, len(params)),
        ("tags", PARAMS_MAX, len(tags)),
        ("metrics, params, and tags", BATCH_MAX, total),
    )
    for what, limit, size in sizes:
        if size > limit:
            raise Fault(
                f"A batch logging request can contain at most {limit} {what}. Got {size} {what}. "
                f"Please split up {what} across multiple requests and try again."
            )


def check_given(items: Sequence[Any], of: str, names: Sequence[str]) -> None:
    """Checks that each entry of a batch is an object with these fields."""
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            raise wrong_value(of, list(items))
        for name in names:
            if item.get(name) in (None, ""):
                raise Fault(f"Missing value for required parameter '{of}[{index}].{name}'.{_SEE_DOCS}")


def check_run_id(run_id: str) -> str:
    if not _RUN_ID.fullmatch(run_id):
        raise Fault(invalid_value("run_id", run_id))
    return run_id


def experiment_number(experiment_id: Any) -> int:
    """The number of an id. One below zero is a number too: there is just no such experiment."""
    found: int | None
    try:
        found = int(experiment_id)
    except (TypeError, ValueError):
        found = None
    if found is None or found not in _INTS:
        raise Fault(f"Invalid experiment ID '{experiment_id}'. Experiment ID must be a valid integer.")
    return found


def page_size(value: Any, limit: int | None = None) -> int:
    size = _whole(value, "max_results")
    if limit is not None and size > limit:
        raise wrong_value("max_results", value)
    if size < 1:
        raise Fault(f"Invalid value {size} for parameter 'max_results' supplied. It must be a positive integer")
    return size


def _text(value: Any, path: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise wrong_value(path, value)
    return value


def _number(value: Any, path: str) -> float:
    if not _is_float(value):
        raise wrong_value(path, value)
    return float(value)


def _whole(value: Any, path: str) -> int:
    if not _is_int(value) or int(value) not in _INTS:
        raise wrong_value(path, value)
    return int(value)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _is_int(value: Any) -> bool:
    if isinstance(value, bool | float):
        return isinstance(value, float) and value.is_integer()
    try:
        int(value)
    except (TypeError, ValueError):
        return False
    return isinstance(value, int | str)


def _is_float(value: Any) -> bool:
    """Also accepts texts: protobuf's JSON writes "NaN" and "Infinity" as such."""
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return isinstance(value, int | float | str) and not isinstance(value, bool)


_KINDS: Final[Mapping[str, Check]] = {
    "string": lambda value: isinstance(value, str),
    "int": _is_int,
    "float": _is_float,
    "array": lambda value: isinstance(value, list),
    "strings": lambda value: isinstance(value, list) and all(isinstance(item, str) for item in value),
}
