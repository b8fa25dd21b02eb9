"""The verdict on a rung's jobs by what the platform saw of them, whatever the program says of itself."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.checks.rungs import Evidence, JobFacts, judge, passed

NOISE = random.Random(3)
LOSSES = [2 * 0.99**n + 0.1 * NOISE.random() for n in range(100)]
GOOD = JobFacts("a-1", "succeeded", steps=range(1, 101), losses=LOSSES,
                seconds=[0.1 + 0.001 * (n % 7) for n in range(100)], saved=[100], total=1000)  # fmt: skip


def verdict(rung: Any, *jobs: JobFacts, **more: Any) -> dict[str, str]:
    report = judge(rung, Evidence(jobs, **more))
    assert passed(report) == (
        all(one.status in ("ok", "not applicable") for one in report.results)
        and any(one.status == "ok" for one in report.results)
    )
    return {one.name: one.status for one in report.results}


def report_of(*statuses: str) -> dict[str, Any]:
    return {"reports": [{"checks": [{"name": f"c{n}", "status": each} for n, each in enumerate(statuses)]}]}


def test_unit_believes_failed_checks_and_not_missing_ones() -> None:
    assert verdict("unit", replace(GOOD, report=report_of("ok", "not applicable"))) == {
        "c0": "ok", "c1": "not applicable", "ends": "ok",
    }  # fmt: skip
    assert verdict("unit", replace(GOOD, report=report_of("ok", "failed"), phase="failed"))["c1"] == "failed"
    assert verdict("unit", replace(GOOD, report=report_of("ok"), phase="failed"))["ends"] == "failed"
    assert verdict("unit", GOOD) == {"checks": "unknown"}
    assert verdict("unit", replace(GOOD, phase="failed", told="exit code 1")) == {"checks": "failed"}


@pytest.mark.parametrize("report", [{}, {"reports": 3}, {"reports": [3]}, {"reports": [{"checks": [1, None]}]},
                                    {"reports": [{"checks": [{"status": ["ok"], "name": 7}]}]}])  # fmt: skip
def test_a_report_that_makes_no_sense_passes_nothing(report: Any) -> None:
    assert not passed(judge("unit", Evidence([replace(GOOD, report=report)])))


def test_a_data_job_needs_no_loss() -> None:
    silent = replace(GOOD, steps=(), losses=(), seconds=(), saved=(), total=16)
    assert verdict("smoke", silent)["logs"] == "unknown"
    assert verdict("smoke", replace(silent, kind="data"))["logs"] == "not applicable"
    assert passed(judge("smoke", Evidence([replace(silent, kind="data")])))
    assert not passed(judge("smoke", Evidence([replace(silent, kind="data", phase="failed")])))
    assert verdict("smoke", replace(GOOD, kind="data", losses=[math.nan] * 100))["logs"] == "failed"


def test_resume_compares_the_steps_after_the_restart() -> None:
    killed = replace(GOOD, id="b-2", attempts=2, resumed_from=40)
    assert verdict("resume", GOOD, killed) == {"continues": "ok", "same": "ok"}
    other = [loss * (1.3 if step > 60 else 1) for step, loss in zip(GOOD.steps, GOOD.losses, strict=True)]
    assert verdict("resume", GOOD, replace(killed, losses=other))["same"] == "failed"
    early = [loss * (1.3 if step < 40 else 1) for step, loss in zip(GOOD.steps, GOOD.losses, strict=True)]
    assert verdict("resume", GOOD, replace(killed, losses=early))["same"] == "ok"
    assert verdict("resume", GOOD, replace(killed, resumed_from=None))["continues"] == "failed"
    assert verdict("resume", GOOD, replace(killed, attempts=1))["continues"] == "unknown"
    assert verdict("resume", GOOD, replace(killed, phase="failed"))["continues"] == "failed"
    assert verdict("resume", GOOD, replace(killed, losses=[math.nan] * 100))["same"] == "failed"
    assert verdict("resume", GOOD) == {"killed": "unknown"}


def test_smoke_needs_an_end_and_a_finite_loss() -> None:
    assert verdict("smoke", replace(GOOD, metrics=["loss", "val_loss"])) == dict.fromkeys(
        ("ends", "logs", "saves", "evaluates"), "ok"
    )
    assert verdict("smoke", replace(GOOD, phase="failed"))["ends"] == "failed"
    assert verdict("smoke", replace(GOOD, losses=[math.inf] * 100))["logs"] == "failed"
    assert verdict("smoke", replace(GOOD, steps=[], losses=[]))["logs"] == "unknown"
    assert verdict("smoke", replace(GOOD, saved=[]))["saves"] == "not applicable"


def test_failure_needs_one_fault_that_was_survived() -> None:
    jobs = [replace(GOOD, id=f"d-{n}", scenario=name) for n, name in enumerate(("kill-rank", "full-disk"))]
    held = {"verdict": "held"}
    assert verdict("failure", *jobs, told={"kill-rank": held, "full-disk": held}) == {
        "kill-rank": "ok", "full-disk": "ok",
    }  # fmt: skip
    assert verdict("failure", *jobs, told={"kill-rank": held})["full-disk"] == "failed"
    none = {"verdict": "not applicable"}
    assert not passed(judge("failure", Evidence(jobs, told={"kill-rank": none, "full-disk": none})))


def test_canary_needs_progress_room_and_time() -> None:
    found = judge("canary", Evidence([GOOD], price_per_hour=2.0))
    assert passed(found)
    assert found.about["full_run"]["steps"] == 1000
    low, middle, high = found.about["full_run"]["hours"]
    assert low <= middle <= high
    assert middle == pytest.approx(0.0286, rel=0.1)
    flat = replace(GOOD, losses=[2.0 + 0.01 * math.sin(n * 99.0) for n in range(100)])
    assert verdict("canary", flat)["falls"] == "failed"
    assert verdict("canary", replace(GOOD, memory=[0.99] * 100, capacity=1.0))["memory"] == "failed"
    assert verdict("canary", GOOD, max_hours=0.001)["profile"] == "failed"
    assert verdict("canary", GOOD, price_per_hour=1e6, max_cost=5.0)["profile"] == "failed"
    assert verdict("canary", replace(GOOD, steps=[], losses=[], seconds=[]))["finite"] == "failed"


def test_canary_holds_a_job_to_the_throughput_of_its_file() -> None:
    """By the median of what the program reported, without the first steps."""
    rates = [10.0] * 10 + [95.0, 100.0, 105.0] * 30
    found = replace(GOOD, rates=rates)
    assert verdict("canary", found)["throughput"] == "not applicable"
    assert verdict("canary", found, throughput=100.0)["throughput"] == "ok"
    assert verdict("canary", found, throughput=110.0)["throughput"] == "ok"  # nine tenths of it
    assert verdict("canary", found, throughput=112.0)["throughput"] == "failed"
    for few in ([], [100.0] * 3, [math.nan] * 100):
        assert verdict("canary", replace(GOOD, rates=few), throughput=1.0)["throughput"] == "unknown"


KEYS = st.sampled_from(["reports", "checks", "status", "name", "detail"])
PLAIN = st.none() | st.booleans() | st.floats() | st.text()


@given(st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner)))
def test_no_report_of_a_program_breaks_the_judge(report: Any) -> None:
    facts = replace(GOOD, report=report if isinstance(report, dict) else {"reports": report})
    judge("unit", Evidence([facts]))
