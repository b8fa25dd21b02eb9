"""Divergence: the first step at which the gradient norm or the loss left its path and stayed off it."""

from __future__ import annotations

from math import isfinite
from statistics import median
from typing import Final

from muster.monitor.damage import JUMP_SHARE, LAST, NORM_SHARE, NORMS, Damage, Path
from muster.monitor.diagnose.evidence import Evidence, Series
from muster.monitor.diagnose.finding import Finding

TAIL: Final = 8  # last values that say whether it is back on its path
NEAR: Final = 0.05  # of the steps before: what changed within them is named
RATE: Final = 1.5  # times: a rise of the learning rate that is named


def judge(evidence: Evidence) -> Finding | None:
    found = [
        (*left, series)
        for series in (evidence.norms, evidence.losses)
        if series is not None and (left := departure(series)) is not None
    ]
    if not found:
        return None
    step, damage, series = min(found, key=lambda one: one[0])
    if series is evidence.norms and _learns(evidence.losses, step):
        return None
    lines = [damage.sentence(), f"{series.name} left its path at step {step:,} and is not back on it"]
    lines += [f"{other.name} followed at step {at:,}" for at, _, other in found if other is not series]
    lines += _changed(evidence, step)
    if len(lines) == 2:
        lines.append("nothing that is recorded changed near that step: not the learning rate, nor an attempt")
    text = f"Training diverges: {series.name} left its path at step {step:,}."
    changes = (
        f"Go back to a checkpoint before step {step:,}, with a lower learning rate or a longer warm-up.",
        "Clip the gradient norm (1.0 is usual).",
        "Look at the data of that step: if the run diverges there again, it is the data.",
    )
    return Finding("divergence", 0.85, 1.0, text, tuple(lines), changes, (f"muster runs show {evidence.job}",))


def departure(series: Series) -> tuple[int, Damage] | None:
    """The step at which a curve left its path, and the damage; None if it has not, or is back on it."""
    path = Path(series.name)
    points = list(zip(series.steps, series.values, strict=False))
    for at, point in enumerate(points):
        told = path.take([point])
        if not told or told[0].usual is None:
            continue
        damage, usual = told[0], told[0].usual
        limit = usual + (NORM_SHARE if series.name in NORMS else JUMP_SHARE) * abs(usual)
        last = [value for _, value in points[-TAIL:]]
        finite = [value for value in last if isfinite(value)]
        if len(finite) > TAIL // 2 and median(finite) <= limit:
            continue  # a spike: it came back
        begin = at
        while begin > max(0, at - LAST) and not points[begin - 1][1] <= limit:
            begin -= 1
        return points[begin][0], damage
    return None


def _learns(losses: Series | None, step: int) -> bool:
    """Whether the loss is below what it was before the step: a norm on another level is no harm then."""
    if losses is None:
        return False
    points = list(zip(losses.steps, losses.values, strict=False))
    before = [value for at, value in points if at < step and isfinite(value)][-TAIL:]
    now = [value for at, value in points if at >= step][-TAIL:]
    return bool(before and now) and all(map(isfinite, now)) and median(now) <= median(before)


def _changed(evidence: Evidence, step: int) -> list[str]:
    """What is recorded to have changed shortly before."""
    since = step - max(2, round(NEAR * step))
    lines = [f"{what} at step {at:,}" for at, what in evidence.changes if since <= at <= step]
    rate = evidence.rate
    if rate is not None:
        known = [(at, value) for at, value in zip(rate.steps, rate.values, strict=False) if isfinite(value)]
        before = [value for at, value in known if at < since]
        then = [(at, value) for at, value in known if since <= at <= step]
        if before and then:
            at, most = max(then, key=lambda one: one[1])
            if before[-1] > 0 and most >= RATE * before[-1]:
                lines.append(f"{rate.name} rose from {before[-1]:.3g} to {most:.3g} at step {at:,}")
    return lines
