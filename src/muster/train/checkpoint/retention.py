"""Which checkpoints may be deleted: a pure function of the existing ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple


class Kept(NamedTuple):
    """The properties of a checkpoint that retention uses."""

    folder: str
    step: int
    good: bool  # its manifest is readable and its files have their sizes


def doomed(found: Sequence[Kept], keep: int, keep_every: int, needed: Collection[int] = frozenset()) -> list[str]:
    """The folders that may be deleted. `all` must be sorted by commit, newest first.

    The newest `keep` valid checkpoints stay, and valid ones whose step is a multiple of `keep_every`. Damaged ones
    don't count, and are deleted once there are `keep` newer valid ones. So at least one valid checkpoint always stays.
    `needed`: steps that other runs have yet to start from.
    """
    gone: list[str] = []
    good = 0
    for each in found:
        lasting = each.good and (each.step in needed or (keep_every > 0 and each.step % keep_every == 0))
        if good >= max(1, keep) and not lasting:
            gone.append(each.folder)
        good += each.good
    return gone
