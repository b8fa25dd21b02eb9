"""Seeded bugs of training programs: each is caught by the check that should, and by no other."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from muster.train import preflight
from preflight_kit import (
    TIME,
    Adapted,
    Encoder,
    Gpt,
    Hook,
    adam,
    adapted,
    built,
    class_loss,
    classifier,
    convolution,
    encoder,
    gpt,
    perceptron,
    tokens,
)

BUGS: dict[str, tuple[Callable[[], Hook], set[str]]] = {}
Bug = Callable[[], Hook]


def bug(*caught_by: str) -> Callable[[Bug], Bug]:
    def add(make: Bug) -> Bug:
        BUGS[make.__name__] = (make, set(caught_by))
        return make

    return add


# Sequences


@bug("future")
def the_causal_mask_is_missing() -> Hook:
    return gpt(lambda: Gpt(causal=False))


class Averaged(Gpt):
    """Subtracts the mean over all places, which has the future in it."""

    def forward(self, tokens: Tensor, pads: Tensor | None = None) -> Tensor:
        logits = super().forward(tokens)
        return logits - logits.mean(1, keepdim=True)


@bug("future")
def a_norm_over_time() -> Hook:
    return gpt(Averaged)


@bug("shift")
def labels_are_shifted_twice() -> Hook:
    def loss(model: nn.Module, batch: Tensor) -> Tensor:
        return F.cross_entropy(model(batch[:, :-1])[:, :-1].flatten(0, 1), batch[:, 2:].flatten())

    return gpt(loss=loss, outputs=lambda model, batch: model(batch[:, :-1]))


@bug("shift")
def labels_are_not_shifted() -> Hook:
    return gpt(loss=lambda model, batch: F.cross_entropy(model(batch[:, 1:]).flatten(0, 1), batch[:, 1:].flatten()))


@bug("padding")
def attention_to_padding() -> Hook:
    return encoder(lambda: Encoder(masked=False))


@bug("padding")
def the_mean_counts_padding() -> Hook:
    return encoder(lambda: Encoder(mean=False))


def padded(number: int) -> dict[str, Tensor]:
    row = tokens(number)[:, : TIME + 1]
    real = torch.arange(TIME) < torch.tensor([TIME, 5, 3, 6])[:, None]
    return {"text": row[:, :-1] * real, "next": row[:, 1:] * real, "mask": real}


def padded_gpt(loss: Callable[[nn.Module, dict[str, Tensor]], Tensor]) -> Hook:
    hook = gpt(loss=loss, batch=padded, outputs=lambda model, batch: model(batch["text"]))
    return {**hook, "step": None, "labels": None}


@bug("padding")
def the_loss_counts_padding() -> Hook:
    return padded_gpt(lambda model, batch: F.cross_entropy(model(batch["text"]).flatten(0, 1), batch["next"].flatten()))


# Gradients and optimizers


class Cut(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).detach()


@bug("gradients")
def the_loss_is_detached() -> Hook:
    def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return class_loss(model, batch).detach()

    return classifier(loss=loss, step=None)


class HalfCut(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 24), nn.Linear(24, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(x)).detach())


@bug("gradients")
def a_layer_is_cut_off() -> Hook:
    return classifier(build=built(HalfCut), step=None)


@bug("optimizer")
def an_unfrozen_layer_is_left_out_of_the_optimizer() -> Hook:
    def some(model: Any) -> torch.optim.Optimizer:
        return torch.optim.Adam([model.down, model.up], lr=3e-2)

    return {**adapted(), "build": built(Adapted, some)}


@bug("optimizer")
def a_parameter_is_twice_in_the_optimizer() -> Hook:
    def twice(model: nn.Module) -> torch.optim.Optimizer:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.optim.AdamW([*model.parameters(), *list(model.parameters())[:1]], lr=3e-3)

    return classifier(build=built(perceptron, twice))


@bug("optimizer", "overfit")
def the_optimizer_has_the_weights_of_another_model() -> Hook:
    return classifier(build=built(perceptron, lambda model: adam(perceptron())), step=None)


@bug("overfit")
def the_learning_rate_is_zero() -> Hook:
    return classifier(build=built(perceptron, lambda model: adam(model, 0.0)))


@bug("overfit")
def the_optimizer_climbs() -> Hook:
    return classifier(build=built(perceptron, lambda model: torch.optim.SGD(model.parameters(), 0.1, maximize=True)))


@bug("logits")
def the_sign_of_the_loss_is_wrong() -> Hook:
    return classifier(loss=lambda model, batch: -class_loss(model, batch), step=None)


# The loss


@bug("logits")
def softmax_twice() -> Hook:
    def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return F.cross_entropy(model(batch["x"]).softmax(-1), batch["y"])

    return classifier(loss=loss, step=None, lowers_to=0.9)


@bug("loss")
def a_sum_in_float16() -> Hook:
    return classifier(loss=lambda model, batch: class_loss(model, batch).half() * 8, step=None)


@bug("loss")
def the_loss_leaves_eval_mode_on() -> Hook:
    def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return class_loss(model.eval(), batch)

    return classifier(loss=loss, step=None)


@bug("outputs")
def more_labels_than_logits() -> Hook:
    def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return F.cross_entropy(model(batch["x"]), batch["y"] % 4)

    return classifier(loss=loss, step=None, labels=lambda batch: batch["y"] + 3)


# Weights, modes and devices


@bug("weights")
def weights_begin_as_nan() -> Hook:
    def broken() -> nn.Module:
        model = perceptron()
        nn.init.constant_(model[0].bias, float("nan"))
        return model

    return classifier(build=built(broken))


class Noisy(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(F.dropout(x, 0.2))


@bug("modes")
def dropout_in_eval_mode() -> Hook:
    make = lambda: Noisy(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 4))  # noqa: E731
    return classifier(build=built(make, lambda model: adam(model, 1e-2)), step=None)


class Updating(nn.BatchNorm2d):
    """Counts its running statistics on in eval mode too."""

    def forward(self, x: Tensor) -> Tensor:
        return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, True, 0.1, self.eps)


@bug("modes")
def batch_norm_moves_in_eval_mode() -> Hook:
    make = lambda: nn.Sequential(nn.Conv2d(1, 6, 3), Updating(6), nn.ReLU(), nn.Flatten(), nn.Linear(216, 3))  # noqa: E731
    return {**convolution(), "build": built(make), "step": None}


class Stray(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 4))
        self.register_buffer("scale", torch.ones(1, device="meta"))


@bug("devices", "weights")
def a_buffer_is_left_on_the_meta_device() -> Hook:
    return classifier(build=built(Stray))


@bug("repeat")
def a_generator_is_not_seeded() -> Hook:
    def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        noise = torch.randn(batch["x"].shape, generator=UNSEEDED) if model.training else 0.0
        return F.cross_entropy(model(batch["x"] + 0.1 * noise), batch["y"])

    return classifier(loss=loss, step=None)


UNSEEDED = torch.Generator()
UNSEEDED.seed()


# Steps and processes


def stepping(divide: Callable[[Tensor, int], Tensor], reduce: Callable[[nn.Module], None]) -> Callable[..., float]:
    def step(model: nn.Module, optimizer: Any, batches: list[Any]) -> float:
        optimizer.zero_grad()
        total = torch.zeros(())
        for batch in batches:
            value = divide(class_loss(model, batch), len(batches))
            value.backward()
            total += value.detach()
        if dist.is_initialized():
            reduce(model)
        optimizer.step()
        return float(total)

    return step


def mean(model: nn.Module) -> None:
    for each in model.parameters():
        dist.all_reduce(each.grad)
        each.grad /= dist.get_world_size()


def total(model: nn.Module) -> None:
    for each in model.parameters():
        dist.all_reduce(each.grad)


def first_only(model: nn.Module) -> None:
    each = next(model.parameters())
    dist.all_reduce(each.grad)
    each.grad /= dist.get_world_size()


@bug("accumulation")
def accumulated_gradients_are_not_divided() -> Hook:
    return classifier(step=stepping(lambda loss, parts: loss, mean))


@bug("layout")
def gradients_are_added_over_processes() -> Hook:
    return classifier(step=stepping(lambda loss, parts: loss / parts, total), distributed=True)


@bug("layout")
def one_gradient_alone_is_reduced() -> Hook:
    return classifier(step=stepping(lambda loss, parts: loss / parts, first_only), distributed=True)


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_caught_by_the_check_that_should(name: str) -> None:
    make, expected = BUGS[name]
    report = preflight.check(**make(), name=name)
    assert set(report.named("failed")) == expected, str(report)
    assert not report.passed
    assert report.exit_status == 1
    for each in expected:
        found = report.of(each).finding
        assert found.detail
        assert found.hint


def test_without_the_bug_the_same_programs_pass() -> None:
    """What the bugs above are made from beside the correct programs, without the bug."""
    real = padded_gpt(lambda model, batch: masked_loss(model(batch["text"]), batch))
    fixed = classifier(step=stepping(lambda loss, parts: loss / parts, mean), distributed=True)
    for hook in (real, fixed):
        report = preflight.check(**hook)
        assert report.passed, str(report)
    assert preflight.check(**gpt()).of("shift").status == "ok"


def masked_loss(logits: Tensor, batch: dict[str, Tensor]) -> Tensor:
    each = F.cross_entropy(logits.flatten(0, 1), batch["next"].flatten(), reduction="none").view(batch["mask"].shape)
    return (each * batch["mask"]).sum() / batch["mask"].sum()
