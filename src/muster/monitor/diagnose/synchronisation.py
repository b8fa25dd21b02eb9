"""Synchronisation: the host waits for its device again and again (`.item()` in the loop), and the device for the host.

A host that waits for a busy device loses nothing, so the device must be known to be idle for a part of the time.
"""

from __future__ import annotations

from typing import Final

from muster.monitor.diagnose.evidence import Evidence, bounds
from muster.monitor.diagnose.finding import Finding

LEAST: Final = 0.2  # of the looks
BUSY: Final = 0.85  # use of a device that has no reason to wait


def judge(evidence: Evidence) -> Finding | None:
    use, samples = evidence.device_use, evidence.samples
    share = samples.share("synchronisation")
    if use is None or use >= BUSY or not evidence.sampled or bounds(share, samples.looks)[0] < LEAST:
        return None
    lines = [f"in {share:.0%} of {samples.looks} looks the program waits for its device's results"]
    lines += [f"seen {count} times in {place}" for place, count in samples.places("synchronisation")]
    lines.append(f"meanwhile its devices are in use {use:.0%} of the time")
    changes = (
        "Read values every 50 steps and not in each: keep `loss.detach()` and call `.item()` on the sum.",
        "Keep tests of tensors on the device (`torch.where` for `if`), and copy with `non_blocking=True`.",
    )
    text = "The program waits for its device in the loop, which leaves the device without work in between."
    return Finding(
        "synchronisation", 0.8, min(share, 1 - use), text, tuple(lines), changes, (f"muster stacks {evidence.job}",)
    )
