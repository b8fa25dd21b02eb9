"""One worker's place: a node of the gang and the accelerators on it, by index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from muster.core.resources import WHOLE


@dataclass(frozen=True, slots=True)
class Seat:
    node: str
    devices: tuple[int, ...] = ()
    share: int = WHOLE  # thousandths of the one accelerator, where it is not the worker's alone

    def to_doc(self) -> dict[str, Any]:
        return {"node": self.node, "devices": list(self.devices), "share": self.share}


def is_slot(node: str) -> bool:
    """Whether this names a place in a cluster's own queue, POOL/NUMBER, and no machine."""
    return "/" in node


def seat_from(doc: dict[str, Any]) -> Seat:
    return Seat(doc["node"], tuple(doc["devices"]), doc.get("share", WHOLE))
