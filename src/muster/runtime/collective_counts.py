"""The launcher's reader of what `rank_collectives` writes in the ranks: how many collectives were begun."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Final

from muster import wire
from muster.runtime import rank_collectives, untrusted

OLD: Final = 4 * rank_collectives.EVERY  # seconds without a look after which a count is not known any more
PROCESSES: Final = 64  # of a rank
MOST: Final = 2**63 - 1  # that a pulse may have

Looks = dict[str, tuple[int, float]]  # by file: the count of looks in it, and since when it is that


class CollectiveCounts:
    """Reads the counts of ranks; for one thread."""

    def __init__(self) -> None:
        self._looks: dict[Path, Looks] = {}  # by the rank's folder

    def read(self, folder: Path) -> dict[str, int] | None:
        """By process group, how many collectives the processes of a rank have begun; None if that is not known now.
        `folder` is the rank's own, in which a program may have put anything."""
        total: dict[str, int] = {}
        before, now = self._looks.pop(folder, {}), time.monotonic()
        found: Looks = {}
        files = [name for name in untrusted.names(folder) if name.startswith(rank_collectives.FILE)]
        for name in files[:PROCESSES]:
            try:
                raw = json.loads(untrusted.read_plain(folder, name, rank_collectives.BYTES))
                counts, looks = wire.collective_counts(raw["begun"]), int(raw["looks"])
            except (OSError, ValueError, LookupError, TypeError, OverflowError, RecursionError):
                continue  # it is being written, or it is no file of ours
            known = before.get(name)
            found[name] = known if known is not None and known[0] == looks else (looks, now)
            if now - found[name][1] <= OLD:
                for group, count in counts.items():
                    total[group] = min(total.get(group, 0) + count, MOST)
        if found:
            self._looks[folder] = found
        return wire.collective_counts(total) if total else None
