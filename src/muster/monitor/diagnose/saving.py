"""Saves that stop training too often or for too long."""

from __future__ import annotations

from itertools import pairwise
from math import isfinite
from statistics import median
from typing import Final

from muster.monitor.diagnose.evidence import Evidence, bounds
from muster.monitor.diagnose.finding import Finding

LEAST: Final = 0.1  # of the loop's time
GOOD: Final = 0.02  # of the time: what saves should cost at most


def judge(evidence: Evidence) -> Finding | None:
    share, lines = evidence.share("saving"), list[str]()
    if share is not None and share >= LEAST:
        spent = evidence.times["saving"]
        lines.append(f"{share:.0%} of the loop's time is saving ({spent:,.1f} of {evidence.loop:,.1f} s)")
    elif "saving" not in evidence.stated and evidence.sampled:
        share, looks = evidence.samples.share("saving"), evidence.samples.looks
        if bounds(share, looks)[0] < LEAST:
            return None
        lines.append(f"in {share:.0%} of {looks} looks at its stacks it writes a checkpoint")
    else:
        return None
    seconds = [one.seconds for one in evidence.saves if one.seconds is not None and isfinite(one.seconds)]
    gaps = [after.time - before.time for before, after in pairwise(evidence.saves) if after.time > before.time]
    changes = []
    if seconds and gaps:
        each, gap = median(seconds), median(gaps)
        lines.append(f"{len(evidence.saves)} saves of {each:.2g} s each, one every {gap:.2g} s")
        changes.append(
            f"Save every {max(1, round(each / GOOD))} s or less often: then saves cost {GOOD:.0%} of the time."
        )
    else:
        changes.append(f"Save less often, so that saves cost {GOOD:.0%} of the time at most.")
    changes.append("Save in the background: `muster.train` does, and `torch.distributed.checkpoint.async_save`.")
    text = f"It saves too often: training stands still for {share:.0%} of the time while it writes checkpoints."
    return Finding("saving", 0.9, share, text, tuple(lines), tuple(changes), (f"muster runs show {evidence.job}",))
