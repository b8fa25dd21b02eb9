"""Optuna import: every study of a database, a journal file or a storage's address is a run, its trials its children.

`find` reads the storage with Optuna itself; a run that was found holds its trial as JSON, which `read` takes apart.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from muster.core.errors import ConfigError, MusterError
from muster.track.importers.base import Ended, Facts, FoundRun, Item, LeftOut, Rows

if TYPE_CHECKING:
    import optuna

TOOL: Final = "optuna"
_SQLITE: Final = b"SQLite format 3\0"
_HEAD: Final = 1 << 16  # bytes of a journal's first line that are looked at
_OPERATION: Final = "op_code"  # what each log of Optuna's journals has
_OUTCOMES: Final = {"COMPLETE": "succeeded", "PRUNED": "stopped", "FAIL": "failed", "RUNNING": "stopped"}


class OptunaImporter:
    about = "databases (SQLite) and journal files of Optuna"

    def find(self, path: Path) -> list[FoundRun]:
        files = [path] if path.is_file() else sorted(one for one in path.glob("*") if one.is_file())
        return [found for file in files if (address := _address(file)) for found in self.find_at(address, file)]

    def find_at(self, address: str, path: Path = Path()) -> list[FoundRun]:
        """All studies of a storage with their trials: a database's address, a journal file's path, or `muster://`."""
        return [found for study in _studies(address) for found in _found(study, path)]

    def read(self, found: FoundRun) -> Iterator[Item]:
        doc = json.loads(found.content)
        yield from _trial_items(doc) if found.parent else _study_items(doc)


def sqlite_has(path: Path, table: str) -> bool:
    """Whether a file is a SQLite database with this table."""
    try:
        with path.open("rb") as file:
            if file.read(len(_SQLITE)) != _SQLITE:
                return False
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as connection:
            asked = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
            return connection.execute(asked, (table,)).fetchone() is not None
    except (OSError, sqlite3.Error):
        return False


def _address(file: Path) -> str | None:
    """Of the storage in a file, which is opened for reading alone; None if it is none of Optuna's."""
    if sqlite_has(file, "trial_intermediate_values"):
        return f"sqlite:///file:{quote(str(file.absolute()))}?mode=ro&uri=true"
    try:
        with file.open("rb") as content:
            first = json.loads(content.readline(_HEAD))
    except (OSError, ValueError, RecursionError):
        return None
    return str(file) if isinstance(first, dict) and _OPERATION in first and "worker_id" in first else None


def _studies(address: str) -> list[optuna.Study]:
    import optuna  # noqa: PLC0415
    from optuna.storages import JournalStorage, RDBStorage  # noqa: PLC0415
    from optuna.storages.journal import JournalFileBackend  # noqa: PLC0415

    try:
        if "://" in address:
            storage: Any = RDBStorage(address, skip_table_creation=True)
        else:
            storage = JournalStorage(JournalFileBackend(address))
        names = sorted(one.study_name for one in storage.get_all_studies())
        return [optuna.load_study(study_name=name, storage=storage) for name in names]
    except MusterError:
        raise
    except Exception as error:  # whatever a driver or a damaged file raises
        hint = "If an older Optuna wrote it: `optuna storage upgrade --storage ADDRESS`, on a copy."
        raise ConfigError(f"The Optuna storage {address} can't be read: {error}", hint) from error


def _found(study: optuna.Study, path: Path) -> Iterator[FoundRun]:
    trials = study.get_trials(deepcopy=False)
    kept = [_trial_doc(study, one) for one in trials if one.state.name in _OUTCOMES]
    begun = min((one["started"] for one in kept), default=0.0)
    # A study has no permanent name: it may be renamed into another file, and others are called the same.
    first = str(trials[0].datetime_start) if trials else ""
    key = hashlib.sha256(f"{study.study_name}\0{first}".encode("utf-8", "replace")).hexdigest()
    doc = _study_doc(study, kept, len(trials))
    yield FoundRun(key, TOOL, study.study_name, path, (), begun, content=_encoded(doc))
    for one in kept:
        name = f"{study.study_name}[{one['number']}]"
        yield FoundRun(f"{key}/{one['number']}", TOOL, name, path, (), one["started"], "", key, _encoded(one))


def _study_doc(study: optuna.Study, kept: list[dict[str, Any]], count: int) -> dict[str, Any]:
    names = _metrics(study)
    return {
        "name": study.study_name,
        "directions": dict(zip(names, (one.name.lower() for one in study.directions), strict=True)),
        "attrs": study.user_attrs,
        "trials": [[one["number"], one["ended"], one["values"]] for one in kept if one["state"] == "COMPLETE"],
        "waiting": count - len(kept),
        "ended": max((one["ended"] for one in kept), default=0.0),
    }


def _trial_doc(study: optuna.Study, trial: optuna.trial.FrozenTrial) -> dict[str, Any]:
    started = _moment(trial.datetime_start, 0.0)
    return {
        "study": study.study_name,
        "number": trial.number,
        "state": trial.state.name,
        "params": trial.params,
        "metrics": _metrics(study),
        "values": trial.values,
        "steps": sorted(trial.intermediate_values.items()),
        "attrs": trial.user_attrs,
        "started": started,
        "ended": max(_moment(trial.datetime_complete, started), started),
    }


def _study_items(doc: Mapping[str, Any]) -> Iterator[Item]:
    tags = {"optuna.study": doc["name"], "optuna.trials": str(len(doc["trials"]))}
    tags |= {f"optuna.{name}": direction for name, direction in doc["directions"].items()}
    yield Facts(tags=tags | _texts(doc["attrs"]))
    if len(doc["directions"]) == 1 and doc["trials"]:
        ((name, direction),) = doc["directions"].items()
        best = _best(doc["trials"], direction == "maximize")
        yield Rows(
            (f"best.{name}",), [at for at, _, _ in best], [time for _, time, _ in best], [[v] for _, _, v in best]
        )
    if doc["waiting"]:
        yield LeftOut(f"{doc['waiting']} trials of {doc['name']} that had not begun")
    yield Ended("succeeded", doc["ended"])


def _trial_items(doc: Mapping[str, Any]) -> Iterator[Item]:
    tags = {"optuna.study": doc["study"], "optuna.trial": str(doc["number"]), "optuna.state": doc["state"].lower()}
    yield Facts(doc["params"], tags | _texts(doc["attrs"]))
    if steps := _points(doc):
        began, span = doc["started"], doc["ended"] - doc["started"]
        times = [began + span * (at + 1) / len(steps) for at in range(len(steps))]  # Optuna does not keep them
        yield Rows((doc["metrics"][0],), [step for step, _ in steps], times, [[value] for _, value in steps])
    values, last = doc["values"] or (), doc["steps"][-1][0] if doc["steps"] else 0
    for name, value in list(zip(doc["metrics"], values, strict=False))[1:]:
        yield Rows((name,), [last], [doc["ended"]], [[value]])
    detail = {"PRUNED": f"pruned at step {last}", "RUNNING": "it ran when it was imported"}.get(doc["state"], "")
    yield Ended(_OUTCOMES[doc["state"]], doc["ended"], detail)  # type: ignore[arg-type]


def _points(doc: Mapping[str, Any]) -> list[tuple[int, float]]:
    """What the trial reported of the first metric, and its value, if that is not what it reported last."""
    points = [(step, value) for step, value in doc["steps"]]
    if doc["values"]:
        value = doc["values"][0]
        if not points or (points[-1][1] != value and doc["state"] == "COMPLETE"):
            points.append((points[-1][0] + 1 if points else 0, value))
    return points


def _best(trials: list[Any], maximize: bool) -> list[tuple[int, float, float]]:
    """The best value so far at each trial, in the order of their numbers, with its time."""
    found: list[tuple[int, float, float]] = []
    for number, time, (value, *_) in trials:
        better = max if maximize else min
        found.append((number, time, better(found[-1][2], value) if found else value))
    return found


def _metrics(study: optuna.Study) -> list[str]:
    named = study.metric_names
    if named:
        return list(named)
    return ["value"] if len(study.directions) == 1 else [f"value_{at}" for at in range(len(study.directions))]


def _texts(attrs: Mapping[str, Any]) -> dict[str, str]:
    return {key: one if isinstance(one, str) else json.dumps(one, default=str) for key, one in attrs.items()}


def _moment(time: datetime | None, default: float) -> float:
    found = default if time is None else time.timestamp()
    return found if math.isfinite(found) else default


def _encoded(doc: Mapping[str, Any]) -> bytes:
    return json.dumps(doc, sort_keys=True, default=str).encode()
