"""Which checkpoints may go: a pure function of what is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Kept(NamedTuple):
    """A checkpoint as retention sees it."""

    folder: str
    step: int
    good: bool  # its manifest is readable and its files have their sizes


def doomed(found: Sequence[Kept], keep: int, keep_every: int) -> list[str]:
    """The folders that may go, out of all, which come newest commit first.

    The newest `keep` good ones stay, and good ones whose step divides by `keep_every`. Damaged ones don't count and go
    once `keep` newer good ones are there. So as long as there is a good one, one stays.
    """
    gone: list[str] = []
    good = 0
    for each in found:
        lasting = each.good and keep_every > 0 and each.step % keep_every == 0
        if good >= max(1, keep) and not lasting:
            gone.append(each.folder)
        good += each.good
    return gone
