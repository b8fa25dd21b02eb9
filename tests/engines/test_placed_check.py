"""Checks of nodes through a cluster's queue: how long they wait, what they do without, and that they are removed."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from muster.core.errors import EngineError
from muster.engines.node_check import DEVICES_WAIT, LONGEST, PLACE_WAIT, RUN_WAIT, Progress, read_findings, run_check
from muster.engines.node_check import options as options_of
from muster.runtime.node_checks import DETAIL, RESULT_BYTES, Finding, packed

FOUND = [{"check": "disk", "status": "ok", "detail": "900 MB/s written", "seconds": 0.1}]
ENDED = Progress("ended", "a prolog's words\n" + json.dumps(FOUND))


class Queue:
    """A cluster in which a check has a place after some seconds, or never; and a clock."""

    def __init__(self, place: Callable[[int], float], runs: float = 1.0, end: Progress = ENDED) -> None:
        self.now, self.asked, self.removed = 0.0, list[int](), 0
        self._place, self._runs, self._end = place, runs, end

    def start(self, asked: int) -> Queue:
        assert self.removed == len(self.asked), "the one before is still there"
        self.asked.append(asked)
        self._began = self.now
        return self

    def progress(self) -> Progress:
        here = self._began + self._place(self.asked[-1])
        if self.now < here:
            return Progress("waiting", "Resources")
        return self._end if self.now >= here + self._runs else Progress("running")

    def remove(self) -> None:
        self.removed += 1

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def check(self, devices: int) -> object:
        return run_check("n1", self.start, devices, lambda: self.now, self.wait)


def test_one_with_a_place_is_run_with_the_devices_and_removed() -> None:
    queue = Queue(lambda asked: 3.0)
    assert queue.check(2) == FOUND
    assert (queue.asked, queue.removed) == ([2], 1)


def test_if_others_hold_the_devices_it_does_without() -> None:
    queue = Queue(lambda asked: 1000.0 if asked else 5.0)
    assert queue.check(2) == FOUND
    assert (queue.asked, queue.removed) == ([2, 0], 2)
    assert DEVICES_WAIT <= queue.now < DEVICES_WAIT + 10
    assert options_of(2, 2) == ["--accelerators=2"]
    assert options_of(0, 2) == ["--no-accelerators"]
    assert options_of(0, 0) == []


def test_without_a_place_it_is_given_up_with_the_clusters_word() -> None:
    queue = Queue(lambda asked: 1000.0)
    with pytest.raises(EngineError, match=rf"no place on the node within {PLACE_WAIT:.0f} s \(Resources\)") as told:
        queue.check(0)
    assert "waits for a free slot" in told.value.hint
    assert (queue.asked, queue.removed) == ([0], 1)
    assert PLACE_WAIT <= queue.now < LONGEST


def test_one_that_hangs_or_ends_without_a_result_is_an_error_and_no_finding() -> None:
    queue = Queue(lambda asked: 50.0, runs=1000.0)
    with pytest.raises(EngineError, match="gave no result"):
        queue.check(0)
    assert (queue.removed, queue.now) == (1, pytest.approx(50 + RUN_WAIT, abs=1))
    queue = Queue(lambda asked: 0.0, end=Progress("ended", "OutOfcpu: no room"))
    with pytest.raises(EngineError, match="without a result: OutOfcpu: no room"):
        queue.check(0)
    assert queue.removed == 1


@pytest.mark.parametrize("text", ["", "[]x", '[{"check": "disk"}]', '[{"check": "a", "status": "sick"}]', "[1]", "{}"])
def test_what_is_no_result_is_refused(text: str) -> None:
    with pytest.raises(EngineError, match="without a result"):
        read_findings("n1", text)


def test_a_long_result_fits_into_a_termination_message() -> None:
    long = [Finding(f"check {number}", "failed", "é" * DETAIL, 1.0) for number in range(7)]
    raw = packed(long, RESULT_BYTES)
    assert len(raw) <= RESULT_BYTES
    read = read_findings("n1", raw.decode())
    assert [one["check"] for one in read] == [one.check for one in long]
    assert all(one["detail"].startswith("é") for one in read)
    assert len(packed(long)) > RESULT_BYTES
