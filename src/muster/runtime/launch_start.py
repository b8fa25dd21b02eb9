"""A launcher's part in a run that starts from another run's checkpoint: takes it, and tells the ranks where it is."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from muster import wire
from muster.runtime.checkpoint_files import Owner
from muster.runtime.start_checkpoint import Taker, Wait, await_taken, take

PATIENCE: Final = 600.0  # seconds to wait for a folder that can't be read, unless the job file says


@dataclass(frozen=True, slots=True)
class Started:
    """`envs`: for the ranks. `doc`: for the server, if this worker is the one that takes it. `remark`: for the logs."""

    envs: dict[str, str]
    doc: dict[str, Any] | None = None
    remark: str = ""


def start(launch: wire.Launch, wait: Wait) -> Started:
    """Call it when the ranks' user owns the run's folder. Raises `NoStart` and `Stopped` of `start_checkpoint`."""
    asked = launch.start
    assert asked is not None
    if asked.store or "://" in launch.checkpoint_dir:  # a launcher has no credentials: the ranks take it
        store = asked.store or f"{launch.checkpoint_dir.rpartition('/')[0]}/{asked.run}"
        return Started(_envs(store, asked.step))
    own, began = Path(launch.checkpoint_dir), time.monotonic()
    patience = float(launch.envs.get(wire.CHECKPOINT_WAIT) or PATIENCE)
    if launch.worker:
        found = await_taken(own, wait, patience)
    else:
        own.mkdir(parents=True, exist_ok=True)
        found = take(asked, Taker(own, launch.attempt, _owner(launch, asked.share), wait), patience)
    # From here on it is known, so that no rank that looks for it begins without it.
    envs = {wire.CHECKPOINT_KNOWN: found.path, wire.CHECKPOINT_WAIT: f"{patience:g}", **launch.envs}
    envs |= _envs(launch.checkpoint_dir, found.step)
    if launch.worker:
        return Started(envs)
    seconds = time.monotonic() - began
    doc = {"type": "taken", "step": found.step, "path": found.path, "bytes": found.bytes, "how": found.how}
    how = "linked" if found.how == "link" else f"copied in {seconds:.1f} s, because {found.why}"
    remark = f"starts from step {found.step:,} of {asked.run}, whose files are {how}"
    return Started(envs, {**doc, "why": found.why, "seconds": seconds}, remark)


def _envs(store: str, step: int | None) -> dict[str, str]:
    return {wire.START_FROM: store, **({wire.START_STEP: str(step)} if step is not None else {})}


def _owner(launch: wire.Launch, links: bool) -> Owner:
    """The user that the ranks run as."""
    apart = launch.isolation if os.geteuid() == 0 else None
    return Owner(apart.uid, apart.gid, links) if apart is not None else Owner(os.geteuid(), os.getegid(), links)
