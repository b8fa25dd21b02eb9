"""Products in 8 bits beside those in bfloat16: forward, both gradients, and a model's training."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from equal_kit import GPT2, LLAMA, OPTIM, Case, batches, prepare, train_step
from torch import Tensor, nn

from muster.train.config import read_config
from muster.train.float8 import Float8Linear, use_float8
from muster.train.mesh import Layout, make_mesh
from muster.train.optim import adamw
from muster.train.parallel import ParallelSettings
from muster.train.precision import Precision

# The relative error (of norms) of a product of random matrices, whose factors are rounded to 3 bits of mantissa (by
# 2^-4 of a value at most), or one of them to 2. With bfloat16 it is 0.003.
FORWARD, BACKWARD, ROUNDED = 0.05, 0.08, 0.015
ALONE = Layout()


def run(layer: nn.Linear, x: Tensor, slope: Tensor) -> dict[str, Tensor]:
    x = x.clone().requires_grad_()
    layer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        out = layer(x)
    out.backward(slope.to(out.dtype))
    found = {"out": out, "x": x.grad, "weight": layer.weight.grad}
    return found if layer.bias is None else {**found, "bias": layer.bias.grad}


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # the compiler's own
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("rows", [(4, 16), (3, 7)])
def test_its_products_are_those_of_bfloat16_within_the_format(rows: tuple[int, int], compiled: bool) -> None:
    draw = torch.Generator().manual_seed(1)
    wide, layer = nn.Linear(64, 48), nn.Linear(64, 48)
    layer.load_state_dict(wide.state_dict())
    assert use_float8([layer]) == 1
    assert type(layer) is Float8Linear
    assert dict(layer.state_dict()).keys() == {"weight", "bias"}
    if compiled:
        torch._dynamo.reset()
        layer.forward = torch.compile(layer.forward, fullgraph=True, backend="aot_eager")
    x, slope = 100 * torch.randn(*rows, 64, generator=draw), 1e-4 * torch.randn(*rows, 48, generator=draw)
    expected, found = run(wide, x, slope), run(layer, x, slope)
    assert found["out"].dtype == torch.bfloat16
    for name, limit in (("out", FORWARD), ("x", BACKWARD), ("weight", BACKWARD)):
        assert found[name].dtype == expected[name].dtype
        assert found[name].shape == expected[name].shape
        apart = (found[name].float() - expected[name].float()).norm() / expected[name].float().norm()
        assert ROUNDED < apart < limit, name  # less would be no 8 bits
    torch.testing.assert_close(found["bias"], expected["bias"], rtol=0.02, atol=1e-5)


def test_what_is_not_finite_is_not_finite_after_it() -> None:
    layer = nn.Linear(16, 16, bias=False)
    use_float8([layer])
    for bad in (float("nan"), float("inf")):
        x = torch.ones(16, 16)
        x[3, 3] = bad
        assert not layer(x).isfinite().all()
    tiny = torch.full((16, 16), 1e-25)
    torch.testing.assert_close(1e25 * layer(tiny).float(), 1e25 * (tiny @ layer.weight.T), rtol=0.1, atol=0.05)
    assert torch.equal(layer(torch.zeros(16, 16)), torch.zeros(16, 16, dtype=torch.bfloat16))


@pytest.mark.parametrize("config", [LLAMA, GPT2], ids=["llama", "gpt2"])
def test_a_model_trains_as_in_bfloat16(config: object) -> None:
    found = {}
    for compute in ("bfloat16", "float8"):
        settings = ParallelSettings(checkpointing="selective")
        case = Case("", settings=settings, precision=Precision(compute), config=config, max_norm=1.0)  # type: ignore[arg-type]
        prepared = prepare(case, make_mesh(ALONE, "cpu"))
        optimizer = adamw(prepared.parts, OPTIM)
        steps = [train_step(prepared, optimizer, case, *each) for each in batches(case.config)]
        eight = [each for each in prepared.parts[0].modules() if isinstance(each, Float8Linear)]
        found[compute] = [(float(loss), float(norm)) for loss, norm in steps], len(eight)
        assert not isinstance(prepared.parts[0].head, Float8Linear)
    (plain, none), (eight, count) = found["bfloat16"], found["float8"]
    assert (none, count) == (0, 14 if config is LLAMA else 12)
    assert eight != plain
    for one, two in zip(plain, eight, strict=True):
        assert two[0] == pytest.approx(one[0], rel=5e-3)
        assert two[1] == pytest.approx(one[1], rel=0.15)


def test_it_is_named_in_a_configuration() -> None:
    config = read_config({"task": "language", "steps": 1, "precision": "fp8"})
    assert config.precision == replace(Precision(), compute="float8")
    assert config.precision.dtype == torch.bfloat16
