"""Signs of silent damage in the curves of a run: values that are not finite, and jumps far off the recent path.

Pure: points in, findings out. The path is the median of the last values, and its width their median distance from it,
so that single outliers move neither. Training curves fall and jitter, so only rises count, and only large ones: a false
alarm costs more than a late one.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

WINDOW: Final = 64  # values that make the path
WARM_UP: Final = 32  # values before the first judgement
JUMP_WIDTHS: Final = 12.0  # times the path's width above it, in most of the last values
JUMP_SHARE: Final = 0.5  # and at least this part of the median above it
NORM_SHARE: Final = 2.0  # the same for a gradient norm, which doubles for a while in ordinary runs
LAST: Final = 5  # values of which
MOST: Final = 4  # must be that far off
AGAIN: Final = 8  # values after which the path is worked out anew
CALM: Final = 20  # ordinary values after which the next finding of the kind is told

# The metrics that are judged, by the names that programs give them.
LOSSES: Final = frozenset({"loss", "train_loss", "train/loss", "training_loss", "loss/train"})
NORMS: Final = frozenset({"grad_norm", "gradient_norm", "train/grad_norm", "grad_norm/total"})
JUDGED: Final = LOSSES | NORMS

DamageKind = Literal["not_finite", "jump"]


@dataclass(frozen=True, slots=True)
class Damage:
    """What was found in one metric. `usual` is the median of the values before; None if there were none."""

    kind: DamageKind
    metric: str
    step: int
    value: float
    usual: float | None

    def sentence(self) -> str:
        if self.kind == "not_finite":
            before = f"; it was about {self.usual:.4g} before" if self.usual is not None else ""
            return f"{self.metric} is {self.value} at step {self.step:,}{before}"
        return (
            f"{self.metric} has jumped to {self.value:.4g} by step {self.step:,}; it was about {self.usual:.4g} before"
        )


@dataclass(slots=True)
class Path:
    """The recent course of one metric of one attempt."""

    metric: str
    _values: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))  # ordinary ones
    _far: deque[bool] = field(default_factory=lambda: deque(maxlen=LAST))
    _count: int = 0
    _known: tuple[float, float] | None = None  # the path, as last worked out
    _before: float | None = None  # the median before the first of the last values that are far off
    _calm: dict[DamageKind, int] = field(default_factory=dict)  # values since the last sign of each kind

    def take(self, points: Iterable[tuple[int, float]]) -> list[Damage]:
        """Takes (step, value) in the order of their report; what is new of damage."""
        return [found for step, value in points if (found := self._take(step, value)) is not None]

    def _take(self, step: int, value: float) -> Damage | None:
        if not math.isfinite(value):
            return self._tell("not_finite", step, value)
        far = self._is_far(value)
        self._far.append(far)
        if far and self._known is not None and sum(self._far) == 1:
            self._before = self._known[0]
        jumped = sum(self._far) >= MOST
        if not far or jumped:  # a level that stays is the new path
            self._values.append(value)
            self._count += 1
            if jumped or self._count % AGAIN == 0:
                self._known = None
        for kind in self._calm:
            self._calm[kind] += 1
        return self._tell("jump", step, value) if jumped else None

    def _tell(self, kind: DamageKind, step: int, value: float) -> Damage | None:
        """The finding, unless the same was told and has not ended since."""
        last, self._calm[kind] = self._calm.get(kind), 0
        if last is not None and last < CALM:
            return None
        usual = self._before if kind == "jump" else path_of(self._values)[0] if self._values else None
        return Damage(kind, self.metric, step, value, usual)

    def _is_far(self, value: float) -> bool:
        if len(self._values) < WARM_UP:
            return False
        if self._known is None:
            self._known = path_of(self._values)
        middle, width = self._known
        share = NORM_SHARE if self.metric in NORMS else JUMP_SHARE
        if middle == 0:  # such as a norm of nothing: any other value would be a jump
            return False
        return value - middle > max(JUMP_WIDTHS * width, share * abs(middle))


def path_of(values: Iterable[float]) -> tuple[float, float]:
    """The median, and the median distance from it as the standard deviation of a normal curve."""
    ordered = sorted(values)
    middle = ordered[len(ordered) // 2]
    away = sorted(abs(value - middle) for value in ordered)
    return middle, 1.4826 * away[len(away) // 2]
