"""What the tests of exporters and importers share: runs out of thin air, and TensorBoard's own reader."""

from __future__ import annotations

import base64
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from muster.track.exporters.base import Facts, Medium, Series

FIXTURES = Path(__file__).parent / "track_transfer" / "fixtures"
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAEElEQVR4nGNgYGD4DyMZGAAP+wH/tbVSzAAAAABJRU5ErkJggg=="
)


@dataclass
class GivenRun:
    """A run as an exporter reads it, without a server."""

    facts: Facts
    given: Sequence[Series] = ()
    shown: Sequence[Medium] = field(default_factory=list)

    def series(self, superseded: bool = False) -> Iterator[Series]:
        yield from (each for each in self.given if superseded or not each.superseded)

    def media(self) -> Iterator[Medium]:
        yield from self.shown


def series(
    name: str,
    steps: Sequence[int],
    values: Sequence[float],
    *,
    rank: int | None = None,
    superseded: bool = False,
    attempt: int = 1,
    began: float = 1.7e9,
) -> Series:
    return Series(
        name,
        rank,
        superseded,
        np.asarray(steps, np.int64),
        began + np.arange(len(steps), dtype=np.float64),
        np.asarray(values, np.float64),
        np.full(len(steps), attempt, np.int32),
    )


def board(folder: Path) -> Any:
    """What TensorBoard itself reads in a folder; its own imports warn of one another."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: PLC0415

        kinds = ("scalars", "histograms", "images", "tensors", "compressedHistograms", "audio")
        found = EventAccumulator(str(folder), size_guidance=dict.fromkeys(kinds, 0))
        found.Reload()
    return found
