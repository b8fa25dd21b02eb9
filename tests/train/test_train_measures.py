"""Where a step's time goes, what a device can do, and when a save is due."""

from __future__ import annotations

import math
from itertools import count
from types import SimpleNamespace

import pytest
import torch

from muster.train import saves, throughput
from muster.train.checkpoint import Saving
from muster.train.config import Checkpoints, Every
from muster.train.saves import FIRST_SECONDS, Cadence, cadence
from muster.train.throughput import Meter, Stopwatch, memory, peak_flops

CPU = torch.device("cpu")


def test_the_time_between_two_marks_belongs_to_the_second(monkeypatch):
    seconds = count()
    monkeypatch.setattr(throughput, "time", SimpleNamespace(perf_counter=lambda: float(next(seconds)) ** 2))
    watch = Stopwatch(CPU)
    watch.mark("data")  # at 0
    for _ in range(2):  # two micro-batches
        watch.forward_begins()  # at 1, 9
        watch.mark("forward")  # at 4, 16
    watch.mark("backward")  # at 25
    watch.paused = True
    watch.mark("nothing")
    watch.paused = False
    watch.mark("optimizer")  # at 36
    first = watch.take()
    watch.mark("data")  # at 49
    assert first.seconds() == {"data": 1, "forward": 3 + 7, "backward": 5 + 9, "optimizer": 11}
    assert watch.take().seconds() == {"data": 13}

    figures = Meter("tokens", flops=6e9, peak=1e12, world=2).figures(72, first)
    assert figures["tokens_per_s"] == 2.0
    assert figures["step_s"] == 36
    assert figures["mfu"] == pytest.approx(6e9 * 2 / 2e12)
    assert figures["save_s"] == figures["evaluate_s"] == 0
    assert "mfu" not in Meter("tokens", 6e9, None, 1).figures(72, first)


@pytest.mark.parametrize(
    ("name", "teraflops"),
    [
        ("NVIDIA H200", 989.5),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA L40S", 362),
        ("?", None),
    ],
)
def test_peaks_are_found_by_the_name_of_the_device(monkeypatch, name, teraflops):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: name)
    assert peak_flops(torch.device("cuda", 0)) == (teraflops * 1e12 if teraflops else None)
    assert peak_flops(CPU) is None


def test_memory_is_that_of_this_process_on_a_cpu():
    assert memory(CPU) > 10e6


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(saves, "time", SimpleNamespace(monotonic=clock))
    return clock


def test_saves_by_steps_by_seconds_and_by_the_job_file(clock, monkeypatch):
    by_steps = cadence(Checkpoints(every=Every(steps=10)), 1)
    assert [step for step in range(31) if by_steps.due_at(step)] == [0, 10, 20, 30]
    clock.now += 1e6
    assert not by_steps.due_now()

    monkeypatch.setenv("MUSTER_CHECKPOINT_EVERY", "90")
    of_the_job = cadence(Checkpoints(), 1)
    assert of_the_job.every == Every(seconds=90.0)
    of_the_job.started()
    clock.now += 89
    assert not of_the_job.due_now()
    clock.now += 1
    assert of_the_job.due_now()
    assert not of_the_job.due_at(100)
    of_the_job.started()
    assert not of_the_job.due_now()


def test_auto_measures_its_first_save_and_says_what_it_chose(clock):
    auto = Cadence(Every(), failures=1 / 86400)
    auto.started()
    clock.now += FIRST_SECONDS
    assert auto.due_now()
    auto.started()
    first = Saving(10, stall_seconds=2.0, seconds=20.0, bytes=10**10)
    words = auto.measured(first)
    assert words is not None
    assert "10.0 GB" in words
    assert "Young and Daly" in words
    best = math.sqrt(2 * 2.0 * 86400)  # Young's first term: 588 s
    clock.now += 0.9 * best
    assert not auto.due_now()
    clock.now += 0.2 * best
    assert auto.due_now()
    assert auto.measured(Saving(20, stall_seconds=2.1, seconds=20.0, bytes=10**10)) is None, "nothing much has changed"
    assert auto.measured(Saving(30, stall_seconds=20.0, seconds=60.0, bytes=10**10)) is not None
