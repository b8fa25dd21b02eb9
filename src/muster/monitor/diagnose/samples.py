"""Samples of stacks: what the main thread of each rank was doing in each of several looks, by kinds of activity."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Final, Literal

from muster.api.stacks import RankStacks, StackFrame, ThreadStack
from muster.monitor.stacks import COLLECTIVES, is_library, main_thread

# `backward_wait`: asleep inside of the backward pass, as a CPU's rank of DDP is while it waits for the others.
Activity = Literal[
    "data", "saving", "communication", "synchronisation", "backward_wait", "framework", "asleep", "other"
]
OWN: Final = ("data", "saving", "asleep", "other")  # what a rank does by itself, outside of a framework

# Parts of the paths of files whose frames say what the program does, whatever it does inside of them. The short ones
# count in installed packages alone: a user's folder may have such a name.
_SAVES: Final = ("torch/serialization.py", "torch/distributed/checkpoint/", "muster/runtime/checkpoints.py")
_SAVE_PACKAGES: Final = ("/safetensors/",)
_SAVE_NAMES: Final = frozenset({"save", "_save", "save_file", "async_save", "save_state_dict", "checkpoint", "saving"})
_LOADERS: Final = ("torch/utils/data/",)
_LOADER_PACKAGES: Final = (
    "/torchdata/", "/webdataset/", "/streaming/base/", "/muster/data/", "/grain/", "/nvidia/dali/",
)  # fmt: skip
_DISTRIBUTED: Final = "torch/distributed/"
_FRAMEWORKS: Final = ("/torch/", "/jax/", "/jaxlib/", "/tensorflow/")
_BACKWARD: Final = "/torch/autograd/"
_SYNCHRONISE: Final = ("torch/cuda/", "synchronize")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rank was: the function of the user's program, its file and line."""

    function: str
    file: str
    line: int
    call: str = ""

    def __str__(self) -> str:
        what = f"`.{self.call}()` in {self.function}" if self.call else self.function
        return f"{what} at {self.file.rpartition('/')[2]}:{self.line}"


@dataclass(frozen=True, slots=True)
class Samples:
    """`counts` has, for each rank, how often it was seen in each activity and place; `seen`, in how many looks."""

    looks: int = 0
    seconds: float = 0.0  # from the first look to the last
    counts: Mapping[int, Mapping[tuple[Activity, Place | None], int]] = field(default_factory=dict)
    seen: Mapping[int, int] = field(default_factory=dict)

    def of(self, rank: int, *activities: Activity) -> float:
        """The share of the looks at a rank in which it did one of these."""
        whole = self.seen.get(rank, 0)
        found = sum(count for (kind, _), count in self.counts.get(rank, {}).items() if kind in activities)
        return found / whole if whole else 0.0

    def share(self, activity: Activity) -> float:
        """The mean over all ranks."""
        return sum(self.of(rank, activity) for rank in self.seen) / len(self.seen) if self.seen else 0.0

    def places(self, activity: Activity, most: int = 2) -> list[tuple[Place, int]]:
        """Where it was most often, over all ranks."""
        found: Counter[Place] = Counter()
        for counts in self.counts.values():
            for (kind, place), count in counts.items():
                if kind == activity and place is not None:
                    found[place] += count
        return found.most_common(most)

    def usual(self, rank: int) -> Place | None:
        """Where a rank was most often."""
        found: Counter[Place] = Counter()
        for (_, place), count in self.counts.get(rank, {}).items():
            if place is not None:
                found[place] += count
        return found.most_common(1)[0][0] if found else None


def sampled(looks: Iterable[Sequence[RankStacks]]) -> Samples:
    """Counts the stacks of several looks. A rank without a Python stack is not counted in that look."""
    number, times = 0, list[float]()
    counts: dict[int, Counter[tuple[Activity, Place | None]]] = {}
    seen: Counter[int] = Counter()
    for look in looks:
        found = [(one, thread) for one in look if (thread := _thread(one)) is not None]
        if not found:
            continue
        number += 1
        for one, thread in found:
            if isfinite(one["time"]):
                times.append(one["time"])
            seen[one["rank"]] += 1
            counts.setdefault(one["rank"], Counter())[activity_of(thread), place_in(thread["frames"])] += 1
    return Samples(number, max(times) - min(times) if times else 0.0, counts, seen)


def activity_of(thread: ThreadStack) -> Activity:
    """What a main thread does, by the names of its frames; the innermost comes first."""
    frames = thread["frames"]
    if any(_is_save(frame) for frame in frames):
        return "saving"
    if any(_is_in(frame, _LOADERS, _LOADER_PACKAGES) for frame in frames):
        return "data"
    if any(_is_collective(frame) for frame in frames):
        return "communication"
    inner = frames[0]
    folder, name = _SYNCHRONISE
    if inner.get("call") or (folder in inner["file"] and inner["function"] == name):
        return "synchronisation"
    if any(part in frame["file"] for frame in frames for part in _FRAMEWORKS):
        backward = any(_BACKWARD in frame["file"] for frame in frames)
        return "backward_wait" if backward and thread["state"] == "sleeping" else "framework"
    return "asleep" if thread["state"] == "sleeping" else "other"


def place_in(frames: Sequence[StackFrame]) -> Place | None:
    """The innermost frame of the user's own program."""
    for frame in frames:
        if not is_library(frame["file"]):
            return Place(frame["function"], frame["file"], frame["line"], frame.get("call", ""))
    return None


def _is_save(frame: StackFrame) -> bool:
    return frame["function"].rpartition(".")[2] in _SAVE_NAMES and _is_in(frame, _SAVES, _SAVE_PACKAGES)


def _is_in(frame: StackFrame, parts: Sequence[str], packages: Sequence[str]) -> bool:
    file = frame["file"]
    return any(part in file for part in parts) or (is_library(file) and any(part in file for part in packages))


def _is_collective(frame: StackFrame) -> bool:
    name = frame["function"].rpartition(".")[2]
    return _DISTRIBUTED in frame["file"] and (name in COLLECTIVES or name == "wait")


def _thread(rank: RankStacks) -> ThreadStack | None:
    """The main thread of the rank's first process that runs the user's Python; None if there is none."""
    threads = [main_thread(process) for process in rank["processes"]]
    return next((one for one in threads if place_in(one["frames"]) is not None), None)
