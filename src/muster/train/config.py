"""The configuration of a run: a tree of dataclasses, read from YAML, TOML or JSON. Owners define their sections.

    task: language                # or package.module:Class
    steps: 300
    model: {shape: tiny}          # the task's own settings
    data: {batch: 32, sources: [{path: data}]}
    mesh: {dp: auto}
    optimizer: {lr: 1e-3}
    checkpoint: {every: 10m, keep: 3}

All mistakes are reported at once, each with its position, the given and the expected value, and the nearest name.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from muster.train.errors import ConfigError, Problem
from muster.train.gang import Device
from muster.train.guards import Guards
from muster.train.mesh import Layout
from muster.train.optim import OptimSettings
from muster.train.parallel import ParallelSettings
from muster.train.precision import Precision
from muster.train.profile import Profile
from muster.train.schedule import Schedule
from muster.train.settings import bounded, duration, parsed, read, short

# ruff: noqa: RUF009 - the functions of `settings` make dataclass fields

_PRECISIONS: Final = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp8": "float8"}


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """One set of samples. The name is part of the shuffle's key and of the ledger: keep it if the files are moved."""

    path: str
    name: str | None = None  # default: the path
    format: str | None = None  # default: the task's
    weight: float = bounded(1.0, above=0)


@dataclass(frozen=True, slots=True)
class DataSettings:
    """The section `data`. `batch` is the global batch, so a run is the same on any number of ranks."""

    batch: int = bounded(32, low=1)  # samples a step
    micro_batch: int | None = bounded(None, low=1)  # samples per micro-batch of a rank; default: its whole share
    sources: tuple[SourceSettings, ...] = ()
    evaluate: tuple[SourceSettings, ...] = ()
    shuffle: bool = True
    seed: int | None = None  # of the order; default: the run's
    ahead: int = bounded(2, low=1)  # steps to read ahead
    workers: int = bounded(0, low=0)  # processes of each rank that read and decode; 0: a thread does
    may_change: bool = False  # allow a resumed run to have other sources, another batch or seed


@dataclass(frozen=True, slots=True)
class Every:
    """An interval in steps or seconds, or automatic (neither): from measured costs and failures."""

    steps: int | None = None
    seconds: float | None = None

    @classmethod
    def parse(cls, raw: Any) -> Every:
        """Parses 50 (steps), "10m" or "auto"."""
        if isinstance(raw, int) and not isinstance(raw, bool) and raw > 0:
            return cls(steps=raw)
        if isinstance(raw, str) and raw.strip() == "auto":
            return cls()
        if isinstance(raw, str) and duration(raw) > 0:
            return cls(seconds=duration(raw))
        raise ValueError(f"{raw!r} is no interval.")


def _memory(raw: Any) -> Every | None:
    """Parses what `Every.parse` does, and off."""
    return None if raw in (False, "off") else Every() if raw is True else Every.parse(raw)


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The section `checkpoint`."""

    where: str | None = None  # a folder, s3://bucket/prefix, gs://..., az://...; the job's folder, or ./checkpoints
    every: Every | None = parsed(None, Every.parse, "steps (50), a duration (10m) or auto")  # the job's, or auto
    memory: Every | None = parsed(Every(), _memory, "auto, off, steps (1) or a duration (30s)")  # the last step, in RAM
    keep: int | None = bounded(None, low=1)  # number of newest ones; default: the job's, or 3
    keep_every: int = bounded(0, low=0)  # checkpoints at multiples of this step are kept forever
    at_end: bool = True  # save after the last step
    wait: bool = False  # block training until each save is written
    tolerate: int = bounded(3, low=0)  # consecutive failed saves that don't end the run
    failures_per_day: float | None = bounded(None, above=0)  # of all devices together, for `every: auto`
    grace: float = parsed(30.0, duration, "a duration, as 30s")  # seconds from SIGTERM to SIGKILL, if not known


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The section `evaluate`: the mean loss on a fixed set of held-out samples."""

    every: int | None = bounded(None, low=1)  # steps; default: never
    batches: int = bounded(8, low=1)  # of the training batch's size
    at_end: bool = True


def _layout(raw: Any) -> Layout:
    if not isinstance(raw, Mapping):
        raise ValueError("A layout is a mapping.")
    return Layout.parse(raw)


@dataclass(frozen=True, slots=True)
class Config:
    """A run."""

    task: str
    steps: int = field(metadata={"low": 1})
    model: dict[str, Any] = field(default_factory=dict)  # read by the task: its `Settings`
    data: DataSettings = field(default_factory=DataSettings)
    seed: int = bounded(1, low=0)
    exact: bool = False  # the same bits in every run and resumed run on a GPU; slower, see docs/training.md
    device: Device = "auto"
    mesh: Layout = parsed(Layout(dp=-1), _layout, "some of dp, fsdp, tp, pp, as {dp: auto, tp: 2}")
    parallel: ParallelSettings = field(default_factory=ParallelSettings)
    precision: Precision = short(Precision(), lambda raw: {"compute": _PRECISIONS.get(raw, raw)})
    optimizer: OptimSettings = field(default_factory=OptimSettings)
    clip: float | None = bounded(1.0, above=0)  # maximum norm of the gradient
    schedule: Schedule = short(Schedule(), lambda raw: {"kind": raw})
    guards: Guards = field(default_factory=Guards)
    checkpoint: Checkpoints = field(default_factory=Checkpoints)
    evaluate: Evaluation = field(default_factory=Evaluation)
    profile: Profile = field(default_factory=Profile)
    folder: str | None = None  # for traces and the file `profile`; default: local checkpoints, or the working folder
    print_every: int = bounded(10, low=1)  # steps between two lines of output
    peak_flops: float | None = bounded(None, above=0)  # of one device, for MFU, if it isn't in the table

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def read_config(source: str | Path | Mapping[str, Any], overrides: Sequence[str] = ()) -> Config:
    """Reads a file or mapping, with `key.key=value` overrides. Raises ConfigError with every mistake."""
    problems: list[Problem] = []
    name = "the configuration" if isinstance(source, Mapping) else str(source)
    raw: Any = source if isinstance(source, Mapping) else _load(Path(source), problems)
    found = None
    if not problems:
        found = read(Config, _overridden(raw, overrides, problems), problems)
    if found is None or problems:
        raise ConfigError(problems, name)
    return found


def _load(path: Path, problems: list[Problem]) -> Any:
    readers: dict[str, Callable[[str], Any]] = {
        ".yaml": _yaml,
        ".yml": _yaml,
        ".toml": tomllib.loads,
        ".json": lambda text: json.loads(text, object_pairs_hook=_once),
    }
    if path.suffix not in readers:
        problems.append(Problem(str(path), f"the ending {path.suffix!r}", f"one of {', '.join(readers)}"))
        return None
    try:
        return readers[path.suffix](path.read_text("utf-8"))
    except FileNotFoundError:
        problems.append(Problem(str(path), "no such file", "a configuration", f"Looked for it in {Path.cwd()}."))
    except (OSError, ValueError) as error:  # all three parsers raise a ValueError for a syntax error
        words = " ".join(str(error).split())
        problems.append(Problem(str(path), words, f"a readable {path.suffix} file"))
    return None


def _yaml(text: str) -> Any:
    try:
        import yaml  # noqa: PLC0415 - optional: TOML and JSON do without
    except ModuleNotFoundError:
        raise ValueError("PyYAML is not installed: install it, or write the file as .toml or .json") from None

    class Loader(yaml.SafeLoader):
        """A YAML loader that rejects duplicate keys; YAML would silently use the last one."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            _once([(self.construct_object(key), None) for key, _ in node.value])
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(text, Loader)  # noqa: S506 - a safe loader
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _once(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    keys = [key for key, _ in pairs]
    for key in keys:
        if keys.count(key) > 1:
            raise ValueError(f"the key {key!r} stands there twice")
    return dict(pairs)


def _overridden(raw: Any, overrides: Sequence[str], problems: list[Problem]) -> Any:
    """A copy with overrides such as `optimizer.lr=1e-3` applied. A value is parsed as JSON, else used as text."""
    tree: Any = _copied(raw)
    for override in overrides:
        path, equals, text = override.partition("=")
        keys = path.split(".")
        if not equals or not all(keys):
            problems.append(Problem(override, "no `key=value`", "a setting such as optimizer.lr=1e-3"))
            continue
        below = tree
        for key in keys[:-1]:
            below = below.setdefault(key, {}) if isinstance(below, dict) else None
        if not isinstance(below, dict):
            problems.append(Problem(override, "a path through something that is no mapping", "a path to a setting"))
            continue
        below[keys[-1]] = _plain(text)
    return tree


def _copied(raw: Any) -> Any:
    return {key: _copied(value) for key, value in raw.items()} if isinstance(raw, Mapping) else raw


def _plain(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None if text in ("", "none") else text
