"""Number formats: the dtype of matrix products, and the loss scale that keeps float16 gradients from underflow.

Weights, gradients and optimizer state stay float32. bfloat16 and float16 are used only in products: by autocast, or by
FSDP's policy, which also sends the weights in half the bytes and still reduces gradients in float32. float8 is bfloat16
with the large products of blocks in 8 bits (`train.float8`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final, Literal

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import MixedPrecisionPolicy

from muster.train.settings import bounded

# An ARM CPU without bfloat16 computes such products by another path, with the same results. PyTorch warns of it once in
# every process, with thirty lines of C++ frames.
SLOW_PATH: Final = "mkldnn_matmul failed, switching to BLAS gemm"
warnings.filterwarnings("ignore", SLOW_PATH, UserWarning)

DTYPES: Final = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float8": torch.bfloat16,  # of all but the products in 8 bits
}


@dataclass(frozen=True)
class Precision:
    """The dtype of products; in short `precision: fp32`, `bf16`, `fp16` or `fp8`. `initial_scale` and `growth_steps`
    apply only to float16."""

    compute: Literal["float32", "bfloat16", "float16", "float8"] = "float32"
    initial_scale: float = bounded(65536.0, above=0.0)
    growth_steps: int = bounded(2000, low=1)  # consecutive good steps before the scale doubles

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of products, and for float8 that of the others."""
        return DTYPES[self.compute]

    def autocast(self, device: torch.device) -> AbstractContextManager[Any]:
        """The context for a forward pass; nothing for float32."""
        if self.dtype is torch.float32:
            return nullcontext()
        return torch.autocast(device.type, dtype=self.dtype)

    def policy(self, *, last: bool) -> MixedPrecisionPolicy:
        """The policy for `fully_shard`. The output of the `last` stage is float32, as with autocast."""
        if self.dtype is torch.float32:
            return MixedPrecisionPolicy()
        output = torch.float32 if last else None
        return MixedPrecisionPolicy(param_dtype=self.dtype, reduce_dtype=torch.float32, output_dtype=output)

    def scaler(self, device: torch.device) -> Scaler | None:
        """A loss scaler for float16, None for the others."""
        if self.dtype is not torch.float16:
            return None
        scale = torch.tensor(self.initial_scale, dtype=torch.float32, device=device)
        return Scaler(scale, torch.zeros((), dtype=torch.int32, device=device), self.growth_steps)


@dataclass
class Scaler:
    """A dynamic loss scale: halved after a step whose gradients overflowed, doubled after `growth_steps` good ones.

    All its state is on the device. It needs no collective: it depends on the gradient norm, which is the same on every
    process, so that all processes take or skip a step together.
    """

    scale: Tensor  # f32[]
    good: Tensor  # i32[], good steps since the last change
    growth_steps: int

    def update(self, skipped: Tensor) -> None:
        """After a step: `skipped` is a float32 scalar, not zero when the gradients were not finite. No host sync."""
        torch._amp_update_scale_(self.scale, self.good, skipped.float(), 2.0, 0.5, self.growth_steps)

    def state_dict(self) -> dict[str, Tensor]:
        """The state for a checkpoint."""
        return {"scale": self.scale, "good": self.good}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Loads a state from `state_dict` in place."""
        self.scale.copy_(torch.as_tensor(state["scale"]))
        self.good.copy_(torch.as_tensor(state["good"]))


def autocast_forward(module: nn.Module, precision: Precision, device: torch.device) -> None:
    """Makes the module's forward run in this precision, for all callers. Changes the module in place."""
    if precision.dtype is not torch.float32:
        module.forward = _within(module.forward, precision, device)


def _within(forward: Callable[..., Any], precision: Precision, device: torch.device) -> Callable[..., Any]:
    @wraps(forward)
    def run(*args: Any, **kwargs: Any) -> Any:
        with precision.autocast(device):
            return forward(*args, **kwargs)

    return run
