"""Stacks of a job's ranks: what every thread of their processes was doing at one moment."""

from muster.api.typed import NotRequired, TypedDict


class StackFrame(TypedDict):
    function: str
    file: str
    line: int
    call: NotRequired[str]  # the method of its line that makes the host wait for its device, as `item`


class ThreadStack(TypedDict):
    name: str
    main: bool  # the first thread of its process
    state: str  # the kernel's word: running, sleeping, stopped, waiting for a device, ...
    wait: str  # the function of the kernel in which it waits; "" where it does not say
    frames: list[StackFrame]  # of Python, the innermost first; empty where none could be seen


class ProcessStack(TypedDict):
    pid: int
    name: str
    source: str  # py-spy, signal (the handler in the process), or kernel: no Python stack was found
    problem: str  # why there is no Python stack
    threads: list[ThreadStack]


class ProfiledStack(TypedDict):
    at: list[int]  # places in the profile's `frames`, the outermost first
    count: int


class Profile(TypedDict):
    """The stacks of the main threads of a rank's processes, seen so often."""

    seconds: float
    samples: int
    left_out: int  # samples of rare stacks that are not told
    source: str  # py-spy, or signal (the handler in the process)
    problem: str  # why there are none
    frames: list[StackFrame]
    stacks: list[ProfiledStack]  # the most frequent first


class RankStacks(TypedDict):
    rank: int
    time: float
    problem: str  # why there is nothing of it
    processes: list[ProcessStack]  # the rank's first process comes first
    profile: NotRequired[Profile]  # where one was asked for


class StackGroup(TypedDict):
    """Ranks whose main threads are at the same place."""

    ranks: list[int]
    text: str  # "7 ranks (0-2, 4-7) in all_reduce at train.py:88"
    frames: list[StackFrame]  # of the first of them, the innermost first


class StacksOrder(TypedDict):
    """Stacks that were asked for. They arrive within seconds."""

    id: int
    job: str
    attempt: int
    ranks: int  # how many will answer


class StacksEntry(TypedDict):
    id: int
    attempt: int
    time: float
    ranks: int  # how many have answered
    world: int  # how many there were


class StacksList(TypedDict):
    job: str
    stacks: list[StacksEntry]  # the newest first


class StacksView(TypedDict):
    """The stacks of all ranks at one moment."""

    id: int
    job: str
    attempt: int
    time: float
    world: int
    missing: list[int]  # ranks that have not answered
    groups: list[StackGroup]
    ranks: list[RankStacks]
