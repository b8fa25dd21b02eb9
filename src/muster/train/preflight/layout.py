"""The check that two processes compute what one does, for programs of the hook that reduce gradients themselves."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import torch.distributed as dist

from muster.checks.findings import Check, Finding, Result, failed, not_applicable, ok, unknown
from muster.train.preflight.children import ChildFailed, free_port, gang_environment, gather
from muster.train.preflight.nests import count_rows, rows
from muster.train.preflight.program import Program, Unusable, quiet
from muster.train.preflight.training import apart, gradients_of, stepped, tolerance

WORLD: Final = 2


def check_hook_layout(program: Program, before: Sequence[Result], limit: float, left_out: bool) -> Result:
    """Runs the program's own step in a gang of two processes with gloo."""
    began = time.monotonic()
    if left_out:
        found = not_applicable("left out: by skip=")
    elif not program.distributed:
        found = not_applicable("not declared distributed=True")
    elif program.step is None:
        found = unknown("distributed=True without a step=", "Give step=, which reduces the gradients over processes.")
    elif any(each.name == "loss" and each.status != "ok" for each in before):
        found = unknown("not judged, as loss failed", "Mend loss first.")
    else:
        found = _compared(program, limit)
    return Result("unit", LAYOUT.name, LAYOUT.proves, found, time.monotonic() - began)


def compare(alone: dict[str, Any], ranks: Sequence[dict[str, Any]]) -> Finding:
    """What the gradients of one process and of each rank say."""
    equal = alone["equal"]
    between, where, _ = apart(ranks[0]["gradients"], ranks[1]["gradients"])
    if between > equal:
        return failed(
            f"the processes step with other gradients: they differ by {between:.1%} at {where}",
            "Reduce every gradient over all processes before the optimizer's step.",
            difference=between,
        )
    difference, where, ratio = apart(alone["gradients"], ranks[0]["gradients"])
    if difference > equal:
        return failed(
            f"gradients of {WORLD} processes are {ratio:.3g} times those of one, {difference:.1%} apart at {where}",
            "Divide the sum over processes by their number, or, if they have different numbers of items, by all items.",
            difference=difference, ratio=ratio,
        )  # fmt: skip
    weights, where, _ = apart(ranks[0]["weights"], ranks[1]["weights"])
    if weights > equal:
        return failed(
            f"after a step the processes have other weights, at {where}", "Begin and step with equal weights."
        )
    return ok(f"gradients of {WORLD} processes are those of one, to {max(difference, 1e-7):.1g}", difference=difference)


def _compared(program: Program, limit: float) -> Finding:
    try:
        (alone,) = gather(_alone, [(program,)], limit)
        port = free_port()
        return compare(alone, gather(_ranked, [(program, rank, port) for rank in range(WORLD)], limit))
    except ChildFailed as error:
        hint = "Two processes with gloo must be able to build the model and to make a step."
        return (unknown if "did not end" in str(error) else failed)(f"the program {error}", hint)


def _alone(program: Program) -> dict[str, Any]:
    return {"gradients": gradients_of(program, [_even(program)]), "equal": tolerance(program)}


def _ranked(program: Program, rank: int, port: int) -> dict[str, Any]:
    batch = _even(program)
    os.environ.update(gang_environment(rank, WORLD, port))
    dist.init_process_group("gloo")
    try:
        made = program.make()
        quiet(made.model)
        half = count_rows(batch) // WORLD
        gradients = stepped(program, made, [rows(batch, rank * half, (rank + 1) * half)])
        weights = {name: each.detach().clone() for name, each in made.model.named_parameters()}
        dist.barrier()
        return {"gradients": gradients, "weights": weights}
    finally:
        with suppress(RuntimeError):
            dist.destroy_process_group()


def _even(program: Program) -> Any:
    batch = program.take()
    count = count_rows(batch) // WORLD * WORLD
    if not count:
        raise Unusable("batch(0) has one sample, which can't be divided over two processes")
    return rows(batch, 0, count)


LAYOUT: Final = Check("layout", "Two processes compute the gradients of one.", lambda _: ok(""))
