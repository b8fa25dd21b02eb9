"""`muster logs`: when a line was written, what was written since, and lines that match, through a real server."""

from __future__ import annotations

import time
from datetime import datetime

import pytest

from live import LiveServer, until


@pytest.fixture
def job(live: LiveServer, at_home, tmp_path) -> str:
    """A job that wrote two lines, and two more after a file came to be."""
    go = tmp_path / "go"
    made = live.submit(
        f"echo first line; echo loss 4.5; until test -e {go}; do sleep 0.1; done; echo third; echo Loss 3.5"
    )
    until(lambda: "loss 4.5" in live.output(made["id"]))
    time.sleep(1.1)  # so that the two parts are apart by more than the precision of `--since`
    go.touch()
    assert live.wait(made["id"])["phase"] == "succeeded"
    return str(made["id"])


def test_lines_by_time_and_by_pattern(job, at_home) -> None:
    lines = at_home("logs", job, "--json").lines
    assert [line["text"] for line in lines] == ["first line", "loss 4.5", "third", "Loss 3.5"]
    times = [line["time"] for line in lines]
    assert times == sorted(times)
    assert times[2] - times[1] > 1
    assert time.time() - 300 < times[0] <= time.time()

    shown = at_home("logs", job, "--timestamps").out.splitlines()
    assert [datetime.fromisoformat(line.split(" ", 1)[0]).timestamp() for line in shown] == pytest.approx(
        times, abs=0.01
    )
    assert [line.split(" ", 1)[1] for line in shown] == ["first line", "loss 4.5", "third", "Loss 3.5"]

    middle = datetime.fromtimestamp(times[2] - 0.3).isoformat()
    assert at_home("logs", job, "--since", middle).out.splitlines() == ["third", "Loss 3.5"]
    assert at_home("logs", "-f", job, "--since", middle).out.splitlines() == ["third", "Loss 3.5"]
    assert at_home("logs", job, "--since", "1h", "--tail", "1").out.splitlines() == ["Loss 3.5"]

    assert at_home("logs", job, "--grep", r"loss \d").out.splitlines() == ["loss 4.5"]
    assert at_home("logs", job, "--grep", "loss", "-i", "--tail", "1").out.splitlines() == ["Loss 3.5"]
    nothing = at_home("logs", job, "--grep", "no such line")
    assert (nothing.out, nothing.code) == ("", 0)
    assert "has written nothing that was asked for" in nothing.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--since", "yesterday"], "--since: got 'yesterday'"),
        (["--grep", "(loss"], "'(loss' is not a regular expression"),
    ],
)
def test_mistakes_are_told(live, at_home, words, message) -> None:
    failed = at_home("logs", "1", *words)
    assert failed.code == 2
    assert message in failed.err
