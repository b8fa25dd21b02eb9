"""A matrix rounded to 8 bits in both layouts: one pass for its largest value, and one that reads each tile once."""

from __future__ import annotations

from typing import Any, Final

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE: Final[dict[str, Any]] = {"ROWS": 128, "COLUMNS": 128, "num_warps": 4}
CHUNK: Final[dict[str, Any]] = {"CHUNK": 8192, "num_warps": 8}
PROGRAMS: Final = 1056  # of the first pass: eight on each of an H200's multiprocessors


def rounded_both(x: Tensor, kind: torch.dtype, least: float) -> tuple[Tensor, Tensor, Tensor]:
    """See `rounding.rounded_both`; `x` is contiguous."""
    rows, columns = x.shape
    straight = torch.empty(rows, columns, dtype=kind, device=x.device)
    turned = torch.empty(columns, rows, dtype=kind, device=x.device)
    most, scale = torch.finfo(kind).max, torch.empty((), dtype=torch.float32, device=x.device)
    largest = torch.zeros((), dtype=torch.int32, device=x.device)  # the bits of a float that is not negative
    programs = min(PROGRAMS, triton.cdiv(x.numel(), CHUNK["CHUNK"]))
    _largest[(programs,)](x, largest, x.numel(), **CHUNK)
    grid = (triton.cdiv(rows, TILE["ROWS"]) * triton.cdiv(columns, TILE["COLUMNS"]),)
    _both[grid](x, largest, straight, turned, scale, rows, columns, least, MOST=most, **TILE)
    return straight, turned, scale


@triton.jit
def _largest(x, largest, count, CHUNK: tl.constexpr):
    """Bits of floats that are not negative are in the floats' order, and those of NaN come after all."""
    found = tl.zeros([CHUNK], tl.int32)
    for first in tl.range(tl.program_id(0) * CHUNK, count, tl.num_programs(0) * CHUNK):
        at = first + tl.arange(0, CHUNK).to(tl.int64)
        value = tl.load(x + at, mask=at < count, other=0.0).to(tl.float32)
        found = tl.maximum(found, value.to(tl.int32, bitcast=True) & 0x7FFFFFFF)
    tl.atomic_max(largest, tl.max(found, 0))


@triton.jit
def _both(
    x, largest, straight, turned, scale, rows, columns, least,
    MOST: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    by = tl.load(largest).to(tl.float32, bitcast=True) / MOST
    by = tl.where(by < least, least, by)  # NaN stays
    if tl.program_id(0) == 0:
        tl.store(scale, by)
    wide = tl.cdiv(columns, COLUMNS)
    row = (tl.program_id(0) // wide * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    column = (tl.program_id(0) % wide * COLUMNS + tl.arange(0, COLUMNS)).to(tl.int64)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    value = tl.load(x + row[:, None] * columns + column[None, :], mask=inside, other=0.0).to(tl.float32) / by
    value = tl.where(value == value, tl.minimum(tl.maximum(value, -MOST), MOST), value)
    small = value.to(straight.dtype.element_ty)
    tl.store(straight + row[:, None] * columns + column[None, :], small, mask=inside)
    beside = (column[:, None] < columns) & (row[None, :] < rows)
    tl.store(turned + column[:, None] * rows + row[None, :], tl.trans(small), mask=beside)
