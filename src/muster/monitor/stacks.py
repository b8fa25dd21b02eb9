"""Merges the stacks of many ranks: which of them are at the same place of the user's program, in a sentence each."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from muster.api.stacks import ProcessStack, RankStacks, StackFrame, StackGroup, ThreadStack

# Calls in which ranks wait for each other, by the names of torch.distributed.
COLLECTIVES: Final = frozenset((
    "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_to_all", "all_to_all_single",
    "barrier", "batch_isend_irecv", "broadcast", "broadcast_object_list", "destroy_process_group", "gather",
    "gather_object", "init_process_group", "monitored_barrier", "new_group", "recv", "reduce", "reduce_scatter",
    "reduce_scatter_tensor", "scatter", "scatter_object_list", "send",
))  # fmt: skip
_LIBRARY: Final = ("/site-packages/", "/dist-packages/", "/lib/python3", "/lib64/python3", "/pkg/muster/")
_WRAPPERS: Final = ("wrapper", "inner", "decorate_context")  # names that say nothing of what is called
_NORMAL: Final = ("running", "sleeping")  # states that need no mention
_NO_ANSWER: Final = "without an answer"


class Place(NamedTuple):
    """Where the main thread of a rank is. Ranks with the same key are at the same place."""

    key: tuple[object, ...]
    text: str
    frames: list[StackFrame]


def group(ranks: Sequence[RankStacks], missing: Collection[int] = ()) -> list[StackGroup]:
    """The ranks by their places, the largest group first; the ranks without an answer are the last group."""
    found: dict[tuple[object, ...], list[tuple[int, Place]]] = {}
    for one in sorted(ranks, key=lambda one: one["rank"]):
        place = place_of(one)
        found.setdefault(place.key, []).append((one["rank"], place))
    groups = [_group([rank for rank, _ in some], some[0][1]) for some in found.values()]
    groups.sort(key=lambda one: (-len(one["ranks"]), one["ranks"][0]))
    if missing:
        groups.append(_group(sorted(missing), Place((), _NO_ANSWER, [])))
    return groups


def place_of(rank: RankStacks) -> Place:
    """The place of the rank's main thread: of its first process that runs the user's Python, else of any Python."""
    if not rank["processes"]:
        return Place(("problem", rank["problem"]), f"without stacks: {rank['problem']}", [])
    threads = [(process, main_thread(process)) for process in rank["processes"]]
    for wanted in (_user_frame, _any_frame):
        for _, thread in threads:
            at = wanted(thread["frames"])
            if at is not None:
                return _python_place(thread, at)
    return _kernel_place(*threads[0])


def ranges(numbers: Sequence[int]) -> str:
    """Sorted numbers in short: "0-2, 4-7"."""
    parts = []
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        some = [number for _, number in run]
        parts.append(str(some[0]) if len(some) == 1 else f"{some[0]}-{some[-1]}")
    return ", ".join(parts)


def is_library(file: str) -> bool:
    """Whether the file belongs to Python or to an installed package, and not to the user's program."""
    return file.startswith("<frozen") or any(part in file for part in _LIBRARY)


def _group(ranks: list[int], place: Place) -> StackGroup:
    who = f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} ranks ({ranges(ranks)})"
    return {"ranks": ranks, "text": f"{who} {place.text}", "frames": place.frames}


def _python_place(thread: ThreadStack, at: int) -> Place:
    """The place by its frame `at`. What libraries do inside of it may differ between ranks that wait for each other."""
    frames = thread["frames"]
    name, frame = _called(frames, at), frames[at]
    state = "" if thread["state"] in _NORMAL else f"{thread['state']} "
    outer = tuple((one["function"], one["file"], one["line"]) for one in frames[at:])
    text = f"{state}in {name} at {frame['file'].rpartition('/')[2]}:{frame['line']}"
    return Place(("python", state, name, *outer), text, frames)


def _kernel_place(process: ProcessStack, thread: ThreadStack) -> Place:
    """The place of a program without a Python stack."""
    where = f" in {thread['wait']}" if thread["wait"] else ""
    why = f" ({process['problem']})" if process["problem"] else ""
    text = f"{thread['state']}{where}, program {process['name']}{why}"
    return Place(("kernel", text), text, [])


def _called(frames: Sequence[StackFrame], at: int) -> str:
    """What the frame calls, by a name that means something: a collective, else the first named function of a library,
    else the function of the frame itself, which then waits in no Python code."""
    inner = [frame["function"].rpartition(".")[2] for frame in reversed(frames[:at])]
    for name in inner:
        if name in COLLECTIVES:
            return name
    for name in inner:
        if name not in _WRAPPERS and (not name.startswith(("_", "<")) or name.startswith("__")):
            return name
    return frames[at]["function"]


def _user_frame(frames: Sequence[StackFrame]) -> int | None:
    return next((at for at, frame in enumerate(frames) if not is_library(frame["file"])), None)


def _any_frame(frames: Sequence[StackFrame]) -> int | None:
    return 0 if frames else None


def main_thread(process: ProcessStack) -> ThreadStack:
    """The first thread of a process; one without frames if it was not seen."""
    empty: ThreadStack = {"name": "", "main": True, "state": "ended", "wait": "", "frames": []}
    return next((one for one in process["threads"] if one["main"]), empty)
