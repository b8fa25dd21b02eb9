"""Merging the stacks of ranks: the words for a place, groups, and that no rank is lost or named twice."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api.stacks import ProcessStack, RankStacks, StackFrame, ThreadStack
from muster.monitor.stacks import group, is_library, place_of, ranges

TORCH = "/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py"
LOGGER = "/venv/lib/python3.12/site-packages/torch/distributed/c10d_logger.py"


def frame(function: str, file: str, line: int) -> StackFrame:
    return {"function": function, "file": file, "line": line}


def thread(*frames: StackFrame, **more: Any) -> ThreadStack:
    made: ThreadStack = {"name": "", "main": True, "state": "sleeping", "wait": "", "frames": list(frames)}
    made.update(more)  # type: ignore[typeddict-item]
    return made


def process(*threads: ThreadStack, name: str = "python", problem: str = "") -> ProcessStack:
    source = "py-spy" if any(one["frames"] for one in threads) else "kernel"
    return {"pid": 7, "name": name, "source": source, "problem": problem, "threads": list(threads)}


def rank(number: int, *processes: ProcessStack, problem: str = "") -> RankStacks:
    return {"rank": number, "time": 1.0, "problem": problem, "processes": list(processes)}


TRAIN = frame("main", "/job/train.py", 90)


def waiting(inner_line: int = 83) -> ProcessStack:
    """In a collective, at a line of the library that may differ between ranks."""
    inner = (frame("all_reduce", TORCH, 2800), frame("wrapper", LOGGER, inner_line))
    return process(thread(*inner, frame("step", "/job/train.py", 88), TRAIN))


def loading() -> ProcessStack:
    return process(thread(frame("open", "/job/loader.py", 41), frame("step", "/job/train.py", 80), TRAIN))


def texts(*ranks: RankStacks, missing: tuple[int, ...] = ()) -> list[str]:
    return [one["text"] for one in group(ranks, missing)]


def test_the_rank_that_is_behind_stands_apart() -> None:
    ranks = [rank(number, loading() if number == 3 else waiting(83 + number)) for number in range(8)]
    assert texts(*ranks) == [
        "7 ranks (0-2, 4-7) in all_reduce at train.py:88",
        "rank 3 in open at loader.py:41",
    ]
    assert texts(*ranks[:3], missing=(5, 9, 4)) == [
        "3 ranks (0-2) in all_reduce at train.py:88",
        "3 ranks (4-5, 9) without an answer",
    ]


def test_the_same_line_from_two_callers_is_two_places() -> None:
    once = process(thread(frame("load", "/job/a.py", 1), frame("train", "/job/a.py", 5)))
    other = process(thread(frame("load", "/job/a.py", 1), frame("check", "/job/a.py", 9)))
    assert texts(rank(0, once), rank(1, other)) == ["rank 0 in load at a.py:1", "rank 1 in load at a.py:1"]


@pytest.mark.parametrize(
    ("frames", "text"),
    [
        ([frame("step", "/job/train.py", 3)], "in step at train.py:3"),
        ([frame("Tensor.backward", TORCH, 1), frame("step", "/job/t.py", 3)], "in backward at t.py:3"),
        ([frame("_call_impl", TORCH, 1), frame("wrapper", TORCH, 1), frame("f", "/job/t.py", 3)], "in f at t.py:3"),
        ([frame("__next__", TORCH, 1), frame("f", "/job/t.py", 3)], "in __next__ at t.py:3"),
        ([frame("deep", TORCH, 1), frame("barrier", TORCH, 2), frame("f", "/job/t.py", 3)], "in barrier at t.py:3"),
        ([frame("wait", TORCH, 7), frame("run", TORCH, 2)], "in wait at distributed_c10d.py:7"),
        ([frame("<module>", "<string>", 1)], "in <module> at <string>:1"),
    ],
)
def test_the_name_of_a_place(frames: list[StackFrame], text: str) -> None:
    assert place_of(rank(0, process(thread(*frames)))).text == text


def test_the_users_process_is_the_one_that_counts() -> None:
    shell = process(thread(wait="do_wait"), name="bash", problem="no Python")
    starter = process(thread(frame("poll", TORCH, 1)))
    assert texts(rank(0, shell, starter, loading(), waiting())) == ["rank 0 in open at loader.py:41"]
    assert texts(rank(0, shell, starter)) == ["rank 0 in poll at distributed_c10d.py:1"]
    side = process(thread(frame("f", "/job/x.py", 1), main=False), thread(frame("g", "/job/x.py", 2)))
    assert texts(rank(0, side)) == ["rank 0 in g at x.py:2"]


def test_states_and_programs_without_python() -> None:
    stopped = process(thread(frame("f", "/job/x.py", 1), state="stopped (SIGSTOP)"))
    assert texts(rank(0, stopped)) == ["rank 0 stopped (SIGSTOP) in f at x.py:1"]
    disk = process(thread(state="uninterruptible", wait="nfs_wait"), problem="it did not answer; x")
    assert texts(rank(1, disk)) == ["rank 1 uninterruptible in nfs_wait, program python (it did not answer; x)"]
    sleeper = process(thread(), name="sleep", problem="no Python")
    assert texts(rank(2, sleeper)) == ["rank 2 sleeping, program sleep (no Python)"]
    assert texts(rank(3, process())) == ["rank 3 ended, program python"]
    assert texts(rank(4, problem="the rank has ended")) == ["rank 4 without stacks: the rank has ended"]


def test_which_files_are_the_users() -> None:
    assert not any(is_library(file) for file in ("/job/train.py", "train.py", "<string>", "/home/ada/torch/x.py"))
    library = ("/usr/lib/python3.11/threading.py", "<frozen runpy>", TORCH, "/w/pkg/muster/runtime/reporter.py")
    assert all(is_library(file) for file in library)


_FRAMES = st.lists(
    st.builds(
        frame,
        st.sampled_from(["f", "all_reduce", "_x", "<module>", "A.b"]),
        st.sampled_from(["/job/a.py", "/job/b.py", TORCH, ""]),
        st.integers(0, 2),
    ),
    max_size=4,
)
_THREADS = st.builds(
    lambda frames, main, state: thread(*frames, main=main, state=state),
    _FRAMES,
    st.booleans(),
    st.sampled_from(["running", "sleeping", "stopped (SIGSTOP)"]),
)
_PROCESSES = st.lists(st.lists(_THREADS, max_size=2).map(lambda threads: process(*threads)), max_size=3)


@given(st.dictionaries(st.integers(0, 30), _PROCESSES, max_size=8), st.sets(st.integers(31, 40)), st.randoms())
def test_every_rank_is_in_one_group_whatever_the_order(
    by_rank: dict[int, list[ProcessStack]], missing: set[int], shuffle: Any
) -> None:
    ranks = [rank(number, *processes, problem="" if processes else "gone") for number, processes in by_rank.items()]
    groups = group(ranks, missing)
    named = [number for one in groups for number in one["ranks"]]
    assert sorted(named) == sorted([*by_rank, *missing])
    assert len({(tuple(one["ranks"])) for one in groups}) == len(groups)
    shuffle.shuffle(ranks)
    assert group(ranks, missing) == groups
    for one in groups[: len(groups) - bool(missing)]:
        assert len({place_of(rank(0, *by_rank[number], problem="gone")).key for number in one["ranks"]}) == 1


@given(st.sets(st.integers(0, 40), min_size=1))
def test_ranges_name_each_number_once(numbers: set[int]) -> None:
    found: list[int] = []
    for part in ranges(sorted(numbers)).split(", "):
        first, _, end = part.partition("-")
        found += range(int(first), int(end or first) + 1)
    assert found == sorted(numbers)
