"""One finding of `muster doctor`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class Check:
    """`warn` is worth knowing, `fail` prevents Muster from working; `hint` says what to do about either."""

    name: str
    status: Literal["ok", "warn", "fail"]
    detail: str
    hint: str = ""


Checker = Callable[[Path], Iterator[Check]]  # called with the home folder
