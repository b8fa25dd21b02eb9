"""Correct programs of different kinds pass preflight, and each check has something to say about some of them."""

from __future__ import annotations

import pytest

from muster.train import preflight
from preflight_kit import CORRECT

JUDGED = {
    "a classifier on two processes": {"accumulation", "layout", "modes", "logits"},
    "a GPT": {"future", "shift", "accumulation", "modes"},
    "a GPT under autocast": {"future", "shift"},
    "a GPT with tied embeddings": {"future", "shift", "optimizer"},
    "a network with batch norm": {"modes", "accumulation"},
    "a recurrent network": {"future"},
    "an encoder with padding": {"padding", "logits"},
    "regression with two optimizers": {"optimizer", "overfit"},
    "adapters on a frozen backbone": {"gradients", "optimizer", "modes"},
    "an autoencoder": {"overfit"},
    "a masked language model": {"logits"},
}


@pytest.mark.parametrize("name", CORRECT)
def test_a_correct_program_passes(name: str) -> None:
    report = preflight.check(**CORRECT[name](), name=name)
    assert report.passed, str(report)
    assert report.exit_status == 0
    assert JUDGED[name] <= set(report.named("ok")), str(report)
    assert {"batch", "weights", "loss", "gradients", "optimizer", "repeat", "overfit"} <= set(report.named("ok"))
