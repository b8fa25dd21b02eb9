"""What the bad days share: a program that leaves a mark each time it runs, and a server that tests may kill."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from live import LiveServer, stop_everything

# Each rank adds one line for every start, so that a second start can't hide, then reports `steps` numbered values.
MARKING = """
import os, sys, time
import muster.runtime as m
with open(sys.argv[1], "a") as file:
    file.write(f"{m.job()}/{m.attempt()}/{m.rank()}\\n")
for step in range(1, int(sys.argv[2]) + 1):
    m.report(step=step, value=float(step))
    print("step", step)
    time.sleep(float(sys.argv[3]))
with open(sys.argv[1] + ".ended", "a") as file:
    file.write(f"{m.job()}/{m.attempt()}/{m.rank()}\\n")
"""


@pytest.fixture
def server(tmp_path: Path):
    made = LiveServer(tmp_path / "home", config="nodes = 2\ncpus = 16\n")
    yield made
    stop_everything(made)


@pytest.fixture
def program(tmp_path: Path):
    """The command of a marking program: program(steps, seconds a step)."""
    script = tmp_path / "marking.py"
    script.write_text(MARKING)

    def command(steps: int, pause: float = 0.0) -> str:
        return f"{sys.executable} {script} {tmp_path / 'marks'} {steps} {pause}"

    return command


@pytest.fixture
def marks(tmp_path: Path):
    def read(ended: bool = False) -> list[str]:
        path = tmp_path / ("marks.ended" if ended else "marks")
        return path.read_text().split() if path.exists() else []

    return read
