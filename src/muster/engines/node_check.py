"""A check of a node by means of a cluster's own queue: asks for a place there, waits, and takes the result.

It asks for the node's accelerators first. If others hold them it does without, and their checks are unknown.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from muster.core.errors import EngineError

DEVICES_WAIT: Final = 20.0  # seconds for a place with the accelerators
PLACE_WAIT: Final = 60.0  # seconds for a place, altogether
RUN_WAIT: Final = 30.0  # seconds from there to the result; each check ends by itself after five
LONGEST: Final = PLACE_WAIT + RUN_WAIT
LOOK: Final = 0.25  # seconds
MEMORY: Final = 512 << 20  # bytes of a check, and so many more for each accelerator:
DEVICE_MEMORY: Final = 1 << 30
_STATUSES: Final = ("ok", "failed", "unknown")
_TEXT: Final = 2000  # characters of a detail


@dataclass(frozen=True, slots=True)
class Progress:
    """`text`: of one that waits, why; of one that ended, its result, or why there is none."""

    stage: Literal["waiting", "running", "ended"]
    text: str = ""


class PlacedCheck(Protocol):
    """One check that a cluster was asked to start."""

    def progress(self) -> Progress: ...

    def remove(self) -> None:
        """Takes it out of the cluster, whatever its stage. Raises nothing."""


def run_check(
    node: str,
    start: Callable[[int], PlacedCheck],
    devices: int,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], object] = time.sleep,
) -> list[Mapping[str, Any]]:
    """The findings. `start` asks the cluster for a place with so many accelerators, at most `devices`.
    Raises EngineError if there is no place, or no result."""
    began = clock()
    for asked in (devices, 0) if devices else (0,):
        until = began + (DEVICES_WAIT if asked else PLACE_WAIT)
        check = start(asked)
        try:
            found = _wait(node, check, until, clock, wait)
        finally:
            check.remove()
        if found.stage == "ended":
            return read_findings(node, found.text)
    why = f" ({found.text})" if found.text else ""
    raise EngineError(
        f"{node} was not checked: no place on the node within {PLACE_WAIT:.0f} s{why}.",
        "A check waits for a free slot of the cluster: try it again when there is room on the node.",
    )


def options(asked: int, devices: int) -> list[str]:
    """Options of `muster.runtime.node_checks` for a check that holds `asked` of the node's accelerators."""
    if not devices:
        return []
    return [f"--accelerators={asked}"] if asked else ["--no-accelerators"]


def memory_of(asked: int) -> int:
    return MEMORY + asked * DEVICE_MEMORY


def read_findings(node: str, text: str) -> list[Mapping[str, Any]]:
    """The result of `muster.runtime.node_checks`, from what a check left. Raises EngineError for anything else."""
    lines = [line for line in text.splitlines() if line.startswith("[")]
    try:
        found = [_finding(one) for one in json.loads(lines[-1])]
    except (ValueError, TypeError, KeyError, IndexError):
        said = " ".join(text.split())[-500:] or "it left nothing"
        raise EngineError(f"The check of {node} ended without a result: {said}", "See the cluster's log.") from None
    return found


def is_whole(text: str) -> bool:
    """Whether the output of a check has its result."""
    try:
        return bool(read_findings("", text))
    except EngineError:
        return False


def _wait(
    node: str, check: PlacedCheck, until: float, clock: Callable[[], float], wait: Callable[[float], object]
) -> Progress:
    """Until it has ended, or has no place in time."""
    running: float | None = None
    while (found := check.progress()).stage != "ended":
        now = clock()
        if found.stage == "running":
            running = now if running is None else running
            if now - running >= RUN_WAIT:
                raise EngineError(f"The check of {node} gave no result within {RUN_WAIT:.0f} s.", "Look at the node.")
        elif now >= until:
            break
        wait(LOOK)
    return found


def _finding(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    if raw["status"] not in _STATUSES:
        raise ValueError(raw["status"])
    seconds = max(0.0, min(float(raw["seconds"]), 3600.0))
    return {
        "check": str(raw["check"])[:64],
        "status": raw["status"],
        "detail": str(raw["detail"])[:_TEXT],
        "seconds": seconds,
    }
