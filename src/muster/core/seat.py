"""A seat: the node of one worker and the accelerators on it, by index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from muster.core.resources import WHOLE


@dataclass(frozen=True, slots=True)
class Seat:
    node: str
    devices: tuple[int, ...] = ()
    share: int = WHOLE  # thousandths of the one accelerator, if the worker shares it

    def to_doc(self) -> dict[str, Any]:
        return {"node": self.node, "devices": list(self.devices), "share": self.share}


def is_slot(node: str) -> bool:
    """Whether the name is that of a slot (a place in a cluster's own queue), POOL/NUMBER, and not of a machine."""
    return "/" in node


def seat_from(doc: dict[str, Any]) -> Seat:
    return Seat(doc["node"], tuple(doc["devices"]), doc.get("share", WHOLE))
