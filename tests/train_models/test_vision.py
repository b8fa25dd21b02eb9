"""The image model: it learns, its parts are the whole, and what it can't do it says."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from muster.train.errors import ConfigError, MeshError
from muster.train.models import Vision, VisionConfig, initialise
from muster.train.models.parts import divisible

SMALL = VisionConfig(classes=3, image=8, patch=4, channels=2, dim=16, layers=2, heads=2, ffn=32)


def built(config=SMALL):
    model = Vision(config)
    initialise(model, 5)
    return model


def images(count=6):
    """Made-up images whose class is the quarter that is lit."""
    drawn = 0.1 * torch.randn(count, 2, 8, 8, generator=torch.Generator().manual_seed(4))
    labels = torch.arange(count) % 3
    for row, label in enumerate(labels.tolist()):
        top, left = 4 * (label // 2), 4 * (label % 2)
        drawn[row, :, top : top + 4, left : left + 4] += 1.0
    return drawn, labels


def test_patches_are_squares_of_the_image():
    model = built()
    given = torch.arange(2 * 8 * 8, dtype=torch.float32).view(1, 2, 8, 8)
    cut = model._cut(given)
    assert cut.shape == (1, 4, 32)
    for patch in range(4):
        top, left = 4 * (patch // 2), 4 * (patch % 2)
        assert torch.equal(cut[0, patch], given[0, :, top : top + 4, left : left + 4].flatten())


def test_it_learns_where_the_light_is():
    model, (given, labels) = built(), images()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(60):
        loss = F.cross_entropy(model(given), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert torch.equal(model(given).argmax(-1), labels)


def test_stages_are_the_whole():
    first, last = built(), built()
    first.stage(0, 1, True, False)
    last.stage(1, 2, False, True)
    given, _ = images()
    assert divisible(first) is first
    assert first(given).shape == (6, 4, 16)
    assert torch.equal(last(first(given)), built()(given))


def test_it_compiles_as_one_graph():
    torch._dynamo.reset()
    model, (given, _) = built(), images()
    torch.testing.assert_close(torch.compile(model, fullgraph=True, backend="aot_eager")(given), model(given))


def test_operations_follow_the_stated_formula():
    met = sum(parameter.numel() for name, parameter in built().named_parameters() if not name.startswith("positions"))
    head = 16 * 3
    biases = 16 + 3  # of the patches and of the head
    assert built().flops_per_token(4) == 6 * (met - head - biases + head // 4) + 12 * 2 * 4 * 16


def test_mistakes_are_named():
    with pytest.raises(ConfigError) as caught:
        Vision(replace(SMALL, patch=3, heads=5))
    assert [problem.where for problem in caught.value.problems] == ["heads", "patch"]
    with pytest.raises(ValueError, match=r"Images of \(2, 8, 6\); the model takes .* \(2, 8, 8\)"):
        built()(torch.zeros(1, 2, 8, 6))
    with pytest.raises(
        MeshError, match=r"2 heads don't divide by tp 4.*2 layers can't make pp 3.*no sequence parallelism"
    ):
        built().check(tp=4, pp=3, sequence=4)
    with pytest.raises(MeshError, match="no sequence parallelism"):
        built().tensor_plan(True)
    built().check(tp=2, pp=2)
