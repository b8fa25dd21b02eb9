"""Checks of what every program has: a batch, weights, a loss, outputs, an optimizer, and where all that is."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import torch
from torch import Tensor

from muster.checks.findings import Finding, failed, not_applicable, ok, some, unknown
from muster.train.preflight.nests import count_rows, tensors
from muster.train.preflight.program import Program

LARGEST_HALF: Final = 65_504  # of float16


def check_batch(program: Program) -> Finding:
    first, second = program.take(0), program.take(1)
    shapes = [f"{where} {_kind(each)}" for where, each in tensors(first)]
    other = {where: each.dtype for where, each in tensors(second)}
    if wrong := [where for where, each in tensors(first) if other.get(where) != each.dtype]:
        return failed(f"batch(0) and batch(1) differ in {some(wrong)}", "Every batch needs the same parts and dtypes.")
    bad = [where for where, each in tensors(first) if each.is_floating_point() and not bool(each.isfinite().all())]
    if bad:
        return failed(f"{some(bad)} has values that are not finite", "Look at the data, and at what normalises it.")
    if not count_rows(first):
        return failed(f"no tensor of batch(0) has samples: {some(shapes)}", "Return one sample or more.")
    return ok(some(shapes), samples=count_rows(first))


def check_weights(program: Program) -> Finding:
    model = program.make().model
    named = [*model.named_parameters(), *model.named_buffers()]
    if meta := [name for name, each in named if each.is_meta]:
        return failed(
            f"{some(meta)} on the meta device, without values", "Allocate and fill them: `to_empty`, then init."
        )
    if bad := [name for name, each in named if _floating(each) and not bool(torch.isfinite(each).all())]:
        if all("mask" in name for name in bad):
            return ok(f"finite, but for the masks {some(bad)}")
        return failed(f"{some(bad)} with NaN or infinite values from the start", "Look at how they are initialised.")
    count = sum(each.numel() for each in model.parameters())
    learned = sum(each.numel() for each in model.parameters() if each.requires_grad)
    if not learned:
        return failed(f"none of {count:,} parameters is trainable", "Set requires_grad on what is to be trained.")
    return ok(f"{count:,} parameters, {learned:,} of them trainable, all finite", parameters=count, trainable=learned)


def check_loss(program: Program) -> Finding:
    made, batch = program.make(), program.take()
    modes = [module.training for module in made.model.modules()]
    loss = program.value(made.model, batch)
    number = float(loss.detach())
    if loss.dtype in (torch.float16, torch.bfloat16):
        why = f"ends at {LARGEST_HALF}" if loss.dtype is torch.float16 else "has three digits"
        return failed(
            f"the loss is {number:g} in {_plain(loss.dtype)}, which {why}",
            "Compute it in float32: `F.cross_entropy(logits.float(), labels)`.",
        )
    if not loss.is_floating_point():
        return failed(f"the loss is {_plain(loss.dtype)}", "A loss is a floating-point number.")
    if not math.isfinite(number):
        return failed(
            f"the loss of batch(0) is {number}", "Look for a log of 0, a division by 0, or a sum that overflows."
        )
    if [module.training for module in made.model.modules()] != modes:
        return failed(
            "the loss leaves the model in another mode", "Call `model.eval()` outside, and `train()` afterwards."
        )
    return ok(f"{number:.4g}, {_plain(loss.dtype)}", loss=number)


def check_outputs(program: Program) -> Finding:
    if program.outputs is None:
        return not_applicable("no outputs= were given", "Give outputs=, what the loss is computed from.")
    model, batch = program.make().model, program.take()
    for training in (True, False):
        found = program.output(model.train(training), batch)
        if not found.is_floating_point():
            return failed(f"the outputs are {_plain(found.dtype)}", "Return logits or values, not decisions.")
        if not bool(found.isfinite().all()):
            bad, mode = int((~found.isfinite()).sum()), "train" if training else "eval"
            return failed(
                f"{bad} of {found.numel()} outputs are not finite, in {mode} mode",
                "Look for float16, a softmax over nothing, or a division by 0.",
            )
    if program.labels is None:
        return ok(_kind(found))
    labels = program.labels(batch)
    return _fitting(found, labels) or ok(f"{_kind(found)}, for labels {_kind(labels)}")


def check_optimizer(program: Program) -> Finding:
    made = program.make()
    if not made.optimizers:
        return not_applicable("build returned no optimizer", "Return (model, optimizer).")
    named = {id(each): name for name, each in made.model.named_parameters()}
    held = [each for one in made.optimizers for group in one.param_groups for each in group["params"]]
    times = {key: sum(id(each) == key for each in held) for key in {id(each) for each in held}}
    wanted = made.trainable()
    if left := [name for name, each in wanted.items() if id(each) not in times]:
        return failed(
            f"{len(left)} of {len(wanted)} trainable parameters are in no optimizer: {some(left)}",
            "Give them to it, or set requires_grad to False if they are to stay.",
        )
    if twice := [named.get(key, "one that is not the model's") for key, count in times.items() if count > 1]:
        return failed(
            f"more than once in the optimizers: {some(twice)}", "A step would change them twice: list each once."
        )
    if foreign := sum(key not in named and _learns(held, key) for key in times):
        return failed(
            f"{foreign} parameters of the optimizer are not the model's",
            "Make the optimizer after the model is moved, wrapped or loaded.",
        )
    rates = sorted(set(made.rates()))
    return ok(f"{len(wanted)} trainable parameters, each once; learning rates {rates}", learning_rates=rates)


def check_devices(program: Program) -> Finding:
    made = program.make()
    places: dict[str, list[str]] = {}
    for name, each in [*made.model.named_parameters(), *made.model.named_buffers()]:
        places.setdefault(str(each.device), []).append(name)
    for one in made.optimizers:
        for parameter, state in one.state.items():
            if strays := [key for key, each in state.items() if _elsewhere(each, parameter)]:
                places.setdefault(str(state[strays[0]].device), []).append(f"the optimizer's {strays[0]}")
    if len(places) <= 1:
        return ok(f"all on {next(iter(places), 'no device')}")
    most = max(places, key=lambda place: len(places[place]))
    words = "; ".join(f"{some(names)} on {place}" for place, names in places.items() if place != most)
    if len({place.split(":")[0] for place in places}) == 1:
        return unknown(f"several devices: {words}, the rest on {most}", "Meant so? Then leave the check out: skip=.")
    return failed(
        f"{words}; the rest on {most}", "Register tensors as buffers, and move the model before the optimizer is made."
    )


def _fitting(outputs: Tensor, labels: Tensor) -> Finding | None:
    """What is wrong with whole-number labels for these logits, as far as the shapes tell."""
    if labels.is_floating_point() or labels.dtype is torch.bool or outputs.ndim != labels.ndim + 1:
        return None
    last = outputs.shape[:-1] == labels.shape
    if not last and (outputs.shape[0], *outputs.shape[2:]) != tuple(labels.shape):
        return failed(
            f"logits {list(outputs.shape)} for labels {list(labels.shape)}", "One row of logits for each label."
        )
    classes, counted = outputs.shape[-1 if last else 1], labels[labels >= 0]
    if counted.numel() == 0:
        return failed("batch(0) has no label that counts: all are negative", "Give a batch with something to learn.")
    if int(counted.max()) >= classes:
        return failed(
            f"labels go to {int(counted.max())}, with {classes} logits", f"Labels go from 0 to {classes - 1}."
        )
    return None


def _learns(held: Iterable[Tensor], key: int) -> bool:
    return any(id(each) == key and each.requires_grad for each in held)


def _elsewhere(value: object, parameter: Tensor) -> bool:
    return isinstance(value, Tensor) and value.ndim > 0 and value.device != parameter.device


def _floating(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _kind(tensor: Tensor) -> str:
    return f"{_plain(tensor.dtype)}{list(tensor.shape)}"


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
