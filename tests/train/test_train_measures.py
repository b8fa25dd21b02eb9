"""Where a step's time goes, what a device can do, and when a save is due."""

from __future__ import annotations

import math
import threading
import time
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from loop_kit import PATIENCE, Run, make_tokens, settings

from gang_kit import gang
from muster.train import saves, throughput
from muster.train.checkpoint import Saving, saving
from muster.train.config import Checkpoints, Every, read_config
from muster.train.gang import join
from muster.train.plan import make_plan
from muster.train.saves import FIRST_SECONDS, Cadence, cadence
from muster.train.session import session
from muster.train.throughput import Laps, Meter, Stopwatch, memory, peak_flops

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

    meter = Meter("tokens", flops=6e9, peak=1e12, world=2)
    figures = meter.figures(72, first)
    assert figures["tokens_per_s"] == 2.0
    assert figures["step_s"] == 36
    assert figures["mfu"] == pytest.approx(6e9 * 2 / 2e12)
    assert figures["save_s"] == figures["evaluate_s"] == 0
    assert "mfu" not in Meter("tokens", 6e9, None, 1).figures(72, first)


def test_throughput_is_that_of_all_the_time_since_the_last_line():
    meter = Meter("tokens", flops=None, peak=None, world=1)
    step = Laps([("data", 0.0), ("backward", 1.0)])
    saved = Laps([("data", 0.0), ("save", 3.0), ("backward", 4.0)])
    assert [meter.figures(60, laps)["tokens_per_s"] for laps in (step, saved, step)] == [60, 24, 30]
    assert meter.window.stalls() == ["saving took 3.0 of 6.0 s"]
    meter.line()
    assert meter.figures(60, step)["tokens_per_s"] == 60
    assert meter.window.stalls() == []
    brief = Laps([("data", 0.0), ("save", 0.009), ("evaluate", 0.5), ("backward", 1.0)])
    assert meter.figures(60, brief)["save_s"] == 0.009
    assert meter.window.stalls() == ["evaluating took 0.5 of 2.0 s"]


def reports(root: Path) -> dict[str, Any]:
    given = settings(root, root / "data", steps=7, print_every=3, checkpoint={"every": 2})
    run = Run(root, given).start().end()
    return {
        "codes": run.codes,
        "lines": [line for line in run.printed().splitlines() if line.startswith("step ")],
        "curves": {name: run.metric(name) for name in ("tokens_per_s", "step_s", "save_s", *STARTS)},
    }


STARTS = ("start/weights_s", "start/first_step_s", "start/imports_s", "start/compile_s")


def test_a_run_prints_and_records_its_true_throughput_and_how_it_started(tmp_path):
    make_tokens(tmp_path / "data")
    (found,) = gang(1, reports, tmp_path, group=False, timeout=PATIENCE)
    assert found["codes"] == [0]
    curves, items = found["curves"], 8 * 16
    for first, last in ((1, 1), (2, 3), (4, 6), (7, 7)):  # the first step is told apart, and a line is at 3, 6 and 7
        seconds = [curves["step_s"][step] for step in range(first, last + 1)]
        assert curves["tokens_per_s"][last] == pytest.approx(items * len(seconds) / sum(seconds))
    assert all(curves["save_s"][step] > 0 for step in (3, 5, 7)), "it was saved after 2, 4 and 6"
    assert "first step" in found["lines"][0]
    assert not any("first step" in line for line in found["lines"][1:])
    assert curves["start/first_step_s"][1] > curves["start/weights_s"][1] > 0
    assert not curves["start/imports_s"], "only the command knows them"
    assert not curves["start/compile_s"]


def put_off(root: Path) -> list[bool]:
    """Whether a save is due by the clock: at once, while one is being written, and after that."""
    config = read_config(settings(root, root / "data", steps=10, checkpoint={"every": "0.001s", "memory": "off"}))
    go, write = threading.Event(), saving.write

    def slowly(*given: Any) -> Any:
        assert go.wait(PATIENCE)
        return write(*given)

    with mock.patch.object(saving, "write", slowly), session(make_plan(config, 1), join("cpu")) as run:
        time.sleep(0.002)
        found = [run.due_now()]
        run.save()
        time.sleep(0.002)
        found += [run.cadence.due_now(), run.due_now()]
        go.set()
        run.saver.wait()
        return [*found, run.due_now()]


def test_a_save_by_the_clock_is_put_off_while_another_is_written(tmp_path):
    make_tokens(tmp_path / "data")
    assert gang(1, put_off, tmp_path, group=False, timeout=PATIENCE) == [[True, True, False, True]]


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
