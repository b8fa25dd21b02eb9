"""A configuration made small for preflight: fewer layers, narrower, shorter samples, one process on the CPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from muster.train.config import Checkpoints, Config, Evaluation
from muster.train.errors import ConfigError, Problem
from muster.train.mesh import DIMS, Layout
from muster.train.plan import make_plan
from muster.train.profile import Profile
from muster.train.task import TASKS, Initialises, make

STEPS: Final = 8  # the fewest that a checked training must be able to make
BATCH: Final = 8  # samples
WIDTHS: Final = ("dim", "heads", "kv_heads", "ffn")
SHAPES: Final[tuple[Mapping[str, int], ...]] = (  # from small to large, until one can be built
    {"layers": 2, "dim": 64, "heads": 4, "kv_heads": 4, "ffn": 128, "sequence": 32},
    {"layers": 2, "dim": 64, "heads": 4, "ffn": 128, "sequence": 32},
    {"layers": 2, "sequence": 32},
    {"layers": 2},
    {"sequence": 32},
    {},
)


def tiny(config: Config, full_size: bool = False) -> tuple[Config, tuple[str, ...]]:
    """The configuration to check, and in words what was changed. Raises ConfigError if even the given one is wrong.

    `full_size` leaves the model and the batch as they are.
    """
    quiet, notes = _alone(config), []
    if full_size or isinstance(make(config, []), Initialises):
        make_plan(quiet, 1)  # the model as it is given; built without memory where the task fills it later
    if full_size:
        return quiet, ("one process on the CPU, at full size",)
    quiet = replace(quiet, data=replace(quiet.data, batch=min(quiet.data.batch, BATCH), micro_batch=None))
    if quiet.data.batch != config.data.batch:
        notes.append(f"batch {config.data.batch} → {quiet.data.batch}")
    small, changes = _small(quiet)
    notes += [f"model.{name} {before if before is not None else 'default'} → {now}" for name, before, now in changes]
    return small, (f"one process on the CPU; {', '.join(notes) or 'nothing made smaller'}",)


def layouts(config: Config) -> list[Layout]:
    """Two processes in each dimension that the configuration uses; replicas if it uses none."""
    used = [name for name in DIMS if getattr(config.mesh, name) != 1]
    return [Layout(**{name: 2}) for name in used] or [Layout(dp=2)]


def undropped(config: Config) -> Config:
    """Without dropout, whose numbers differ from layout to layout."""
    known = {field.name for field in dataclasses.fields(_settings(config))}
    return replace(config, model={**config.model, "dropout": 0.0}) if "dropout" in known else config


def _alone(config: Config) -> Config:
    parallel = replace(config.parallel, compile=False, sequence=False, offload=False)
    precision = config.precision
    if precision.compute == "float8":  # too coarse for what is compared here, and slow on a CPU
        precision = replace(precision, compute="bfloat16")
    checkpoint = Checkpoints(where=config.checkpoint.where, memory=None, at_end=False, wait=True)
    return replace(
        config, device="cpu", mesh=Layout(), parallel=parallel, precision=precision, checkpoint=checkpoint,
        profile=Profile(), evaluate=Evaluation(), steps=max(config.steps, STEPS), print_every=10**9,
    )  # fmt: skip


def _small(config: Config) -> tuple[Config, list[tuple[str, Any, int]]]:
    known = {field.name for field in dataclasses.fields(_settings(config))}
    last: ConfigError | None = None
    for shape in SHAPES:
        wanted = {name: value for name, value in shape.items() if name in known and _less(config, name, value)}
        wide = [name for name in WIDTHS if name in shape and name in known]  # they fit each other
        if "dim" in wanted:
            wanted |= {name: shape[name] for name in wide}
        else:
            wanted = {name: value for name, value in wanted.items() if name not in wide}
        if _shares_keys(config) and wanted.get("kv_heads") == wanted.get("heads") is not None:
            wanted["kv_heads"] //= 2
        small = replace(config, model={**config.model, **wanted})
        try:
            make_plan(small, 1)
        except ConfigError as error:
            last = error
            continue
        return small, [(name, config.model.get(name), value) for name, value in wanted.items()]
    raise last or ConfigError([Problem("model", "nothing", "a model")])


def _less(config: Config, name: str, value: int) -> bool:
    """Whether the value is smaller than that of the configuration, as far as that is told."""
    if config.task in TASKS and config.model.get("hub") is not None and name != "sequence":
        return False  # the weights have their own sizes
    given = config.model.get(name)
    return not isinstance(given, int) or given > value


def _shares_keys(config: Config) -> bool:
    """Whether several heads of the model have one key, as far as its shape tells."""
    shape = getattr(make(config, []), "shape", None)
    return getattr(shape, "kv_heads", 0) != getattr(shape, "heads", 0)


def _settings(config: Config) -> Any:
    problems: list[Problem] = []
    task = make(config, problems)
    if task is None:
        raise ConfigError(problems)
    return getattr(task, "settings", None) if dataclasses.is_dataclass(getattr(task, "settings", None)) else _Nothing()


@dataclasses.dataclass(frozen=True)
class _Nothing:
    """The settings of a task that has none."""
