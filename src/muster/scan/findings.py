"""What a scan found: where it is, what it is, and what to do; never the value of a secret."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from muster.api.scans import FindingSort, ScanFinding

Sort = FindingSort
MOST: Final = 100  # findings of one scan that are kept


@dataclass(frozen=True, slots=True)
class Finding:
    sort: Sort
    place: str  # `train.py:12`, `envs.TOKEN`, `run`, `data.pkl in model.pt`
    what: str
    hint: str = ""  # what to do
    size: int = 0  # bytes of a large file

    def to_dict(self) -> ScanFinding:
        found: ScanFinding = {"sort": self.sort, "place": self.place, "what": self.what, "hint": self.hint}
        return {**found, "size": self.size} if self.size else found

    def at(self, path: str) -> Finding:
        """The finding in a file of that path, of one that was made without it."""
        return Finding(self.sort, path + self.place, self.what, self.hint.replace("{path}", path), self.size)

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Finding:
        return cls(raw["sort"], str(raw["place"]), str(raw["what"]), str(raw.get("hint", "")), int(raw.get("size", 0)))

    def __str__(self) -> str:
        return f"{self.place}: {self.what}"


def mask(value: str) -> str:
    """A hint at the value for who knows it: its first characters if it is long, and its length."""
    shown = "".join(one if one.isprintable() and one.isascii() else "?" for one in value[:4])
    return f"{shown}… ({len(value)} characters)" if len(value) >= 20 else f"{len(value)} characters"
