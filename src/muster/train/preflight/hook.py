"""The hook for any PyTorch program: its model, batches and loss as functions, checked in a minute on a laptop.

from muster.train import preflight

report = preflight.check(
    build=lambda: (model := make_model(), torch.optim.AdamW(model.parameters(), lr=3e-4)),
    batch=lambda number: data[number],
    loss=lambda model, batch: F.cross_entropy(model(batch["x"]), batch["y"]),
)
print(report)
sys.exit(report.exit_status)
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from muster.checks.findings import Report
from muster.train.preflight.layout import LAYOUT, check_hook_layout
from muster.train.preflight.program import LossFn, Program, Steps, generators_kept
from muster.train.preflight.rung import run_checks
from muster.train.preflight.unit import UNIT

LIMIT: Final = 60.0  # seconds for a check


def check(
    build: Callable[[], Any],
    batch: Callable[[int], Any],
    loss: LossFn,
    *,
    outputs: LossFn | None = None,
    labels: Callable[[Any], Tensor] | None = None,
    mask: Callable[[Any], Tensor] | None = None,
    step: Steps | None = None,
    causal: bool | None = None,
    distributed: bool = False,
    lowers_to: float = 0.5,
    skip: Sequence[str] = (),
    limit: float = LIMIT,
    name: str = "a program",
) -> Report:
    """Runs the checks of the rung `unit`. The caller's generators, models and standard output are left alone.

    `build()` returns the model, or (model, optimizer), or (model, optimizer, schedule); optimizers may be a list.
    `batch(number)` returns a batch: tensors in any nest, samples in the first dimension.
    `loss(model, batch)` returns the scalar to minimise; it must not set the model's mode.
    `outputs(model, batch)` returns what the loss is computed from, such as logits [batch, time, classes].
    `labels(batch)` returns what the outputs are compared with, and `mask(batch)` is true where a place is no padding.
    `step(model, optimizer, batches)` is the program's own step of training on a list of micro-batches: gradients, their
    reduction over processes, the optimizer's step. `optimizer` is as `build` returned it.
    `causal` says whether outputs may depend on what follows; by default that is judged by the loss.
    `distributed` says that `build` and `step` work in a process group: then two processes must equal one.
    `lowers_to` is the part of the loss that may be left when a batch is learned by heart.
    `skip` names checks to leave out, `limit` is the time in seconds for each.
    """
    program = Program(
        build=build, batch=batch, loss=loss, outputs=outputs, labels=labels, mask=mask, step=step, causal=causal,
        distributed=distributed, name=name, lowers_to=lowers_to,
    )  # fmt: skip
    known = [each.name for each in UNIT] + [LAYOUT.name]
    if wrong := [each for each in skip if each not in known]:
        raise ValueError(f"skip: {wrong[0]!r} is no check; expected some of {', '.join(known)}")
    began = time.monotonic()
    with generators_kept():
        results = run_checks("unit", program, UNIT, limit, dict.fromkeys(skip, "by skip="))
        results.append(check_hook_layout(program, results, limit, left_out=LAYOUT.name in skip))
    return Report(name, results, (), about(), time.monotonic() - began)


def about() -> Mapping[str, Any]:
    """What the checks ran on."""
    gpus = torch.cuda.device_count()
    device = f"{gpus} x {torch.cuda.get_device_name(0)}" if gpus else "cpu"
    return {"torch": torch.__version__, "python": platform.python_version(), "device": device}
