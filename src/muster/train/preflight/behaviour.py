"""Checks of how a model behaves: gradients, train and eval mode, and the same numbers from the same seed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import torch
from torch import nn

from muster.checks.findings import Finding, failed, ok, some, unknown
from muster.train.preflight.nests import cloned, digest
from muster.train.preflight.program import SEED, Program, seed_all

GRADIENT_BATCHES: Final = 4  # until every parameter must have had a gradient
ROUNDING: Final = 1e-4  # relative difference of losses on a device: it adds in another order each time
REPEATED: Final = 3  # steps of the two trainings that must be equal


def check_gradients(program: Program) -> Finding:
    """At the initial values, and near them: of a product whose other factor begins with zeros the gradient is zero."""
    made = program.make()
    named = made.trainable()
    missing, zero = set(named), set(named)
    for number in range(GRADIENT_BATCHES):
        if number == 1:
            jitter(made.model)
        made.model.zero_grad(set_to_none=True)
        loss = program.value(made.model, program.take(number), SEED + number)
        if not loss.requires_grad:
            return failed(
                "the loss depends on no parameter: its graph was cut",
                "Look for `.detach()`, `.item()`, `torch.no_grad()`, or a tensor made anew from numbers.",
            )
        loss.backward()  # type: ignore[no-untyped-call]
        for name, each in named.items():
            if each.grad is None:
                continue
            missing.discard(name)
            if not bool(torch.isfinite(each.grad).all()):
                return failed(f"the gradient of {name} is not finite", "Look at the dtype, logs, roots and divisions.")
            if bool(each.grad.any()):
                zero.discard(name)
        if not zero:
            break
    if missing:
        return failed(
            f"{len(missing)} of {len(named)} trainable parameters are not connected to the loss: "
            f"{_some(missing, named)}",
            "Use them, look for `.detach()` on the way, or set requires_grad to False.",
        )
    if zero:
        return failed(
            f"{len(zero)} of {len(named)} trainable parameters have zero gradients in {GRADIENT_BATCHES} batches: "
            f"{_some(zero, named)}",
            "Look for a factor of 0, an activation that is always off, or a branch that is never taken.",
        )
    return ok(f"all {len(named)} trainable parameters have finite gradients that are not zero", parameters=len(named))


def check_modes(program: Program) -> Finding:
    """With changed weights: dropout before a product with zeros has no effect."""
    model, batch = program.make().model, program.take()
    jitter(model)
    before = digest(dict(model.state_dict()))
    still = [_loss(program, model.eval(), batch, seed) for seed in (1, 2)]
    if _differ(model, *still):
        return failed(
            f"in eval mode the loss depends on random numbers: {still[0]:.6g}, then {still[1]:.6g}",
            "Use `nn.Dropout`, or `F.dropout(x, p, training=self.training)`.",
        )
    if digest(dict(model.state_dict())) != before:
        return failed(
            f"a forward pass in eval mode changes {some(_moved(program, batch))}",
            "Use running statistics in eval mode, and update them in training only.",
        )
    moving = [_loss(program, model.train(), batch, seed) for seed in (1, 1, 2)]
    drops = [name for name, each in model.named_modules() if _drops(each)]
    norms = [name for name, each in model.named_modules() if isinstance(each, nn.modules.batchnorm._BatchNorm)]
    acts = _differ(model, moving[0], moving[1]) or _differ(model, moving[0], moving[2])
    if drops and not acts and all(dict(model.named_modules())[name].training for name in drops):
        return failed(f"{some(drops)} with p > 0 changes nothing in train mode", "Apply it, or take it out.")
    if not acts and not norms and abs(moving[0] - still[0]) > 1e-5 * max(1.0, abs(still[0])):
        return unknown(
            f"train and eval mode differ, {moving[0]:.6g} and {still[0]:.6g}, without dropout or batch norm",
            "Meant so? Then leave the check out: skip=.",
        )
    kinds = [f"dropout ({len(drops)})"] * bool(drops) + [f"batch norm ({len(norms)})"] * bool(norms)
    what = f"differ by {' and '.join(kinds) or 'random numbers'}" if acts or norms else "are the same"
    return ok(f"train and eval mode {what}; eval mode is fixed and changes nothing")


def check_repeat(program: Program) -> Finding:
    seed_all(SEED)
    if digest(program.batch(0)) != digest(program.take(0)):
        return failed(
            "batch(0) is another one when it is asked for again", "Let batch(i) depend on i and the seed alone."
        )
    losses, ends = zip(*(_trained(program) for _ in range(2)), strict=True)
    if losses[0] == losses[1] and ends[0] == ends[1]:
        return ok(f"{REPEATED} steps twice: the same losses and weights, bit for bit", losses=list(losses[0]))
    pairs = list(zip(*losses, strict=True))
    at = next((step for step, (one, two) in enumerate(pairs) if one != two), None)
    words = (
        f"losses differ from step {at + 1} on: {pairs[at][0]!r} and {pairs[at][1]!r}"
        if at is not None
        else "weights differ"
    )
    hint = "Look for generators without the seed, sets and threads; for a GPU see torch.use_deterministic_algorithms."
    model = program.make().model
    if at is not None and not any(_differ(model, one, two) for one, two in pairs):
        return ok(f"with the same seed {words}: by rounding, as a device adds in another order each time")
    return failed(f"with the same seed {words}", hint)


def _differ(model: nn.Module, one: float, two: float) -> bool:
    """Two losses that should be equal: on the CPU to the bit, on a device but for rounding."""
    on_device = any(each.device.type != "cpu" for each in model.parameters())
    return one != two if not on_device else not abs(one - two) <= ROUNDING * max(abs(one), abs(two))


def jitter(model: nn.Module, size: float = 0.02) -> None:
    """Adds small random numbers to every trainable parameter."""
    seed_all(SEED)
    with torch.no_grad():
        for each in model.parameters():
            if each.requires_grad and each.is_floating_point():
                each.add_(torch.randn_like(each), alpha=size)


def _trained(program: Program) -> tuple[tuple[float, ...], str]:
    made = program.make()
    losses = []
    for number in range(REPEATED):
        losses.append(float(program.value(made.model, program.take(number), SEED + number).detach()))
        if made.optimizers:
            program.train_on(made, [program.take(number)])
    return tuple(losses), digest(dict(made.model.named_parameters()))


def _moved(program: Program, batch: object) -> list[str]:
    model = program.make().model.eval()
    before = {name: cloned(each) for name, each in model.state_dict().items()}
    _loss(program, model, batch, 1)
    return [name for name, each in model.state_dict().items() if not torch.equal(each, before[name])]


def _loss(program: Program, model: nn.Module, batch: object, seed: int) -> float:
    with torch.no_grad():
        return float(program.value(model, cloned(batch), seed))


def _drops(module: nn.Module) -> bool:
    return isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0


def _some(names: set[str], order: Iterable[str]) -> str:
    return some([name for name in order if name in names])
