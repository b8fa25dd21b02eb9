"""Runs and experiments in MLflow's JSON, built directly as text: a page of a thousand runs is one short loop."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, Final

from sqlalchemy import Connection

from muster.store.codec import loads
from muster.store.record_tables import links, metric_series, run_params, run_tags
from muster.track.experiments import Experiment
from muster.track.mlflow.find import WRITER
from muster.track.mlflow.names import (
    COMMIT,
    CONTEXT,
    MODEL,
    PARENT,
    RUN_NAME,
    SOURCE,
    STATUS,
    USER,
    artifact_location,
    artifact_uri,
    millis,
)

Parts = dict[str, list[str]]  # run → JSON objects


def number_json(value: float | None) -> str:
    """A number as protobuf writes a double."""
    if value is None or value != value:
        return '"NaN"'
    if value in (float("inf"), float("-inf")):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    return repr(float(value))


def metric_json(key: str, value: float | None, time: float, step: int) -> str:
    """A point; `time` is in seconds."""
    return f'{{"key":{quoted(key)},"value":{number_json(value)},"timestamp":{round(time * 1000)},"step":{step}}}'


def experiment_view(one: Experiment) -> dict[str, Any]:
    view: dict[str, Any] = {
        "experiment_id": str(one.id),
        "name": one.name,
        "artifact_location": artifact_location(one.id, one.artifacts),
        "lifecycle_stage": "active" if one.deleted_at is None else "deleted",
        "last_update_time": millis(one.updated_at),
        "creation_time": millis(one.created_at),
    }
    if one.tags:
        view["tags"] = [{"key": key, "value": value} for key, value in one.tags.items()]
    return {**view, "workspace": "default"}


def info_json(row: Any) -> str:
    """A run's `info`, from a row of `find.INFO`."""
    run, experiment, name, user, phase, started, ended, deleted, place, closed, _, _, doc, _, _ = row
    shown_user = _user(user, doc)
    stage = "active" if deleted is None and closed is None else "deleted"
    end = "" if ended is None else f'"end_time":{round(ended * 1000)},'
    return (
        f'{{"run_uuid":"{run}","experiment_id":"{experiment}","run_name":{quoted(name)},"user_id":{quoted(shown_user)},'
        f'"status":"{STATUS[phase]}","start_time":{round(started * 1000)},{end}'
        f'"artifact_uri":{quoted(artifact_uri(experiment, place or "", run))},'
        f'"lifecycle_stage":"{stage}","run_id":"{run}"}}'
    )


def runs_json(connection: Connection, rows: Sequence[Any], *, model_inputs: bool = False) -> list[str]:
    """Complete runs, in the order of the rows. Like MLflow, includes `model_inputs` only for a single run."""
    ids = [row[0] for row in rows]
    metrics, params, tags = _metrics(connection, ids), _params(connection, ids), _tags(connection, rows)
    inputs, models, outputs = _inputs(connection, ids)
    found = []
    for row in rows:
        run = row[0]
        data = ",".join(
            f'"{name}":[{",".join(parts[run])}]'
            for name, parts in (("metrics", metrics), ("params", params), ("tags", tags))
            if run in parts
        )
        given = [f'"dataset_inputs":[{",".join(inputs[run])}]'] if run in inputs else []
        if model_inputs and run in models:
            given.append(f'"model_inputs":[{",".join(models[run])}]')
        made = f'"model_outputs":[{",".join(outputs[run])}]' if run in outputs else ""
        found.append(
            f'{{"info":{info_json(row)},"data":{{{data}}},"inputs":{{{",".join(given)}}},"outputs":{{{made}}}}}'
        )
    return found


def _user(user: str, doc: str) -> str:
    given = loads(doc).get("mlflow", {}).get("user_id") if '"user_id"' in doc else None
    return user if given is None else str(given)


def _metrics(connection: Connection, ids: Sequence[str]) -> Parts:
    found: Parts = defaultdict(list)
    heads = _Heads('","value":')
    for run, name, last, nan, time, step in _rows(connection, _METRICS, ids):
        value = '"NaN"' if nan else repr(last) if -1e300 < last < 1e300 else number_json(last)
        found[run].append(f'{heads[name]}{value},"timestamp":{round(time * 1000)},"step":{step}}}')
    return found


def _params(connection: Connection, ids: Sequence[str]) -> Parts:
    found: Parts = defaultdict(list)
    heads = _Heads('","value":')
    for run, key, value in _rows(connection, _PARAMS, ids):
        found[run].append(f"{heads[key]}{quoted(value)}}}")
    return found


def _tags(connection: Connection, rows: Sequence[Any]) -> Parts:
    """The run's tags, and tags for facts that Muster knows: name, user, parent and commit."""
    found: Parts = defaultdict(list)
    heads = _Heads('","value":')
    given: dict[str, set[str]] = defaultdict(set)
    for run, key, value in _rows(connection, _TAGS, [row[0] for row in rows]):
        found[run].append(f"{heads[key]}{quoted(value)}}}")
        if key in (USER, PARENT, COMMIT):
            given[run].add(key)
    for row in rows:
        run = row[0]
        known = [(RUN_NAME, row[2])]
        if row[14] != SOURCE:  # MLflow's clients set these themselves
            known += [(USER, row[3]), (PARENT, row[10]), (COMMIT, row[11])]
        for key, value in known:
            if value and key not in given[run]:
                found[run].append(f"{heads[key]}{quoted(value)}}}")
    return found


def _inputs(connection: Connection, ids: Sequence[str]) -> tuple[Parts, Parts, Parts]:
    """Data sets and logged models that runs read, and logged models that they made, in the order of logging."""
    data: Parts = defaultdict(list)
    read: Parts = defaultdict(list)
    made: Parts = defaultdict(list)
    refs = [f"run:{run}" for run in ids]
    for target, source, doc in _rows(connection, _INPUTS, refs):
        if source.startswith("data:"):
            data[target[4:]].append(_dataset(source[5:], loads(doc)))
        elif source.startswith(MODEL):
            read[target[4:]].append(json.dumps({"model_id": source[len(MODEL) :]}))
    for source, target, doc in _rows(connection, _OUTPUTS, refs):
        made[source[4:]].append(json.dumps({"model_id": target[len(MODEL) :], "step": loads(doc).get("step", 0)}))
    return data, read, made


def _dataset(ref: str, doc: dict[str, Any]) -> str:
    name, _, version = ref.partition("@")
    dataset = {
        "name": doc.get("name") or name,
        "digest": str(doc.get("digest") or doc.get("version") or version),
        "source_type": doc.get("source_type") or "muster",
        "source": doc.get("source") or json.dumps({"uri": doc.get("uri") or ref}),
        **{key: doc[key] for key in ("schema", "profile") if doc.get(key) is not None},
    }
    tags = doc.get("tags")
    if tags is None and doc.get("context"):
        tags = [{"key": CONTEXT, "value": doc["context"]}]
    return json.dumps({**({"tags": tags} if tags else {}), "dataset": dataset}, separators=(",", ":"))


class _Heads(dict[str, str]):
    """Key → start of an entry. Keys repeat from run to run, so each is quoted only once."""

    def __init__(self, tail: str) -> None:
        super().__init__()
        self._tail = tail

    def __missing__(self, key: str) -> str:
        found = self[key] = f'{{"key":"{quoted(key)[1:-1]}{self._tail}'
        return found


def _rows(connection: Connection, asked: tuple[str, str], ids: Sequence[str]) -> Sequence[Any]:
    """Plain tuples from the driver, by one of the statements below: a page may have tens of thousands of them."""
    postgres = connection.dialect.name == "postgresql"
    result = connection.exec_driver_sql(asked[postgres], (list(ids) if postgres else json.dumps(ids),))
    assert result.cursor is not None
    found = result.cursor.fetchall()
    result.close()
    return found


def _select(columns: str, table: str, by: str, rest: str = "") -> tuple[str, str]:
    """A statement for SQLite and for PostgreSQL, with all ids as one value: thousands of values cost more than rows."""
    begin = f"SELECT {columns} FROM {table} WHERE {by}"  # noqa: S608
    return f"{begin} IN (SELECT value FROM json_each(?)){rest}", f"{begin} = ANY(%s){rest}"  # noqa: S608


_METRICS: Final = _select(
    "run, name, last, last_nan, last_time, last_step", metric_series.name, "run", f" AND rank = {WRITER}"
)
_PARAMS: Final = _select("run, key, value", run_params.name, "run")
_TAGS: Final = _select("run, key, value", run_tags.name, "run")
_INPUTS: Final = _select("target, source, doc", links.name, "target", " AND role = 'reads' ORDER BY time, source")
_OF_MODEL: Final = f" AND substr(target, 1, {len(MODEL)}) = '{MODEL}'"
_OUTPUTS: Final = _select("source, target, doc", links.name, "source", f"{_OF_MODEL} ORDER BY time, target")
