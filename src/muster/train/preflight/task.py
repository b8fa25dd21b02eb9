"""A task of muster.train as a program for the checks: its own step, and its own division over two processes."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor, nn

from muster.checks.findings import Check, Finding, Report, Result, failed, not_applicable, ok, some, unknown
from muster.data.loader import Loader
from muster.train.config import Config
from muster.train.feed import micro
from muster.train.mesh import Layout, make_mesh
from muster.train.optim import adamw, measure
from muster.train.optim import step as update
from muster.train.parallel import Micro, Prepared, parallelize
from muster.train.plan import Plan, make_plan
from muster.train.prefetch import to_device
from muster.train.preflight.children import ChildFailed, free_port, gang_environment, gather
from muster.train.preflight.hook import LIMIT, about
from muster.train.preflight.program import Program, quiet, seed_all
from muster.train.preflight.rung import run_checks
from muster.train.preflight.tiny import layouts, tiny, undropped
from muster.train.preflight.unit import UNIT
from muster.train.task import Initialises

STEPS: Final = 3  # of a division; from the second on, the optimizer's own state counts
EQUAL: Final = 2e-3  # relative difference of losses and norms that count as equal
_TARGETS: Final = ("targets", "labels")  # names of a batch's part that the outputs are compared with


def check_task(config: Config, *, full_size: bool = False, skip: Sequence[str] = (), limit: float = LIMIT) -> Report:
    """Runs the checks of the rung `unit` on a task. Raises ConfigError, with every mistake, if it can't be planned."""
    began = time.monotonic()
    small, notes = tiny(config, full_size)
    program = task_program(small)
    results = run_checks("unit", program, UNIT, limit, dict.fromkeys(skip, "by skip="), forks=_free())
    results.append(_layout(config, small, results, limit, LAYOUT.name in skip))
    return Report(config.task, results, notes, about(), time.monotonic() - began)


def task_program(config: Config) -> Program:
    """The functions of the hook for a planned task on one process."""
    plan = make_plan(config, 1)
    task = plan.task
    samples = [each.samples for each in plan.data.supplies]
    loader = Loader(samples, plan.order, collate=plan.data.collate, ahead=0, decode=plan.data.decode)
    prepared: dict[int, Prepared] = {}

    def build() -> tuple[nn.Module, torch.optim.Optimizer]:
        divided = _divided(make_plan(config, 1), Layout())
        model = divided.parts[0]
        prepared[id(model)] = divided
        return model, adamw(divided.parts, config.optimizer)

    def batch(number: int) -> Any:
        return to_device(loader.at(number)[0].arrays, torch.device("cpu"))

    def items(given: dict[str, Tensor]) -> int:
        return max(1, task.items({name: each.numpy() for name, each in given.items()}))

    def loss(model: nn.Module, given: dict[str, Tensor]) -> Tensor:
        return task.loss(model(*task.inputs(given)), given).float() / items(given)

    def outputs(model: nn.Module, given: dict[str, Tensor]) -> Tensor:
        found: Tensor = model(*task.inputs(given))
        return found

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, batches: list[dict[str, Tensor]]) -> float:
        divided = prepared[id(model)]
        micros = [Micro(task.inputs(each), each) for each in batches]
        found = divided.forward_backward(micros, task.loss, sum(items(each) for each in batches))
        update(optimizer)
        optimizer.zero_grad(set_to_none=True)
        return float(found)

    first = batch(0)
    target = next((name for name in _TARGETS if name in first), None)
    return Program(
        build=build, batch=batch, loss=loss, outputs=outputs, step=step, name=config.task,
        labels=(lambda given: given[target]) if target is not None else None,
    )  # fmt: skip


def _layout(given: Config, small: Config, before: Sequence[Result], limit: float, left_out: bool) -> Result:
    began = time.monotonic()
    if left_out:
        found = not_applicable("left out: by skip=")
    elif wrong := [each.name for each in before if each.name in ("loss", "repeat") and each.status != "ok"]:
        found = unknown(f"not judged, as {some(wrong)} failed", f"Mend {some(wrong)} first.")
    else:
        found = _compared(undropped(small), layouts(given), limit)
    return Result("unit", LAYOUT.name, LAYOUT.proves, found, time.monotonic() - began)


def _compared(config: Config, wanted: list[Layout], limit: float) -> Finding:
    try:
        (alone,) = gather(_trained, [(config, Layout(), 0, 0)], limit, forks=_free())
        for layout in wanted:
            port = free_port()
            (found, _) = gather(_trained, [(config, layout, rank, port) for rank in range(2)], limit, forks=_free())
            for name, one, two in ((name, alone[name], found[name]) for name in alone):
                if not math.isclose(one, two, rel_tol=EQUAL):
                    return failed(
                        f"as {layout} the {name} is {two:.6g}, on one process {one:.6g}: {two / one:.3g} times as much",
                        "Let `loss` return the SUM over the items of its batch, and `items` their number; let nothing "
                        "depend on how samples are divided into batches, such as batch norm.",
                    )
    except ChildFailed as error:
        return (unknown if "did not end" in str(error) else failed)(f"the task {error}", "See docs/training.md, mesh.")
    names = " and as ".join(map(str, wanted))
    return ok(f"{STEPS} steps as {names} have the losses and gradient norms of one process, to {EQUAL:g}")


def _trained(config: Config, layout: Layout, rank: int, port: int) -> dict[str, float]:
    """On a rank of a gang: the losses and norms of a few steps, by name."""
    world = layout.dp * layout.fsdp * layout.tp * layout.pp
    if world > 1:
        os.environ.update(gang_environment(rank, world, port))
        dist.init_process_group("gloo")
    parts = 2 if layout.pp > 1 else 1
    batch = config.data.batch // (2 * parts) * 2 * parts
    divided_config = replace(
        config, mesh=layout, data=replace(config.data, batch=batch, micro_batch=batch // parts // layout.data_world)
    )
    plan = make_plan(divided_config, world)
    divided = _divided(plan, layout)
    for part in divided.parts:
        quiet(part)
    optimizer = adamw(divided.parts, config.optimizer)
    samples = [each.samples for each in plan.data.supplies]
    mesh = divided.mesh
    loader = Loader(
        samples, plan.order, mesh.data_world, mesh.data_rank, plan.micros, plan.data.collate, 0, decode=plan.data.decode
    )
    found: dict[str, float] = {}
    for number in range(STEPS):
        seed_all(config.seed)
        batches = loader.at(number)
        count = torch.tensor(float(sum(plan.task.items(each.arrays) for each in batches)))
        total = max(1, int(mesh.reduce(count, "dp", "fsdp")))
        micros = [micro(plan.task, each.arrays, mesh.device) for each in batches]
        loss = divided.forward_backward(micros, plan.task.loss, total)
        found[f"loss of step {number + 1}"] = float(loss)
        norm, factor = measure(divided.parts, mesh, config.clip)
        found[f"gradient norm of step {number + 1}"] = float(norm)
        update(optimizer, factor=factor)
        optimizer.zero_grad(set_to_none=True)
    if world > 1:
        dist.barrier()
        with suppress(RuntimeError):
            dist.destroy_process_group()
    return found


def _divided(plan: Plan, layout: Layout) -> Prepared:
    task, config = plan.task, plan.config
    fill = (lambda part: task.initialise(part, config.seed)) if isinstance(task, Initialises) else None
    return parallelize(plan.model, make_mesh(layout, "cpu"), config.parallel, config.precision, initialise=fill)


def _free() -> bool:
    """Whether this process may be forked: the checks of tasks use the CPU alone."""
    return not torch.cuda.is_initialized()  # type: ignore[no-untyped-call]


LAYOUT: Final = Check(
    "layout", "Two processes, divided as configured, train as one process does.", lambda _: ok("")
)  # fmt: skip
