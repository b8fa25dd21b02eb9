"""Checks of training: one batch can be overfitted, the loss is one of logits, accumulation equals the whole batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from muster.checks.findings import Finding, failed, not_applicable, ok, some, unknown
from muster.train.preflight.nests import count_rows, rows, tensors
from muster.train.preflight.program import SEED, Made, Program, Unusable, quiet, seed_all

FIRST: Final = 8  # steps with the learning rate as it is, in which the loss must fall
STEPS: Final = 60  # and with it, ten and a hundred times it, to overfit the batch
FACTORS: Final = (1.0, 10.0, 100.0)
FEW: Final = 4  # samples to learn by heart
EQUAL: Final = 1e-3  # relative difference of gradients that count as equal
EQUAL_IN_HALF: Final = 0.05  # the same where something is computed in 16 bits; a wrong factor is far more
_HALF: Final = (torch.float16, torch.bfloat16)
_LOGITS: Final = {
    F.cross_entropy: "cross_entropy",
    F.binary_cross_entropy_with_logits: "binary_cross_entropy_with_logits",
}
_LOGS: Final = {F.nll_loss: "nll_loss"}
_DROPOUTS: Final = (
    F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout, torch.dropout,
)  # fmt: skip


def check_overfit(program: Program) -> Finding:
    made = program.make()
    if not made.optimizers:
        return not_applicable("build returned no optimizer", "Return (model, optimizer).")
    batch = _few(program)
    start, after = _fitted(program, batch, FIRST, 1.0)
    rates = made.rates()
    if not after < start:
        verb = "stays at" if after == start else "rises from"
        end = "" if after == start else f" to {after:.4g}"
        hint = "Look for maximize=True, a loss with the wrong sign, or too high a learning rate."
        if after == start:
            hint = "Look for a learning rate of 0, a missing step, or weights that the optimizer does not have."
            if any(rate == 0 for rate in rates):
                hint += " If it begins at 0 to warm up, return the schedule as the third of build."
        return failed(
            f"in {FIRST} steps on one batch the loss {verb} {start:.4g}{end}, with learning rates {sorted(set(rates))}",
            hint, start=start, end=after,
        )  # fmt: skip
    goal, reached = start - (1 - program.lowers_to) * abs(start), {1.0: after}
    for factor in FACTORS:
        _, reached[factor] = _fitted(program, batch, STEPS, factor, goal)
        if reached[factor] <= goal:
            with_rate = "" if factor == 1 else f", with {factor:g} times the learning rate"
            what = f"the loss of {count_rows(batch)} samples falls from {start:.4g} to {reached[factor]:.4g}"
            return ok(f"{what} within {STEPS} steps{with_rate}", start=start, end=reached[factor], factor=factor)
    best = min(reached.values(), key=lambda each: each if math.isfinite(each) else math.inf)
    return failed(
        f"the loss of {count_rows(batch)} samples falls from {start:.4g} to {best:.4g} at best; expected {goal:.4g}",
        "The model can't learn these samples by heart: look at what reaches the outputs, at frozen parts, at labels "
        "that don't fit the inputs. If the loss has a floor, say so with lowers_to=.",
        start=start, end=best, goal=goal,
    )  # fmt: skip


def check_logits(program: Program) -> Finding:
    made, batch = program.make(), program.take()
    made.model.eval()
    with _Calls() as calls:
        loss = program.value(made.model, batch)
    if not calls.seen:
        return not_applicable("the loss calls no cross entropy of PyTorch")
    for name, given, target in calls.seen:
        if (wrong := _not_logits(name, given)) is not None:
            return wrong
        if (wrong := _uphill(name, given, target, loss)) is not None:
            return wrong
    names = list(dict.fromkeys(name for name, _, _ in calls.seen))
    return ok(f"{some(names)} is given what it expects, and the loss falls when the right class is more likely")


def check_accumulation(program: Program) -> Finding:
    if program.step is None:
        return not_applicable("no step= was given", "Give step=, the program's own step on a list of micro-batches.")
    batch = program.take()
    count = count_rows(batch) // 2 * 2
    if count < 2:
        return not_applicable("batch(0) has one sample, which can't be divided")
    whole = gradients_of(program, [rows(batch, 0, count)])
    # With other random numbers: a device draws those of two halves otherwise than those of the whole.
    again, equal = gradients_of(program, [rows(batch, 0, count)], SEED + 1), tolerance(program)
    if apart(whole, again)[0] > equal:
        return unknown(
            "two equal steps have other gradients", "Switch random numbers off where they are no dropout of PyTorch's."
        )
    parts = gradients_of(program, [rows(batch, 0, count // 2), rows(batch, count // 2, count)])
    difference, where, ratio = apart(whole, parts)
    if difference <= equal:
        return ok(
            f"gradients of two halves are those of the whole, to {max(difference, 1e-7):.1g}", difference=difference
        )
    return failed(
        f"gradients of two halves are {ratio:.3g} times those of the whole, and differ by {difference:.1%} at {where}",
        "Divide the loss of each micro-batch by their number; if samples have different numbers of items, divide the "
        "sum over all micro-batches by all items.",
        difference=difference, ratio=ratio,
    )  # fmt: skip


def tolerance(program: Program) -> float:
    """The relative difference of gradients that counts as equal."""
    model, kinds = program.make().model, set[torch.dtype]()

    def note(module: nn.Module, given: Any, returned: Any) -> None:
        kinds.update(each.dtype for _, each in tensors(returned))

    hooks = [module.register_forward_hook(note) for module in model.modules()]
    try:
        with torch.no_grad():
            program.value(model, program.take())
    finally:
        for hook in hooks:
            hook.remove()
    return EQUAL_IN_HALF if kinds & set(_HALF) else EQUAL


def gradients_of(program: Program, batches: list[Any], seed: int = SEED) -> dict[str, Tensor]:
    """The gradients with which the program's own step enters its optimizer. Dropout and clipping are off."""
    made = program.make()
    if not made.optimizers:
        raise Unusable("build returned no optimizer", "Return (model, optimizer).")
    quiet(made.model)
    with _NoDropout():
        return stepped(program, made, batches, seed)


def stepped(program: Program, made: Made, batches: list[Any], seed: int = SEED) -> dict[str, Tensor]:
    """Makes one step. Returns the gradients just before the optimizer takes them."""
    found: dict[str, Tensor] = {}

    def note(*_: Any) -> None:
        for name, each in made.model.named_parameters():
            if each.grad is not None and name not in found:
                found[name.removeprefix("module.")] = each.grad.detach().clone()

    hooks = [each.register_step_pre_hook(note) for each in made.optimizers]
    seed_all(seed)
    try:
        with _unclipped():
            program.train_on(made, batches)
    finally:
        for hook in hooks:
            hook.remove()
    if not found:
        raise Unusable(
            "step called no optimizer's step with gradients", "Call `backward()` and `optimizer.step()` in it."
        )
    return found


def apart(one: dict[str, Tensor], two: dict[str, Tensor]) -> tuple[float, str, float]:
    """The largest difference relative to the size of all, the parameter that has it, and the ratio of the sizes."""
    sizes = [math.sqrt(sum(float(each.double().square().sum()) for each in grads.values())) for grads in (one, two)]
    found = {
        name: float((one[name].double() - two[name].double()).norm()) if name in one and name in two else math.inf
        for name in {*one, *two}
    }
    where = max(found, key=lambda name: found[name])
    size = max(*sizes, 1e-30)
    return found[where] / size, where, sizes[1] / max(sizes[0], 1e-30)


class _NoDropout(TorchFunctionMode):
    """Dropout by a function, which no module of the model knows of, drops nothing."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _DROPOUTS:
            return args[0] if args else (kwargs or {})["input"]
        if func is F.scaled_dot_product_attention:
            return func(*args[:4], *(0.0 for _ in args[4:5]), *args[5:], **{**(kwargs or {}), **_undropped(kwargs)})
        return func(*args, **(kwargs or {}))


def _undropped(kwargs: dict[str, Any] | None) -> dict[str, float]:
    return {"dropout_p": 0.0} if kwargs and "dropout_p" in kwargs else {}


class _Calls(TorchFunctionMode):
    """Keeps what the losses of PyTorch that want logits or log-probabilities are given."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, Tensor, Tensor]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = _LOGITS.get(func) or _LOGS.get(func)
        if name is not None:
            given = [*args, *(kwargs or {}).values()]
            self.seen.append((name, given[0], given[1]))
        return func(*args, **(kwargs or {}))


def _not_logits(name: str, given: Tensor) -> Finding | None:
    values = given.detach().float()
    dim = 1 if values.ndim > 1 else 0
    if name == "nll_loss":
        sums = values.exp().sum(dim)
        if bool((sums - 1).abs().max() > 1e-2):
            total = float(sums.mean())
            return failed(
                f"nll_loss is given what is no log-probability: its exponentials add up to {total:.3g}, not 1",
                "Use `log_softmax` before it, or `cross_entropy` on logits.",
            )
        return None
    inside = bool((values >= 0).all()) and bool((values <= 1).all())
    if name == "cross_entropy" and inside and bool((values.sum(dim) - 1).abs().max() < 1e-3):
        return failed(
            "cross_entropy is given probabilities: no value is negative, and each row adds up to 1",
            "It computes the softmax itself: take yours out, and give it the logits.",
        )
    made_by = type(given.grad_fn).__name__
    if name != "cross_entropy" and inside and made_by.startswith("Sigmoid"):
        return failed(f"{name} is given the result of a sigmoid", "It computes the sigmoid itself: give it the logits.")
    return None


def _uphill(name: str, given: Tensor, target: Tensor, loss: Tensor) -> Finding | None:
    """The gradient at the logit of the right class must be negative: a higher one is better."""
    if name == "binary_cross_entropy_with_logits" or target.is_floating_point() or not given.requires_grad:
        return None
    if not loss.requires_grad:
        return None
    found: list[Tensor | None] = [*torch.autograd.grad(loss, given, retain_graph=True, allow_unused=True)]
    grad = found[0]
    if grad is None:
        return None
    classes, dim = target.clamp(0, given.shape[1 if given.ndim > 1 else 0] - 1), 1 if given.ndim > 1 else 0
    right = grad.gather(dim, classes.unsqueeze(dim)).squeeze(dim)[target >= 0]
    if right.numel() and bool((right > 0).any()) and not bool((right < 0).any()):
        return failed(
            "the loss rises when the right class becomes more likely", "Its sign is wrong: return the loss to minimise."
        )
    return None


def _few(program: Program) -> Any:
    """The first samples of a batch, if the loss can be computed from them."""
    batch = program.take()
    if count_rows(batch) <= FEW:
        return batch
    few = rows(batch, 0, FEW)
    try:
        good = math.isfinite(float(program.value(program.make().model, few).detach()))
    except Exception:
        good = False  # it wants batches of a given size
    return few if good else batch


def _fitted(program: Program, batch: Any, steps: int, factor: float, goal: float = -math.inf) -> tuple[float, float]:
    """The loss before and after training on one batch alone, without dropout; it ends when the goal is reached."""
    made = program.make()
    quiet(made.model)
    _scale(made, factor)
    start = end = _measured(program, made.model, batch)
    for number in range(1, steps + 1):
        seed_all(SEED + number)
        made.model.train()
        program.train_on(made, [rows(batch, 0, count_rows(batch))])
        if number == steps or (number % 5 == 0 and goal > -math.inf):
            end = _measured(program, made.model, batch)
            if end <= goal or not math.isfinite(end):
                break
    return start, end


def _measured(program: Program, model: nn.Module, batch: Any) -> float:
    with torch.no_grad():
        return float(program.value(model, batch))


def _scale(made: Made, factor: float) -> None:
    for each in made.optimizers:
        for group in each.param_groups:
            group["lr"] = group["lr"] * factor
            if "initial_lr" in group:
                group["initial_lr"] = group["initial_lr"] * factor
    for each in made.schedules:
        if hasattr(each, "base_lrs"):
            each.base_lrs = [rate * factor for rate in each.base_lrs]


@contextmanager
def _unclipped() -> Iterator[None]:
    """Gradients are measured, not clipped: clipping would hide that they are too large."""
    kept = nn.utils.clip_grad_norm_

    def measure(parameters: Any, *_: Any, **__: Any) -> Tensor:
        return kept(parameters, math.inf)

    put: Callable[[Any], None] = lambda each: setattr(nn.utils, "clip_grad_norm_", each)  # noqa: E731
    put(measure)
    try:
        yield
    finally:
        put(kept)
