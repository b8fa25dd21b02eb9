"""The kernels for GPUs, computed by Triton's interpreter: gradients are autograd's, rounding is in both layouts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode

from components import require
from muster.train import kernels
from muster.train.kernels import attention, rounding

# Of norms. The interpreter sums in float32; it rounds to 8 bits by up to two steps, a GPU to the nearest.
SUMS, E4M3, E5M2 = 1e-5, 0.08, 0.16


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    folder = Path(sys.prefix, "triton")
    require("Triton", (folder / "triton").is_dir(), "Install it: make .venv/.triton.")
    env = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join([*sys.path, str(folder)])}
    program = Path(__file__).with_name("kernels_program.py")
    done = subprocess.run([sys.executable, str(program)], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_the_gradients_of_attention_are_those_of_autograd(found: dict[str, Any]) -> None:
    """With heads that share keys, in several goes; and with one go for all."""
    for each in found["attention"]:
        assert max(each["errors"]) < SUMS
        assert each["strides"]
        assert each["repeats"]


def test_a_matrix_is_rounded_once_for_both_layouts(found: dict[str, Any]) -> None:
    for each, limit in zip(found["rounding"], (E4M3, E5M2), strict=True):
        (rows, columns), turned = each["shapes"]
        assert turned == [columns, rows]
        assert each["turned"]
        assert each["scale"]
        assert 0 < each["error"] < limit


def test_zeros_have_a_scale_and_nan_is_passed_on(found: dict[str, Any]) -> None:
    assert found["edges"]["of zeros"] == pytest.approx(1e-30)
    assert found["edges"]["of NaN"]
    assert found["edges"]["all NaN"]


def test_what_the_compiler_is_told_of_them_is_what_they_give() -> None:
    with FakeTensorMode():
        q = torch.empty(2, 256, 4, 64, device="cuda", dtype=torch.bfloat16).transpose(1, 2)
        k = torch.empty(2, 256, 2, 64, device="cuda", dtype=torch.bfloat16).transpose(1, 2)
        out, sums = attention._forward(q, k, k)
        assert (out.shape, out.stride(), out.dtype) == (q.shape, q.stride(), q.dtype)
        assert (sums.shape, sums.dtype) == (q.shape[:-1], torch.float32)
        for made, given in zip(attention._backward(q, q, k, k, out, sums), (q, k, k), strict=True):
            assert (made.shape, made.stride(), made.dtype) == (given.shape, given.stride(), given.dtype)
        x = torch.empty(512, 256, device="cuda", dtype=torch.bfloat16)
        straight, turned, scale = rounding._by_kernel(x, torch.float8_e4m3fn)
        assert (straight.shape, turned.shape, scale.shape) == ((512, 256), (256, 512), ())
        assert (straight.dtype, turned.dtype, scale.dtype) == (torch.float8_e4m3fn, torch.float8_e4m3fn, torch.float32)


def test_they_are_for_gpus_alone() -> None:
    kernels.look(torch.device("cpu"))
    assert not kernels.usable


def test_attention_of_our_own_is_taken_where_bits_have_to_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "usable", True)
    monkeypatch.setattr(kernels, "scores_most", 2 * 256 * 256 * 2)

    def taken(tokens: int = 256, width: int = 64, causal: bool = True, dropout: float = 0.0, **more: Any) -> bool:
        with FakeTensorMode():
            given = {"device": "cuda", "dtype": torch.bfloat16, **more}
            q, k = (torch.empty(1, heads, tokens, width, **given) for heads in (4, 2))
            return attention.repeatable(q, k, causal, dropout)

    assert not taken()
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    assert taken()
    assert not taken(tokens=200)
    assert not taken(tokens=384)  # two heads share a head of keys: more memory than there is
    assert not taken(width=96)
    assert not taken(causal=False)
    assert not taken(dropout=0.1)
    assert not taken(dtype=torch.float32)
    assert not taken(device="cpu")
