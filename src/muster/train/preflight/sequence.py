"""Checks of sequences: no information from the future, labels shifted once, padding without influence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn

from muster.checks.findings import Finding, failed, not_applicable, ok, unknown
from muster.train.preflight.nests import changed, cloned, count_rows, rows, tensors
from muster.train.preflight.program import Program, Undecided

AGREES: Final = 0.9  # of the labels are the tokens so many places on
CLOSE: Final = 1e-4  # relative difference of two outputs or losses that count as equal
HALF: Final = 2e-2  # the same for numbers of 16 bits
SAMPLES: Final = 8  # padded samples that are looked at
_REAL: Final = ("attention_mask", "mask", "loss_mask", "valid")  # parts of a batch that mark what counts
_PADS: Final = ("padding_mask", "key_padding_mask", "pad_mask", "src_key_padding_mask")  # and what does not


@dataclass(frozen=True)
class Trained:
    """Towards which class a loss moves the logits at each place, and the tokens that the model was given there."""

    tokens: Tensor  # i64[batch, time]
    classes: Tensor  # i64[batch, time], -1 where nothing is trained

    def agreement(self, offset: int) -> float:
        """The part of trained places whose class is the token `offset` places on."""
        time = self.tokens.shape[1]
        classes, tokens = self.classes[:, : time - offset], self.tokens[:, offset:]
        counted = classes >= 0
        return float((classes == tokens)[counted].float().mean()) if bool(counted.any()) else 0.0


def check_shift(program: Program) -> Finding:
    if program.outputs is None or program.causal is False:
        return _no_sequence(program)
    trained = trained_classes(program)
    if trained is None:
        return not_applicable("the outputs are no logits of a sequence of tokens")
    found = {offset: trained.agreement(offset) for offset in range(4) if offset < trained.tokens.shape[1] - 1}
    fits = [offset for offset, part in found.items() if part >= AGREES]
    numbers = {"agreement": {str(offset): round(part, 3) for offset, part in found.items()}}
    if len(fits) > 1:
        return unknown("tokens repeat so that the shift can't be told", "Let batch(0) have varied tokens.", **numbers)
    if not fits:
        if program.causal:
            shares = ", ".join(f"{offset}: {part:.0%}" for offset, part in found.items())
            return unknown(f"labels are no tokens further on (places on: part that agrees: {shares})", "", **numbers)
        return not_applicable("labels are no tokens of the same sequence")
    (offset,) = fits
    part = f"in {found[offset]:.1%} of the places the loss rewards"
    if offset == 1:
        return ok(f"{part} the next token", **numbers)
    if offset == 0 and not program.causal and not is_causal(program):
        return not_applicable("labels are the tokens themselves, and the model sees both sides: not a next-token loss")
    if offset == 0:
        return failed(
            f"{part} the token that the model is given there: labels are not shifted",
            "Compare logits[:, :-1] with tokens[:, 1:].",
            **numbers,
        )
    return failed(
        f"{part} the token {offset} places on: labels are shifted {offset} times",
        "Shift once, in the data or in the loss, not in both (models of Hugging Face shift `labels` themselves).",
        **numbers,
    )


def check_future(program: Program) -> Finding:
    if program.outputs is None or program.causal is False:
        return _no_sequence(program)
    if not program.causal and not _predicts_next(program):
        return not_applicable("not declared causal=True, and the loss is not that of the next token")
    moved = future_moves(program)
    if moved is None:
        return unknown("no part of the batch has the outputs' time in its second place", "Use [batch, time, ...].")
    leaks = {place: (first, size) for place, (first, size, _) in moved.items() if first is not None}
    if leaks:
        place, (first, size) = next(iter(leaks.items()))
        return failed(
            f"outputs at place {first} move by {size:.2g} when only places from {place + 1} on are changed",
            "Look at the causal mask (diagonal, batch_first), bidirectional layers, and norms or means over time.",
            places=sorted(leaks),
        )
    if not any(reacts for _, _, reacts in moved.values()):
        return unknown("the outputs do not depend on the inputs", "Look at what reaches the outputs.")
    return ok(f"outputs up to place {', '.join(map(str, moved))} do not move when all that follows is changed")


def check_padding(program: Program) -> Finding:
    batch = program.take()
    model = program.make().model.eval()
    counted = _counted(program, batch)
    if counted is None:
        return not_applicable(
            "no mask= was given, and no part of the batch is called one", "Give mask=, True where real."
        )
    if counted.ndim != 2:
        return not_applicable(f"the mask has the shape {list(counted.shape)}, not [batch, time]")
    lengths = counted.sum(1)
    if not bool((counted == (torch.arange(counted.shape[1], device=counted.device) < lengths[:, None])).all()):
        return not_applicable("what is masked is not the end of the samples")
    padded = [row for row in range(len(counted)) if 0 < int(lengths[row]) < counted.shape[1]]
    if not padded:
        return not_applicable("no sample of batch(0) is padded", "Let batch(0) have samples of several lengths.")
    for row in padded[:SAMPLES]:
        one, length = rows(batch, row, row + 1), int(lengths[row])
        with torch.no_grad():
            whole = float(program.value(model, cloned(one)))
            short = float(program.value(model, _trimmed(one, counted.shape[1], length)))
        if abs(whole - short) > CLOSE * max(abs(whole), abs(short), 1e-3):
            pads = counted.shape[1] - length
            return failed(
                f"the loss of sample {row} is {whole:.6g} with its {pads} places of padding and {short:.6g} without",
                "Leave padding out of attention, of means over time, and of the loss (ignore_index, or a sum over the "
                "mask divided by the mask's sum).",
                with_padding=whole, without=short,
            )  # fmt: skip
    return ok(f"the loss of {len(padded[:SAMPLES])} padded samples is that without their padding")


def trained_classes(program: Program) -> Trained | None:
    """From the gradient of the loss at the logits: it is negative at the class that is to become more likely."""
    batch = program.take()
    model = program.make().model.eval()
    wanted = program.output(model, batch)
    seen: list[Tensor] = []
    tokens: list[Tensor] = []
    with _watched(model, seen, tokens):
        loss = program.value(model, cloned(batch))
    given = next((each for each in tokens if wanted.ndim == 3 and each.shape == wanted.shape[:2]), None)
    if given is None:
        return None
    fitting = [each for each in reversed(seen) if each.requires_grad and each.shape == wanted.shape]
    logits = next((each for each in fitting if _same(each, wanted)), next(iter(fitting), None))
    grads = torch.autograd.grad(loss, logits, allow_unused=True) if logits is not None else ()
    grad: Tensor | None = next(iter(grads), None)
    if grad is None:
        hint = (
            "Let outputs= return the logits as a module of the model returns them to the loss, or leave the check out."
        )
        raise Undecided("what outputs= returns was not found among what the loss is computed from", hint)
    lowest, classes = grad.min(-1)
    return Trained(given.long(), torch.where(lowest < 0, classes, -1))


def is_causal(program: Program) -> bool:
    """Whether no output moves when what follows it is changed."""
    moved = future_moves(program)
    return bool(moved) and all(first is None for first, _, _ in (moved or {}).values())


def future_moves(program: Program) -> dict[int, tuple[int | None, float, bool]] | None:
    """By place t: the first output up to t that moves when everything after t is changed, by how much, and whether
    later ones move. None if the batch has no time in its second dimension."""
    batch = program.take()
    model = program.make().model.eval()
    before = program.output(model, cloned(batch)).float()
    if before.ndim < 2 or before.shape[1] < 2:
        return None
    samples, time = count_rows(batch), before.shape[1]
    timed = {
        where
        for where, each in tensors(batch)
        if each.ndim >= 2 and len(each) == samples and each.shape[1] in (time, time + 1)
    }
    if not timed:
        return None
    found: dict[int, tuple[int | None, float, bool]] = {}
    scale = float(before.abs().max()) or 1.0
    rounding = 0.1 * CLOSE if before.device.type == "cpu" else CLOSE
    for place in sorted({0, time // 2, time - 2}):
        other = changed(batch, partial(_disturbed, timed, place + 1))
        apart = (program.output(model, other).float() - before).abs().transpose(0, 1).reshape(time, -1).amax(1)
        early = [at for at in range(place + 1) if float(apart[at]) > rounding * scale]
        size = float(apart[: place + 1].max())
        found[place] = (early[0] if early else None, size, bool(apart[place + 1 :].any()))
    return found


def _predicts_next(program: Program) -> bool:
    trained = trained_classes(program)
    return trained is not None and any(
        trained.agreement(offset) >= AGREES for offset in (1, 2) if offset < trained.tokens.shape[1]
    )


def _no_sequence(program: Program) -> Finding:
    if program.causal is False:
        return not_applicable("declared causal=False")
    return not_applicable("no outputs= were given", "Give outputs=, the logits [batch, time, classes].")


@contextmanager
def _watched(model: nn.Module, outputs: list[Tensor], tokens: list[Tensor]) -> Iterator[None]:
    """Keeps what modules return, and the whole numbers that they are given."""

    def note(module: nn.Module, given: Any, kept: Any, returned: Any) -> None:
        tokens.extend(each for _, each in tensors((given, kept)) if each.dtype in (torch.int64, torch.int32))
        outputs.extend(each for _, each in tensors(returned))
        logits = getattr(returned, "logits", None)  # of the outputs of Hugging Face
        if isinstance(logits, Tensor):
            outputs.append(logits)

    hooks = [module.register_forward_hook(note, with_kwargs=True) for module in model.modules()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _same(one: Tensor, two: Tensor) -> bool:
    """But for rounding: PyTorch has faster kernels for passes without gradients, and autocast computes in 16 bits."""
    half = any(each.dtype in (torch.float16, torch.bfloat16) for each in (one, two))
    relative = HALF if half else 1e-3
    most = float(two.abs().max())
    return torch.allclose(one.detach().float(), two.float(), rtol=relative, atol=0.1 * relative * most)


def _disturbed(timed: set[str], begin: int, where: str, tensor: Tensor) -> Tensor:
    """Other values from `begin` on in the second dimension: whole numbers that the tensor has elsewhere."""
    twin = tensor.clone()
    if where not in timed:
        return twin
    after = twin[:, begin:]
    if tensor.is_floating_point():
        after.add_(torch.randn_like(after))
    elif tensor.dtype is torch.bool:
        after.logical_not_()
    else:
        values = torch.unique(tensor[tensor >= 0])
        if len(values) > 1:
            place = torch.searchsorted(values, after.contiguous()) + 1
            after.copy_(torch.where(after >= 0, values[place % len(values)], after))
    return twin


def _counted(program: Program, batch: Any) -> Tensor | None:
    """True where a place counts, [batch, time]."""
    if program.mask is not None:
        return program.mask(batch).bool()
    if not isinstance(batch, Mapping):
        return None
    for names, real in ((_REAL, True), (_PADS, False)):
        for name in names:
            each = batch.get(name)
            if isinstance(each, Tensor) and each.ndim == 2 and bool(((each == 0) | (each == 1)).all()):
                return each.bool() == real
    return None


def _trimmed(one: Any, time: int, length: int) -> Any:
    """A sample without its padding: every dimension after the first that is as long as time, or one longer."""

    def cut(_: str, each: Tensor) -> Tensor:
        for dim in range(1, each.ndim):
            if each.shape[dim] in (time, time + 1):
                each = each.narrow(dim, 0, length + each.shape[dim] - time)
        return each.clone()

    return changed(one, cut)
