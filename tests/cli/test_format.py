"""Numbers as people read them."""

from __future__ import annotations

import pytest

from muster.cli import format


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0, "0s"), (59.4, "59s"), (60, "1m00s"), (3599, "59m59s"), (3600, "1h00m"), (86399, "23h59m"), (90000, "1d01h"),
     (-3, "0s"), (None, "-"), (float("inf"), "-")],
)  # fmt: skip
def test_spans(seconds, told):
    assert format.span(seconds) == told


def test_how_long_a_job_lasted_is_what_it_ran_and_apart_from_it_what_it_waited():
    twice = [{"running_at": 100.0, "ended_at": 101.0}, {"running_at": 1887.0, "ended_at": 1888.0}]
    assert format.lasted(twice, 100.0, 100.0, 1888.0) == "after 2s, and 29m46s of waiting"
    assert format.lasted(twice[:1], 99.5, 100.0, 101.0) == "after 1s"
    assert format.lasted([{"planned_at": 5.0, "running_at": None, "ended_at": None}], 5.0, 5.0, 8.0) == "after 3s"
    assert format.lasted([], 10.0, None, 70.0) == "after 1m00s of waiting"
    assert format.lasted([], 10.0, 10.0, 70.0) == "after 1m00s"


@pytest.mark.parametrize(
    ("count", "told"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (64e9, "64 GB"), (2e18, "2000 PB"), (None, "-")]
)
def test_sizes(count, told):
    assert format.size(count) == told


def _progress(**changes):
    return {"step": 50, "total": 200, "unit": "step", "time": 0, "rate": 10.0, "eta": 15.0,
            "metrics": {"acc": 0.5, "loss": 1.25}, **changes}  # fmt: skip


def test_progress_is_a_bar_where_the_end_is_known():
    assert format.progress_line(_progress()) == "━━━━━╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌ 50/200 25%  loss 1.25  10/s  15s left"
    bare = _progress(total=None, rate=None, eta=None, unit=None, metrics={"acc": None})
    assert format.progress_line(bare) == "step 50  acc nan"
    assert format.progress_line(_progress(step=None)) == format.progress_line(None) == ""


def test_steps_for_a_table():
    assert format.steps(_progress()) == "50/200"
    assert format.steps(_progress(total=None)) == "50"
    assert format.steps(None) == "-"


def test_an_end_that_is_guessed_from_an_earlier_run_is_told_as_a_guess():
    guess = _progress(total=None, expected_total=200)
    assert format.progress_line(guess) == "━━━━━╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌ 50/~200 ~25%  loss 1.25  10/s  ~15s left"
    assert format.steps(guess) == "50/~200"
    assert format.steps(_progress(expected_total=300)) == "50/200"


def test_a_table_shows_the_rate_and_a_metric_of_what_runs():
    assert format.progress_cell(_progress(), running=True) == "50/200  10/s  loss 1.25"
    assert format.progress_cell(_progress(), running=False) == "50/200"
    assert format.progress_cell(_progress(rate=None, metrics={}), running=True) == "50/200"
    assert format.progress_cell(None, running=True) == "-"


def test_bookkeeping_is_no_metric_to_show():
    kept = _progress(metrics={"ledger": 1.7e14, "system/cpu": 1.0, "acc": 0.5})
    assert format.metrics_line(kept) == "acc 0.5"
    assert format.progress_cell(kept, running=True).endswith("acc 0.5")
    assert "acc 0.5" in format.progress_line(kept)
    assert format.metrics_line(_progress(metrics={"ledger": 1.0})) == format.metrics_line(None) == ""


def test_resources_leave_out_what_there_is_none_of():
    none = {"cpus": 1.0, "memory": 0, "accelerator": "", "accelerators": 0}
    assert format.resources(none) == "1 cpu"
    assert format.resources({**none, "accelerator": "H100", "accelerators": 1, "share": 500}) == "1 cpu, H100:0.5"
    assert format.resources({"cpus": 16, "memory": 64e9, "accelerator": "H100", "accelerators": 8}) == (
        "16 cpus, 64 GB, H100:8"
    )
