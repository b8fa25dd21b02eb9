"""What the figures of devices show: small batches, fp32 where bf16 would do, and clocks held down by heat."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from re import compile
from typing import Final

from muster.monitor.diagnose.evidence import Evidence, bounds, mean
from muster.monitor.diagnose.finding import Finding

ROOM: Final = 0.4  # of a device's memory in use, below which a larger batch fits
IDLE: Final = 0.7  # use of a device that could do more
USED: Final = 0.5  # use from which on the device's own speed matters
LAUNCHING: Final = 0.5  # of the looks, at least: in which the host gives work to the device
THROTTLED: Final = 0.2  # of the samples
NO_DATA: Final = 0.1  # share of waits for data below which they explain nothing
HAS_BF16: Final = compile(
    r"(?i)\b(A100|A800|A10G?|A30|A40|G?H100|G?H200|H800|G?B100|G?B200|L4|L40S?|MI2\d\d|MI3\d\d)|RTX[ -]?(30|40|50|A)"
)
_PRECISION: Final = (
    "precision",
    "dtype",
    "torch_dtype",
    "mixed_precision",
    "amp_dtype",
    "train.precision",
    "model.dtype",
)
_FP32: Final = frozenset({"fp32", "float32", "32", "32-true", "torch.float32", "no", "highest", "full"})
_FLAGS: Final = ("bf16", "fp16", "amp")
_BATCH: Final = (
    "batch_size",
    "per_device_train_batch_size",
    "micro_batch_size",
    "batch",
    "train.batch",
    "data.batch_size",
)


def small_batch(evidence: Evidence) -> Finding | None:
    """A device that waits for the host, while the host does nothing else than give it work."""
    use, room, samples = evidence.device_use, mean(one.memory_share for one in evidence.ranks), evidence.samples
    if use is None or room is None or not 0.02 <= use < IDLE or room >= ROOM or evidence.slow is not None:
        return None
    # With a device, the backward pass is in a thread of its own, and the main thread sleeps meanwhile.
    launching = samples.share("framework") + samples.share("backward_wait")
    waits = evidence.share("data")
    if not evidence.sampled or bounds(launching, samples.looks)[0] < LAUNCHING or (waits or 0.0) >= NO_DATA:
        return None
    lines = [
        f"its devices are in use {use:.0%} of the time, and their memory is {room:.0%} full",
        f"in {launching:.0%} of {samples.looks} looks it is inside of its framework and waits for nothing else",
    ]
    size = evidence.param(_BATCH)
    now = f" from `{size[0]}={size[1]}`" if size else ""
    changes = (
        f"Raise the batch size{now} until the memory is about 80 % full; adapt the learning rate.",
        "If the batch must stay: `torch.compile` or CUDA graphs, so that small kernels cost less to start.",
    )
    text = "The batches are too small for the device: it runs out of work between kernels, and its memory has room."
    return Finding("small_batch", 0.65, 1 - use, text, tuple(lines), changes, (f"muster runs show {evidence.job}",))


def precision(evidence: Evidence) -> Finding | None:
    use, given = evidence.device_use, single_precision(evidence.params)
    if given is None or not HAS_BF16.search(evidence.accelerator) or use is None or use < USED:
        return None
    lines = (
        f"the run's parameters say `{given}`",
        f"{evidence.accelerator} has bf16, several times as fast as fp32 in matrix products",
        f"its devices are in use {use:.0%} of the time, so that their speed matters",
    )
    changes = (
        "Use bf16: `torch.autocast('cuda', dtype=torch.bfloat16)`, or `precision: bf16` of `muster.train`.",
        "Where it must stay fp32, allow TF32 unless it is on already: `torch.set_float32_matmul_precision('high')`.",
    )
    text = "It computes in fp32 on a device that has bf16."
    return Finding("precision", 0.8, use / 2, text, lines, changes)


def single_precision(params: Mapping[str, str]) -> str | None:
    """The parameter that says that the run computes in fp32; None if none does."""
    for name in _PRECISION:
        if name in params:
            return f"{name}={params[name]}" if params[name].strip().lower() in _FP32 else None
    flags = {name: params[name].strip().lower() for name in _FLAGS if name in params}
    if flags and all(value in ("false", "0", "no", "off") for value in flags.values()) and "bf16" in flags:
        return ", ".join(f"{name}={params[name]}" for name in flags)
    return None


def thermal(evidence: Evidence) -> Finding | None:
    hot = [one for one in evidence.ranks if one.throttled is not None and THROTTLED <= one.throttled <= 1]
    if not hot:
        return None
    lines, lost = [], []
    for one in sorted(hot, key=lambda one: -(one.throttled or 0.0))[:4]:
        line = f"rank {one.rank}: its clock is held down in {one.throttled:.0%} of the samples"
        if one.temperature is not None and isfinite(one.temperature):
            line += f", at {one.temperature:.0f} C"
        if one.clock and one.clock_best and isfinite(one.clock) and isfinite(one.clock_best) and one.clock_best > 0:
            line += f", {one.clock:,.0f} MHz of {one.clock_best:,.0f}"
            lost.append(max(0.0, 1 - one.clock / one.clock_best))
        lines.append(line)
    text = f"{len(hot)} of {len(evidence.ranks)} ranks have a device whose clock is held down by heat or a power brake."
    changes = (
        "Have the node's cooling and power looked at; a gang is as slow as its slowest device.",
        "Until then, take the node out: other jobs there are slow too.",
    )
    share = max(lost) if lost else mean(one.throttled for one in hot) or 0.0
    return Finding(
        "thermal", 0.85, share, text, tuple(lines), changes, ("muster nodes check NODE", "muster nodes drain NODE")
    )
