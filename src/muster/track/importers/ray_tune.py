"""Ray Tune import: an experiment's folder of results is a run, each of its trials a child; Ray is not needed.

EXPERIMENT/experiment_state-*.json      how its trials stand; there may be several, and the newest counts
EXPERIMENT/TRIAL/params.json            its configuration
EXPERIMENT/TRIAL/result.json            what it reported, one JSON object a line; progress.csv has the same as a table
EXPERIMENT/TRIAL/error.txt              why it failed

Files that have to be unpickled are not read.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from muster.track.importers.base import Ended, Facts, FoundRun, Item, LeftOut, Rows

TOOL: Final = "ray-tune"
_STATES: Final = "experiment_state-*.json"
_REPORTS: Final = ("result.json", "progress.csv")
# What Ray adds to every report: facts of the trial and its machine, which are no metrics.
_NOT_METRICS: Final = frozenset((
    "timestamp", "training_iteration", "trial_id", "date", "pid", "hostname", "node_ip", "config", "done",
    "checkpoint_dir_name", "experiment_tag", "should_checkpoint", "time_since_restore", "iterations_since_restore",
    "time_this_iter_s",
))  # fmt: skip
_STEP: Final = "training_iteration"
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_DETAIL: Final = 2000  # characters of an error


class RayTuneImporter:
    about = "folders of Ray Tune's results (experiment_state-*.json, params.json, result.json)"

    def find(self, path: Path) -> list[FoundRun]:
        if not path.is_dir():
            return []
        if _is_trial(path):  # of this trial alone, and its experiment's
            head, *runs = _found(path.parent, sorted(one for one in path.parent.iterdir() if _is_trial(one)))
            return [head, *(one for one in runs if one.path == path)]
        experiments: dict[Path, list[Path]] = {}
        for trial in sorted(one.parent for one in path.rglob("params.json")):
            if _is_trial(trial):
                experiments.setdefault(trial.parent, []).append(trial)
        found = [_found(folder, some) for folder, some in experiments.items()]
        return [run for runs in sorted(found, key=lambda runs: runs[0].created_at) for run in runs]

    def read(self, found: FoundRun) -> Iterator[Item]:
        doc = json.loads(found.content)
        yield from _trial_items(found, doc) if found.parent else _experiment_items(doc)


def _is_trial(folder: Path) -> bool:
    """A trial that has reported, or that the experiment's state may know: it may have failed before."""
    if not (folder / "params.json").is_file():
        return False
    return _report(folder) is not None or any(folder.parent.glob(_STATES))


def _found(folder: Path, trials: Sequence[Path]) -> list[FoundRun]:
    """The experiment's run and those of its trials."""
    known = _states(folder)
    # The first trial's folder has the time in its name, which an experiment that is called the same does not share.
    key = hashlib.sha256(f"{folder.name}\0{trials[0].name}".encode("utf-8", "replace")).hexdigest()
    made, ends = list[FoundRun](), list[float]()
    for trial in trials:
        state = known.get(trial.name, {})
        times = [time for row in _rows(trial) if (time := _number(row.get("timestamp"))) is not None]
        started = _number(state.get("start_time")) or (times[0] if times else _written(trial))
        ended = max([started, *times[-1:]])
        doc = {
            "name": folder.name,
            "id": str(state.get("trial_id") or ""),
            "status": str(state.get("status") or ("ERROR" if (trial / "error.txt").exists() else "TERMINATED")),
            "ended": ended,
        }
        files = tuple(one for name in ("params.json", *_REPORTS, "error.txt") if (one := trial / name).exists())
        mark = hashlib.sha256(trial.name.encode("utf-8", "replace")).hexdigest()
        named = f"{state['trainable_name']}_{doc['id']}" if "trainable_name" in state else trial.name
        content = json.dumps(doc, sort_keys=True).encode()
        made.append(FoundRun(f"{key}/{mark}", TOOL, named, trial, files, started, "", key, content))
        ends.append(ended)
    about = {"name": folder.name, "trials": len(trials), "ended": max(ends)}
    begun = min(one.created_at for one in made)
    head = FoundRun(key, TOOL, folder.name, folder, (), begun, content=json.dumps(about, sort_keys=True).encode())
    return [head, *made]


def _experiment_items(doc: Mapping[str, Any]) -> Iterator[Item]:
    yield Facts(tags={"ray_tune.experiment": doc["name"], "ray_tune.trials": str(doc["trials"])})
    yield Ended("succeeded", doc["ended"])


def _trial_items(found: FoundRun, doc: Mapping[str, Any]) -> Iterator[Item]:
    tags = {"ray_tune.experiment": doc["name"], "ray_tune.trial": doc["id"], "ray_tune.status": doc["status"].lower()}
    params = _json_of(found.path / "params.json")
    if not isinstance(params, Mapping):
        yield LeftOut(f"the parameters of {found.path.name}, which are no JSON object")
        params = {}
    yield Facts(params, {name: value for name, value in tags.items() if value})
    yield from _curves(list(_rows(found.path)))
    if doc["status"] == "ERROR":
        yield Ended("failed", doc["ended"], _error(found.path))
    elif doc["status"] == "TERMINATED":
        yield Ended("succeeded", doc["ended"])
    else:
        yield Ended("stopped", doc["ended"], f"it was {doc['status'].lower()} when it was imported")


def _curves(rows: Sequence[Mapping[str, Any]]) -> Iterator[Item]:
    """One item for each set of metrics that were reported together."""
    kept: dict[int, tuple[float, dict[str, float]]] = {}
    for row in rows:
        step = _number(row.get(_STEP))
        if step is None or not math.isfinite(step):
            yield LeftOut("a report without its iteration")
            continue
        for later in [one for one in kept if one >= step]:  # it was restored: what it reports now counts
            del kept[later]
        flat = _flat({name: value for name, value in row.items() if name not in _NOT_METRICS})
        kept[int(step)] = (_number(row.get("timestamp")) or 0.0, flat)
    sets: dict[tuple[str, ...], list[int]] = {}
    for step, (_, values) in kept.items():
        if values:
            sets.setdefault(tuple(values), []).append(step)
    for names, steps in sets.items():
        times = [kept[step][0] for step in steps]
        yield Rows(names, steps, times, [list(kept[step][1].values()) for step in steps])


def _rows(trial: Path) -> Iterator[dict[str, Any]]:
    """The trial's reports; a line that is cut off is the last of a trial that was killed."""
    report = _report(trial)
    if report is None:
        return
    with report.open(encoding="utf-8", errors="replace", newline="") as file:
        if report.suffix == ".csv":
            yield from csv.DictReader(file)
            return
        for line in file:
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(row, dict):
                yield row


def _report(trial: Path) -> Path | None:
    return next((one for name in _REPORTS if (one := trial / name).exists() and one.stat().st_size), None)


def _states(folder: Path) -> dict[str, dict[str, Any]]:
    """What is known of each trial, by the name of its folder."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob(_STATES)):  # by time: the newest is last
        doc = _json_of(path)
        for one in (doc.get("trial_data") or doc.get("checkpoints") or ()) if isinstance(doc, dict) else ():
            parts = [_parsed(part) for part in (one if isinstance(one, list) else [one])]
            state = {name: value for part in parts for name, value in part.items()}
            place = str(state.get("relative_logdir") or state.get("logdir") or "")
            if place:
                found[Path(place).name] = state
    return found


def _parsed(part: object) -> dict[str, Any]:
    try:
        doc = json.loads(part) if isinstance(part, str) else part
    except (ValueError, RecursionError):
        return {}
    return doc if isinstance(doc, dict) else {}


def _json_of(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError, RecursionError):
        return None


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers, by names as Ray joins them."""
    found: dict[str, float] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{name}/")
        elif (number := _number(value)) is not None:
            found[f"{prefix}{name}"] = number
    return found


def _number(value: object) -> float | None:
    if isinstance(value, str):  # of a table
        try:
            return float(value)
        except ValueError:
            return {"True": 1.0, "False": 0.0}.get(value)
    return float(value) if isinstance(value, int | float) else None


def _error(trial: Path) -> str:
    try:
        return _COLOURS.sub("", (trial / "error.txt").read_text(errors="replace")).strip()[-_DETAIL:]
    except OSError:
        return ""


def _written(trial: Path) -> float:
    return (trial / "params.json").stat().st_mtime
