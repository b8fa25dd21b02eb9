"""The checks of the rung `unit`, in the order in which they run, and what each of them proves."""

from __future__ import annotations

from typing import Final

from muster.checks.findings import Check
from muster.train.preflight.basic import (
    check_batch,
    check_devices,
    check_loss,
    check_optimizer,
    check_outputs,
    check_weights,
)
from muster.train.preflight.behaviour import check_gradients, check_modes, check_repeat
from muster.train.preflight.sequence import check_future, check_padding, check_shift
from muster.train.preflight.training import check_accumulation, check_logits, check_overfit

UNIT: Final[tuple[Check, ...]] = (
    Check(
        "batch", "Batches have samples, with finite values and the same dtypes each time.", check_batch, (), "failed"
    ),
    Check("weights", "All weights are finite numbers, and some of them are trained.", check_weights, (), "failed"),
    Check(
        "loss",
        "The loss of a batch is one finite number, in a dtype that can hold it.",
        check_loss,
        ("batch", "weights"),
        "failed",
    ),
    Check(
        "outputs",
        "Outputs are finite in train and eval mode, and fit the labels.",
        check_outputs,
        ("batch", "weights"),
        "failed",
    ),
    Check(
        "gradients",
        "The loss reaches every trainable parameter, with finite gradients that are not zero.",
        check_gradients,
        ("loss",),
    ),
    Check("optimizer", "Every trainable parameter is in the optimizer, once.", check_optimizer),
    Check("devices", "No part of the model was left on another device.", check_devices),
    Check(
        "modes",
        "Train and eval mode differ by dropout and batch norm alone, and eval mode changes nothing.",
        check_modes,
        ("loss",),
    ),
    Check("repeat", "The same seed gives the same losses and weights, bit for bit.", check_repeat, ("loss",)),
    Check("future", "No output at a place depends on what follows it.", check_future, ("loss", "outputs")),
    Check("shift", "Each logit is trained towards the next token: shifted once.", check_shift, ("loss", "outputs")),
    Check("padding", "Padding has no influence on the loss.", check_padding, ("loss",)),
    Check(
        "logits",
        "The loss is computed from logits, and falls when the right class is more likely.",
        check_logits,
        ("loss",),
    ),
    Check(
        "overfit",
        "Training as configured lowers the loss of one batch, until it is learned by heart.",
        check_overfit,
        ("loss",),
    ),
    Check(
        "accumulation",
        "The gradients of two micro-batches are those of the whole batch.",
        check_accumulation,
        ("loss",),
    ),
)
