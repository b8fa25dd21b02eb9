"""Pulses: what launchers see of real processes, how batches carry them, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from live import until
from muster import wire
from muster.runtime import collective_counts, rank_collectives
from muster.runtime.collective_counts import CollectiveCounts
from muster.runtime.pulse import PulseTaker

GOOD = [0, 8, 9, 1.5, 10, "S", "futex_wait", None, None]


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A shell with a program below it, as ranks are."""
    program = "import time; sum(range(3_000_000)); print('up', flush=True); time.sleep(600)"
    command = ["/bin/sh", "-c", f'{sys.executable} -c "{program}"; true']
    started = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    assert started.stdout is not None
    started.stdout.readline()
    yield started
    os.killpg(started.pid, signal.SIGKILL)
    started.wait()
    started.stdout.close()


def look(root: int) -> wire.Pulse | None:
    taker = PulseTaker({3: root}, lambda rank: (0.5, 70.0), {3: Path("/nowhere")})
    taken = taker.take(lambda rank, stream: {"spool": 16, "log": 5}[stream])
    return taken[0] if taken else None


def test_a_pulse_is_of_the_program_below_the_shell(sleeper: subprocess.Popen[bytes]) -> None:
    pulse = until(lambda: (one := look(sleeper.pid)) and one.state == "S" and one, "a sleeping program")
    assert (pulse.rank, pulse.spool, pulse.log, pulse.use, pulse.power) == (3, 16, 5, 0.5, 70.0)
    assert pulse.cpu > 0
    os.killpg(sleeper.pid, signal.SIGSTOP)
    until(lambda: (one := look(sleeper.pid)) and one.state == "T", "a stopped program")


def test_a_rank_that_has_ended_has_no_pulse() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert look(ended.pid) is None


def test_pulses_are_taken_a_while_apart(sleeper: subprocess.Popen[bytes]) -> None:
    taker = PulseTaker({0: sleeper.pid}, lambda rank: None, {0: Path("/nowhere")})
    assert len(taker.take(lambda rank, stream: 0)) == 1
    assert taker.take(lambda rank, stream: 0) == ()


def test_a_batch_brings_its_pulses_and_older_ones_have_none() -> None:
    batch = wire.Batch(0, "running", clock=12.5, pulses=(wire.Pulse(0, 8, 9, 1.5, 10, "S", "futex_wait", 1.0, 70.5),))
    assert wire.Batch.decode(batch.encode()) == batch
    assert "pulses" not in json.loads(wire.Batch(0, "running").encode()[4:])
    counted = replace(
        batch, pulses=(*batch.pulses, replace(batch.pulses[0], rank=1, collectives={"0": 7, "dp": 2**40}))
    )
    assert wire.Batch.decode(counted.encode()) == counted


@pytest.mark.parametrize(
    ("at", "value"),
    [(0, -1), (0, 2**63), (1, 1.5), (3, float("nan")), (3, "1"), (7, float("inf")), (8, "x"), (3, 10**400)],
)
def test_a_bad_pulse_is_refused(at: int, value: object) -> None:
    bad = [*GOOD[:at], value, *GOOD[at + 1 :]]
    for pulses, clock in (([bad], 1.0), ([GOOD] * (wire.PULSES_MAX + 1), 1.0), ([GOOD], float("nan")), (7, 1.0)):
        header = {"worker": 0, "state": "running", "exit": None, "command_seen": 0, "pieces": [],
                  "clock": clock, "pulses": pulses}  # fmt: skip
        head = json.dumps(header).encode()
        with pytest.raises(ValueError, match=r"pulse|batch"):
            wire.Batch.decode(struct.pack("<I", len(head)) + head)


@pytest.mark.parametrize("counts", [[{"0": -1}], [{"0": 1.5}], [{"0": True}], [{"0": 2**63}], [["0"]], [{}, {}], 7])
def test_bad_counts_of_collectives_are_refused(counts: object) -> None:
    header = {"worker": 0, "state": "running", "exit": None, "command_seen": 0, "pieces": [],
              "clock": 1.0, "pulses": [GOOD], "collectives": counts}  # fmt: skip
    head = json.dumps(header).encode()
    with pytest.raises(ValueError, match=r"pulse|batch|argument"):
        wire.Batch.decode(struct.pack("<I", len(head)) + head)


def test_counts_are_of_all_processes_of_a_rank_while_they_are_fresh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(pid: int, looks: int, text: str) -> None:
        (tmp_path / f"{rank_collectives.FILE}{pid}").write_text(f'{{"looks": {looks}, "begun": {text}}}'.ljust(100))

    reader = CollectiveCounts()
    assert reader.read(tmp_path) is None
    write(1, 1, '{"0": 7, "1": 2}')
    write(2, 1, '{"0": 6}')
    write(3, 1, '["nothing of ours"]')
    (tmp_path / f"{rank_collectives.FILE}4").symlink_to(tmp_path / f"{rank_collectives.FILE}1")
    (tmp_path / f"{rank_collectives.FILE}5").write_text("{")
    assert reader.read(tmp_path) == {"0": 13, "1": 2}
    monkeypatch.setattr(collective_counts, "OLD", 0.0)
    write(2, 2, '{"0": 6}')
    assert reader.read(tmp_path) == {"0": 6}  # the first one has not looked again
    assert reader.read(tmp_path) is None


def test_whatever_a_program_writes_its_counts_can_be_sent(tmp_path: Path) -> None:
    for pid in range(20):
        text = json.dumps({"looks": pid, "begun": {f"{chr(7)} of {pid}": 2**63 - 1, "0": 2**63 - 1}})
        (tmp_path / f"{rank_collectives.FILE}{pid}").write_text(text)
    counts = CollectiveCounts().read(tmp_path)
    assert counts is not None
    assert (len(counts), counts["0"]) == (wire.GROUPS_MAX, 2**63 - 1)
    batch = wire.Batch(0, "running", pulses=(wire.Pulse(0, 8, 9, 1.5, 10, "S", collectives=counts),))
    assert wire.Batch.decode(batch.encode()) == batch
