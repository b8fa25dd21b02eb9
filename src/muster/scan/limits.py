"""The limits of one scan: time, bytes that are read, members of archives and how deep they are nested."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

SECONDS: Final = 60.0  # for one artifact
READ: Final = 4 << 30  # bytes, unpacked ones among them
MEMBERS: Final = 200_000
DEPTH: Final = 4  # archives within archives
OPCODES: Final = 50_000_000
BOMB_BYTES: Final = 256 << 20  # archives that unpack to less are no bombs
BOMB_RATIO: Final = 200


class TooMuch(Exception):
    """The content would take more than the limits. Its text says which."""


class Broken(Exception):
    """The content can't be read as what it claims to be. Its text says what is wrong."""


@dataclass(slots=True)
class Budget:
    seconds: float = SECONDS
    read: int = READ
    members: int = MEMBERS
    opcodes: int = OPCODES
    inner: int = 1000  # pickles within pickles
    until: float = field(init=False)

    def __post_init__(self) -> None:
        self.until = time.monotonic() + self.seconds

    def spend(self, count: int) -> None:
        """Counts bytes that were read."""
        self.read -= count
        if self.read < 0:
            raise TooMuch("it unpacks to more than is looked at")
        self.check_time()

    def member(self) -> None:
        self.members -= 1
        if self.members < 0:
            raise TooMuch(f"its archives have more than {MEMBERS:,} members")

    def opcode(self) -> None:
        self.opcodes -= 1
        if self.opcodes < 0:
            raise TooMuch("its pickles have too many operations")
        if not self.opcodes & 0xFFFF:
            self.check_time()

    def nested(self) -> None:
        self.inner -= 1
        if self.inner < 0:
            raise TooMuch("too many pickles are within each other")

    def check_time(self) -> None:
        if time.monotonic() > self.until:
            raise TooMuch(f"it takes more than {self.seconds:g} seconds to look at")
