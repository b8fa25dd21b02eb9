"""NVIDIA's Xid codes, as the driver writes them into the kernel's log, and what each one asks for.

The table is data with a version: vendors disagree about single codes, and new drivers add some. Sources: NVIDIA's
catalogue of Xid errors, and the figures of clusters that published theirs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

VERSION: Final = "2026-11"
# `restart`: the program's own fault, or one that ends with it. `reset`: the device. `reboot`: the machine.
# `procedure`: an operator follows the vendor's steps. `ignore`: no sign of a sick device by itself.
Action = Literal["ignore", "restart", "reset", "reboot", "procedure", "unknown"]
_TABLE: Final[dict[Action, tuple[int, ...]]] = {
    "ignore": (43, 45, 63),
    "restart": (13, 31, 94),
    "reset": (46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158),
    "reboot": (79,),
    "procedure": (48, 74, *range(144, 151)),
}
ACTIONS: Final[dict[int, Action]] = {code: action for action, codes in _TABLE.items() for code in codes}
SICK: Final[frozenset[Action]] = frozenset({"reset", "reboot", "procedure"})  # a job should not start on such a device
_LINE: Final = re.compile(r"NVRM: Xid \((?P<device>[^)]*)\): (?P<code>\d+)")


@dataclass(frozen=True, slots=True)
class Xid:
    code: int
    device: str  # its PCI address, as the driver writes it

    @property
    def action(self) -> Action:
        return ACTIONS.get(self.code, "unknown")


def find_xid(line: str) -> Xid | None:
    """The Xid of a line of the kernel's log."""
    found = _LINE.search(line)
    return Xid(int(found["code"]), found["device"]) if found else None
