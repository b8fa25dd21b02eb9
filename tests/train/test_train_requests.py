"""What may be asked of a run while it goes on: to stop, to save, to be profiled; agreed on by all ranks."""

from __future__ import annotations

import gzip
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from loop_kit import PATIENCE, STOPPED, Run, make_tokens, settings, states

from gang_kit import gang
from muster import wire
from muster.train.gang import Requests
from muster.wire import SPOT_NOTICE

ENDLESS = 1_000_000  # steps


def until(look: Any, run: Run) -> None:
    limit = time.monotonic() + PATIENCE
    while not look():
        assert time.monotonic() < limit, run.printed()
        time.sleep(0.002)


def stopped_and_continued(root: Path) -> dict[str, Any]:
    """SIGTERM to one of two ranks in mid-run, and then on to step 60; beside it 60 steps straight."""
    straight = Run(root / "straight", settings(root / "straight", root / "data", steps=60), 2).start().end()
    config = settings(root / "stopped", root / "data", steps=60, checkpoint={"every": 1000})
    first = Run(root / "stopped", config, 2).start()
    until(lambda: first.reached(20), first)
    os.kill(first.pids[1], signal.SIGTERM)
    first.end()
    second = Run(root / "stopped", config, 2).start().end()
    return {
        "codes": [straight.codes, first.codes, second.codes],
        "notes": first.notes(),
        "straight": straight.metric("loss"),
        "pieces": [first.metric("loss"), second.metric("loss")],
        "weights": [states(root / each, 60) for each in ("straight", "stopped")],
    }


def test_sigterm_to_one_rank_saves_the_step_of_all_and_nothing_is_lost(tmp_path):
    make_tokens(tmp_path / "data")
    (found,) = gang(1, stopped_and_continued, tmp_path, group=False, timeout=PATIENCE)
    assert found["codes"] == [[0, 0], [STOPPED, STOPPED], [0, 0]]
    first, second = found["pieces"]
    assert {**first, **second} == found["straight"]
    assert min(second) == max(first) + 1, "a step was lost or made twice"
    assert found["weights"][0] == found["weights"][1]
    (note,) = (note for note in found["notes"] if f"SIGTERM: saved step {max(first)} in" in note)
    assert "s before the deadline; leaving" in note, "the first rank doesn't know what the second was told"


def asked(root: Path) -> dict[str, Any]:
    """By the platform to save and to stop, by a spot notice, by SIGUSR2 and by a file for a profile."""
    control, notice = root / "control", root / "notice"
    control.write_bytes(bytes(wire.CONTROL_BYTES))
    places = [root / "platform", root / "spot"]
    slow = {"checkpoint": {"every": 10**9, "keep": 50}, "steps": ENDLESS, "profile": {"steps": 2}}
    platform = Run(places[0], settings(places[0], root / "data", **slow), envs={wire.CONTROL: str(control)}).start()
    until(lambda: platform.reached(3), platform)
    _put(control, wire.CONTROL_SAVE_AT)
    until(lambda: list((places[0] / "checkpoints").glob("step-*")), platform)
    os.kill(platform.pids[0], signal.SIGUSR2)
    until(lambda: list((places[0] / "checkpoints").glob("trace-*.json.gz")), platform)
    _put(control, wire.CONTROL_STOP_AT)
    platform.end()

    spot = Run(places[1], settings(places[1], root / "data", **slow), 2, envs={SPOT_NOTICE: str(notice)}).start()
    until(lambda: spot.reached(3), spot)
    (places[1] / "checkpoints" / "profile").touch()
    until(lambda: len(list((places[1] / "checkpoints").glob("trace-*.json.gz"))) == 2, spot)
    notice.write_text(str(time.time() + 100))
    spot.end()
    return {
        "codes": [platform.codes, spot.codes],
        "notes": [platform.notes(), spot.notes()],
        "saves": [len(run.docs("checkpoint")) for run in (platform, spot)],
        "steps": [max(run.metric("loss")) for run in (platform, spot)],
        "wish": (places[1] / "checkpoints" / "profile").exists(),
    }


def test_the_platform_a_spot_notice_and_a_wish_for_a_profile_are_heard(tmp_path):
    make_tokens(tmp_path / "data")
    (found,) = gang(1, asked, tmp_path, group=False, timeout=PATIENCE)
    assert found["codes"] == [[STOPPED], [STOPPED, STOPPED]]
    assert found["saves"] == [2, 1]
    for notes, why, step in zip(
        found["notes"], ("the platform asked to stop", "a spot notice"), found["steps"], strict=True
    ):
        assert any(f"{why}: saved step {step} in" in note for note in notes), notes
        assert any(note.startswith("profiler trace from step") for note in notes)
    assert any("s before the deadline; leaving" in note for note in found["notes"][1])
    assert not found["wish"]
    traces = list(tmp_path.rglob("trace-*.json.gz"))
    assert len(traces) == 3
    for trace in traces:
        assert json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]


def one_dies(root: Path) -> dict[str, Any]:
    """The second of two ranks is killed in mid-run, without a word to the first."""
    run = Run(root / "run", settings(root / "run", root / "data", steps=ENDLESS), 2).start()
    until(lambda: run.reached(12), run)
    os.kill(run.pids[1], signal.SIGKILL)
    run.end()
    return {"codes": run.codes}


def test_a_rank_does_not_outlive_another_that_died(tmp_path):
    make_tokens(tmp_path / "data")
    (found,) = gang(1, one_dies, tmp_path, group=False, timeout=PATIENCE)
    first, second = found["codes"]
    assert second == -signal.SIGKILL
    assert first not in (0, STOPPED), "it must not look like an end in order"


def test_a_notice_that_is_no_time_gives_a_deadline_all_the_same(tmp_path, monkeypatch):
    notice = tmp_path / "notice"
    notice.write_text("terminate")
    monkeypatch.setenv(SPOT_NOTICE, str(notice))
    with Requests(tmp_path, 30.0) as requests:
        assert requests.look().leaving() == "a spot notice"
        assert requests.deadline is not None
        assert requests.deadline > time.time()


def _put(control: Path, at: int) -> None:
    with control.open("r+b") as file:
        file.seek(at)
        file.write(b"\1")
