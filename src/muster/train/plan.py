"""Checks a configuration against the processes, the model and the data, before it uses a device."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from muster.data.errors import DataError
from muster.data.order import Order
from muster.data.world import check as check_batch
from muster.train.config import Config
from muster.train.errors import ConfigError, MeshError, Problem, TrainError
from muster.train.feed import order_of
from muster.train.mesh import DIMS, Layout, Mesh
from muster.train.parallel import check as check_parts
from muster.train.parallel.pipeline import check_micros
from muster.train.task import Data, Initialises, Task, make


@dataclass(frozen=True, slots=True)
class Plan:
    """A checked configuration: everything is opened, and nothing is on a device yet."""

    config: Config
    task: Task
    layout: Layout
    micros: int  # micro-batches per step, the same on every rank
    model: nn.Module  # on "meta" if the task fills the weights itself, else with weights in host memory
    data: Data
    order: Order
    held_out: Data | None  # for evaluation


def make_plan(config: Config, world: int) -> Plan:
    """The plan for this number of processes. Raises ConfigError with every problem."""
    problems: list[Problem] = []
    task = make(config, problems)
    layout = _layout(config, world, problems)
    micros = _micros(config, layout, problems) if layout else None
    if wrong := config.schedule.wrong(config.steps):
        problems.append(Problem("schedule", wrong, f"a schedule for {config.steps} steps"))
    model = build(task, config.seed, problems) if task else None
    data = _data(config, task, problems) if task and model is not None else None
    if model is not None and layout is not None:
        _check_split(config, task, model, layout, micros, problems)
    if problems:
        raise ConfigError(problems)
    assert task is not None
    assert layout is not None
    assert micros is not None
    assert data is not None
    assert model is not None
    return Plan(config, task, layout, micros, model, data[0], data[1], data[2])


def build(task: Task, seed: int, problems: list[Problem]) -> nn.Module | None:
    """The task's model; without memory if the task fills it itself."""
    torch.manual_seed(seed)  # the same on every rank, so that all build the same weights
    try:
        with torch.device("meta" if isinstance(task, Initialises) else "cpu"):
            return task.build()
    except ConfigError as error:
        for each in error.problems:
            where = "model" if each.where == "model" else f"model.{each.where}"
            problems.append(Problem(where, each.given, each.expected, each.hint))
    except TrainError as error:
        problems.append(Problem("model", "what can't be built", "a model", str(error)))
    return None


def _layout(config: Config, world: int, problems: list[Problem]) -> Layout | None:
    try:
        config.mesh.check(world)
        return config.mesh.resolve(world)
    except MeshError as error:
        problems.append(Problem("mesh", str(config.mesh), f"a product of {world}, the number of processes", str(error)))
        return None


def _micros(config: Config, layout: Layout, problems: list[Problem]) -> int | None:
    """Micro-batches of each step: as few as keep each of them at `data.micro_batch` samples or below."""
    batch, size, ranks = config.data.batch, config.data.micro_batch, layout.data_world
    micros = 1 if size is None else -(-batch // (ranks * size))
    try:
        check_batch(batch, ranks, micros, even=layout.pp > 1)
        return micros
    except DataError as error:
        wanted = f"a multiple of {ranks * micros}" if layout.pp > 1 else f"{ranks * micros} or more"
        problems.append(Problem("data.batch", str(batch), wanted, str(error)))
        return None


def _data(config: Config, task: Task, problems: list[Problem]) -> tuple[Data, Order, Data | None] | None:
    try:
        data, held_out = task.data("train"), task.data("evaluate")
        if data is None or not data.supplies:
            problems.append(Problem("data.sources", "nothing", "data to train on", "Name one source or more."))
            return None
        if config.evaluate.every and held_out is None:
            problems.append(Problem("data.evaluate", "nothing", "held-out data, as evaluate.every is given"))
            return None
        return data, order_of(config, data, config.data.batch), held_out
    except DataError as error:
        problems.append(Problem("data", "samples that can't be used", "readable data", str(error)))
        return None


def _check_split(
    config: Config, task: Task | None, model: nn.Module, layout: Layout, micros: int | None, problems: list[Problem]
) -> None:
    mesh = Mesh(layout, torch.device("cpu"), None, dict.fromkeys(DIMS, 0))  # only sizes: no process group exists yet
    try:
        check_parts(model, mesh, config.parallel, getattr(task, "sequence", None), config.precision)
        if micros is not None and layout.pp > 1:
            check_micros(micros, mesh, config.parallel)
    except MeshError as error:
        problems.append(Problem("mesh", str(layout), "a layout that the model can be divided into", str(error)))
