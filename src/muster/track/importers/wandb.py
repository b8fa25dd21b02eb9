"""W&B import from offline run folders (`wandb/offline-run-*`): history, configuration, summary, media and files."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

from muster.foreign import blocklog
from muster.foreign.protobuf import Malformed
from muster.foreign.tfrecord import Damage
from muster.track.importers import wandb_reader
from muster.track.importers.base import Ended, Facts, FoundRun, ImportedFile, Item, LeftOut, Rows, flat
from muster.track.importers.wandb_media import shown

_ENDING: Final = ".wandb"
_EARLY: Final = 64  # records among which the run's own record must be
_INTERNAL: Final = ("_timestamp", "_runtime", "_wandb")


class WandbImporter:
    about = "W&B's offline run folders (wandb/offline-run-*)"

    def find(self, path: Path) -> list[FoundRun]:
        if path.is_file():
            logs = [path] if path.suffix == _ENDING else []
        else:
            logs = sorted(log for log in path.rglob(f"*{_ENDING}") if log.is_file())
        seen: dict[Path, FoundRun] = {}
        for log in logs:
            found = _found(log)
            if found is not None:
                seen.setdefault(log.resolve(), found)  # `latest-run` is a link to another folder
        return sorted(seen.values(), key=lambda one: (one.created_at, one.key))

    def read(self, found: FoundRun) -> Iterator[Item]:
        folder = found.path / "files"
        reading = _Reading(folder, found.created_at)
        for record in blocklog.records(found.files[0]):
            if isinstance(record, Damage):
                yield record
                continue
            try:
                yield from reading.take(*wandb_reader.kind_of(record))
            except Malformed as error:
                reading.left_out[f"records that can't be read ({error})"] += 1
        yield from reading.rest()


def _found(log: Path) -> FoundRun | None:
    """The run of a log; None if the file isn't a log or doesn't name its run."""
    try:
        if not blocklog.is_log(log):
            return None
        for record in islice(blocklog.records(log), _EARLY):
            if isinstance(record, Damage):
                continue
            kind, message = wandb_reader.kind_of(record)
            if kind == wandb_reader.RUN:
                return _named(log, wandb_reader.run_of(message))
    except (Malformed, ValueError):
        return None
    return None


def _named(log: Path, run: wandb_reader.RunRecord) -> FoundRun:
    # An id may be resumed: each time there is a new log, which becomes a run of its own with its own start.
    key = f"wandb:{run.entity}/{run.project}/{run.id}@{run.started_at:.3f}"
    name = run.name or run.id
    beside = sorted(path for path in (log.parent / "files").rglob("*") if path.is_file())
    return FoundRun(key, "wandb", name, log.parent, (log, *beside), run.started_at, run.notes)


@dataclass(slots=True)
class _Reading:
    folder: Path
    started_at: float
    seen: set[str] = field(default_factory=set)  # names of metrics in the history
    summary: dict[str, Any] = field(default_factory=dict)
    files: dict[str, None] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)  # files that are used by media
    left_out: Counter[str] = field(default_factory=Counter)
    environment: dict[str, Any] = field(default_factory=dict)
    step: int = 0
    time: float = 0.0
    ended: Ended | None = None

    def take(self, kind: int, message: bytes) -> Iterator[Item]:
        if kind == wandb_reader.HISTORY:
            yield from self._history(wandb_reader.history_of(message))
        elif kind == wandb_reader.RUN:
            yield from self._run(wandb_reader.run_of(message))
        elif kind == wandb_reader.CONFIG:
            yield from self._config(wandb_reader.update_of(message))
        elif kind == wandb_reader.SUMMARY:
            update = wandb_reader.update_of(message)
            self.summary |= dict(wandb_reader.leaves(update.values))
            for name in update.removed:
                self.summary.pop(name, None)
        elif kind == wandb_reader.STATS:
            yield from self._stats(wandb_reader.stats_of(message))
        elif kind == wandb_reader.FILES:
            self.files |= dict.fromkeys(wandb_reader.files_of(message))
        elif kind == wandb_reader.ENVIRONMENT:
            self.environment |= wandb_reader.environment_of(message)
            if commit := wandb_reader.commit_of(message):
                yield Facts(tags={"git.commit": commit})
        elif kind == wandb_reader.EXIT:
            code = wandb_reader.exit_code(message)
            self.ended = Ended("failed" if code else "succeeded", self.time, f"exit code {code}")
        elif (unknown := wandb_reader.other(kind)) is not None:
            self.left_out[unknown] += 1

    def rest(self) -> Iterator[Item]:
        yield from self._summary()
        if packages := self._packages():
            self.environment["packages"] = packages
        if self.environment:
            yield Facts(environment=self.environment)
        yield from self._kept()
        for what, count in sorted(self.left_out.items()):
            yield LeftOut(f"{count} {what}")
        end = self.time or self.started_at
        # W&B writes an exit record when the script exits: without one the script was killed, or is still running.
        yield self.ended or Ended("stopped", end, "its log has no end: it was killed, or was still running")

    def _run(self, run: wandb_reader.RunRecord) -> Iterator[Item]:
        self.time = max(self.time, run.started_at)
        tags = {f"wandb.{name}": getattr(run, name) for name in ("id", "entity", "project", "group", "sweep")}
        tags |= {"job_type": run.job_type, "git.commit": run.commit, "git.remote": run.remote}
        tags |= dict.fromkeys((tag for tag in run.tags if tag), "true")
        yield Facts(flat(run.config), {key: value for key, value in tags.items() if value})
        if run.host:
            self.environment.setdefault("host", {"name": run.host})

    def _packages(self) -> dict[str, str]:
        try:
            lines = (self.folder / "requirements.txt").read_text(errors="replace").splitlines()
        except OSError:
            return {}
        pairs = (line.partition("==") for line in lines)
        return {name.strip(): version.strip() for name, _, version in pairs if version}

    def _config(self, update: wandb_reader.Update) -> Iterator[Item]:
        update.values.pop("_wandb", None)
        if update.values:
            yield Facts(params=flat(update.values))

    def _history(self, history: wandb_reader.History) -> Iterator[Item]:
        self.step = history.step
        time = history.values.get("_timestamp")
        if isinstance(time, int | float) and math.isfinite(time):
            self.time = float(time)
        numbers: dict[str, float] = {}
        for name, value in sorted(wandb_reader.leaves(history.values), key=lambda leaf: leaf[0]):  # W&B shuffles them
            if name.split(".")[0] in _INTERNAL:
                continue
            self.seen.add(name)
            if isinstance(value, bool | int | float):
                numbers[name] = _number(value)
            elif value is not None:
                yield from self._shown(name, value)
        if numbers:
            yield Rows(tuple(numbers), [self.step], [self.time], [list(numbers.values())])

    def _shown(self, name: str, value: Any) -> Iterator[Item]:
        made = shown(self.folder, name, value, self.step, self.time)
        if isinstance(made, str):
            self.left_out[made] += 1
            return
        self.taken |= {each.about["path"] for each in made if "path" in each.about}
        yield from made

    def _stats(self, stats: wandb_reader.Stats) -> Iterator[Item]:
        """System metrics beside those that Muster measures; the step is whole seconds since the start."""
        found = {f"system/{name}": _number(value) for name, value in stats.values.items() if _is_number(value)}
        if found:
            step = max(0, int(stats.time - self.started_at))
            yield Rows(tuple(found), [step], [stats.time], [list(found.values())])

    def _summary(self) -> Iterator[Item]:
        """Metrics that only the summary has, as points at the last step."""
        numbers = {
            name: _number(value)
            for name, value in sorted(self.summary.items())
            if name not in self.seen and name.split(".")[0] not in (*_INTERNAL, "_step") and _is_number(value)
        }
        if numbers:
            yield Rows(tuple(numbers), [self.step], [self.time], [list(numbers.values())])

    def _kept(self) -> Iterator[Item]:
        """Files that the log names, and other regular files in the folder. Follows a link only if the log names it."""
        named = dict(self.files)
        if self.folder.is_dir():
            there = sorted(path for path in self.folder.rglob("*") if path.is_file() and not path.is_symlink())
            named |= dict.fromkeys(str(path.relative_to(self.folder)) for path in there)
        for name in named:
            if name in self.taken:
                continue
            path = self.folder / name
            if ".." in Path(name).parts or Path(name).is_absolute():
                self.left_out[f"files outside of the run's folder ({name})"] += 1
            elif not path.is_file():
                self.left_out[f"files that are not there ({name})"] += 1
            else:
                yield ImportedFile(name, path)


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float)


def _number(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
