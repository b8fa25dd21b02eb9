"""What was found out about a job before the commit: its image in the registry, and the packages of its lock files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from muster.core.advisories import Vulnerable


@dataclass(frozen=True, slots=True)
class ImageFinding:
    digest: str = ""  # that its name stands for; "" if nobody could say
    size: int | None = None  # bytes, compressed; None: nobody could say
    signed: bool | None = None  # None: the settings ask for no signature
    trouble: str = ""  # why nobody could say


@dataclass(frozen=True, slots=True)
class LockFile:
    name: str
    digest: str  # SHA-256 of its bytes, in hex
    packages: Mapping[str, tuple[str, ...]]
    trouble: str = ""  # why it could not be read

    @property
    def names(self) -> tuple[str, ...]:
        """What a policy may call it by."""
        return (self.name, f"sha256:{self.digest}", f"{self.name}@sha256:{self.digest}")


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """What a training is predicted to need of each of its accelerators, in bytes."""

    config: str
    device: str
    bytes: float
    available: float


@dataclass(frozen=True, slots=True)
class Inspected:
    image: ImageFinding | None = None  # None: not looked at
    locks: tuple[LockFile, ...] | None = None  # None: not looked at, or no snapshot of its files is known
    vulnerable: tuple[Vulnerable, ...] = ()
    trouble: str = ""  # why the packages could not be compared with advisories
    memory: MemoryNeed | None = None  # None: not predicted
    looked: bool = False  # False: trials of a study, and jobs of the past


NOTHING: Final = Inspected()
