"""A head of odd width, padded for a GPU's products: the same logits and gradients as without."""

from __future__ import annotations

import torch

from muster.train.models.layers import HEAD_MULTIPLE, Head
from muster.train.tasks.language import IGNORED, cross_entropy


def test_a_padded_head_gives_the_logits_and_gradients_of_the_plain_one() -> None:
    torch.manual_seed(1)
    head = Head(24, 101, bias=False)
    assert head.out_features % HEAD_MULTIPLE
    given = torch.randn(2, 5, 24)
    found = []
    for product in (head.forward, head.padded):
        x = given.clone().requires_grad_()
        logits = product(x)
        logits.square().sum().backward()
        found.append((logits.detach(), x.grad, head.weight.grad))
        head.weight.grad = None
    assert found[1][0].shape == (2, 5, 101)
    for plain, padded in zip(*found, strict=True):
        torch.testing.assert_close(plain, padded)


def test_the_loss_passes_over_the_rest_of_a_head_that_keeps_it() -> None:
    torch.manual_seed(1)
    head, given, targets = Head(24, 101, bias=False), torch.randn(10, 24), torch.randint(0, 101, (10,))
    targets[3] = IGNORED
    found = []
    for head.keeps_rest in (False, True):
        x = given.clone().requires_grad_()
        logits = head.padded(x)
        assert logits.shape[-1] == (128 if head.keeps_rest else 101)
        loss = cross_entropy(logits, targets, 101)
        loss.backward()
        found.append((loss.detach(), x.grad, head.weight.grad))
        head.weight.grad = None
    for cut, kept in zip(*found, strict=True):
        torch.testing.assert_close(cut, kept)


def test_a_model_keeps_the_width_of_its_vocabulary_in_its_parameters() -> None:
    head = Head(8, 50_257, bias=False)
    assert {name: tuple(each.shape) for name, each in head.named_parameters()} == {"weight": (50_257, 8)}
