"""Evaluation: the mean loss and a task's other metrics on held-out samples, always the same ones, in any layout."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from muster import runtime
from muster.data.loader import Loader
from muster.train.feed import micro, order_of
from muster.train.session import Session
from muster.train.task import Data, Measures


def evaluate(run: Session) -> dict[str, float]:
    """Means over the items of `evaluate.batches` batches: the same on every rank, reported by the first."""
    held_out = run.plan.held_out
    if held_out is None:
        return {}
    with runtime.phase("evaluating"):
        figures = _means(run, held_out)
    if run.gang.leads:
        run.reporter.evaluation(run.step, figures)
    return figures


def _means(run: Session, held_out: Data) -> dict[str, float]:
    plan = run.plan
    sums = _Sums(run)
    run.watch.paused = True
    loss, items = torch.zeros((), device=run.gang.device), 0
    with _loader(run, held_out) as loader:
        for number in range(_batches(run, held_out)):
            batches = loader.at(number)
            items += sum(plan.task.items(batch.arrays) for batch in batches)
            micros = [micro(plan.task, batch.arrays, run.gang.device) for batch in batches]
            loss += run.prepared.evaluate(micros, sums.loss)
    counted = torch.tensor(float(items), device=run.gang.device)
    counted = run.mesh.reduce(counted, "dp", "fsdp")
    figures = {"loss": float(loss / counted), **{name: float(each / counted) for name, each in sums.reduced().items()}}
    run.watch.paused = False
    run.watch.mark("evaluate")
    return figures


class _Sums:
    """Sums a task's additional metrics on the ranks that have the model's output."""

    def __init__(self, run: Session) -> None:
        self.run = run
        self.sums: dict[str, Tensor] = {}

    def loss(self, output: Any, batch: Any) -> Tensor:
        task = self.run.plan.task
        if isinstance(task, Measures):
            for name, value in task.measure(output, batch).items():
                self.sums[name] = self.sums.get(name, torch.zeros_like(value)) + value
        return task.loss(output, batch)

    def reduced(self) -> dict[str, Tensor]:
        """Reduces over all ranks. Only the last pipeline stage has an output, so the others get the names first."""
        task = self.run.plan.task
        if not isinstance(task, Measures):
            return {}
        nothing = torch.zeros((), device=self.run.gang.device)
        found = {name: self.sums.get(name, nothing).float() for name in task.measures}
        return {name: self.run.mesh.reduce(value, "pp", "dp", "fsdp") for name, value in found.items()}


def _loader(run: Session, held_out: Data) -> Loader:
    plan, mesh = run.plan, run.mesh
    order = order_of(run.config, held_out, run.config.data.batch)
    samples = [each.samples for each in held_out.supplies]
    return Loader(
        samples, order, mesh.data_world, mesh.data_rank, plan.micros, held_out.collate, 1, decode=held_out.decode
    )


def _batches(run: Session, held_out: Data) -> int:
    """The requested number of batches, but each sample at most once."""
    whole = sum(len(each.samples) for each in held_out.supplies) // run.config.data.batch
    return max(1, min(run.config.evaluate.batches, whole))
