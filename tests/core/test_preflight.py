"""Which parts of a job a rung depends on, the job that it runs, and what is no rung of a job."""

from __future__ import annotations

from typing import Any

import pytest

from muster.api.words import RUNGS
from muster.core.errors import SpecError
from muster.core.parse import parse_job
from muster.core.preflight import (
    SECONDS_MAX,
    TOUCHES,
    changed,
    is_rung_of,
    parts_of,
    rung_job,
    rung_of,
    throughput_of,
)
from muster.core.spec import JobSpec, dump_job

CODE = "ab" * 32


def job(**given: Any) -> JobSpec:
    return parse_job({"name": "gpt", "run": "python train.py", "workdir": "/code", **given})


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"run": "python other.py"}, "configuration"),
        ({"envs": {"LR": "1"}}, "configuration"),
        ({"secrets": ["HF_TOKEN"]}, "configuration"),
        ({"data": ["c4@v2"]}, "data"),
        ({"image": "other:1"}, "environment"),
        ({"envs": {"VIRTUAL_ENV": "/other"}}, "environment"),
        ({"num_nodes": 2}, "scale"),
        ({"resources": {"accelerators": "H100:8"}}, "scale"),
        ({"pool": "spot"}, "scale"),
        ({"preflight": {"throughput": 5}}, "scale"),
    ],
)
def test_a_change_touches_one_part_and_the_rungs_that_depend_on_it(change: dict[str, Any], part: str) -> None:
    before, after = parts_of(job(), CODE), parts_of(job(**change), CODE)
    assert [name for name in before if before[name] != after[name]] == [part]
    for rung in RUNGS:
        assert changed(rung, dict(before), after) == ([part] if part in TOUCHES[rung] else [])


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"}, {"purpose": "why"}, {"tags": {"a": "b"}}, {"priority": "high"}, {"max_duration": "9h"},
        {"retry": 9}, {"envs": {"PATH": "/elsewhere"}}, {"checkpoint": "1m"}, {"budget": "5 USD"}, {"queue": "q"},
    ],
)  # fmt: skip
def test_what_does_not_change_what_runs_touches_nothing(change: dict[str, Any]) -> None:
    assert parts_of(job(**change), CODE) == parts_of(job(), CODE)


def test_nothing_is_certain_without_a_snapshot_of_the_code() -> None:
    parts = parts_of(job(), "")
    assert all(changed(rung, dict(parts), parts) for rung in RUNGS)


@pytest.mark.parametrize("rung", RUNGS)
def test_the_job_of_a_rung_is_small_limited_and_known_again(rung: Any) -> None:
    spec = job(
        num_nodes=4, resources={"accelerators": "H100:8"}, max_duration="3d", array="1-9", needs=["prepare"],
        envs={"LR": "3e-4"}, data=["c4@v1"], off_peak=True,
    )  # fmt: skip
    made = rung_job(spec, rung)
    assert made.preflight is not None
    assert made.preflight.rung == rung
    assert made.num_nodes == (4 if rung == "canary" else 1)
    assert made.max_duration is not None
    assert made.max_duration <= SECONDS_MAX
    assert (made.array, made.needs, made.off_peak) == (None, {}, False)
    assert made.run == spec.run
    assert parse_job(dump_job(made)) == made
    assert is_rung_of(made, spec, rung)
    assert not any(is_rung_of(made, spec, other) for other in RUNGS if other != rung)


def test_a_job_that_runs_something_else_is_no_rung() -> None:
    spec = job()
    for rung in RUNGS:
        assert not is_rung_of(rung_job(job(run="true"), rung), spec, rung)
        assert not is_rung_of(rung_job(job(project="other"), rung), spec, rung)
        assert not is_rung_of(spec, spec, rung)
    assert not is_rung_of(rung_job(job(envs={"EASY": "1"}), "unit"), spec, "unit")
    assert not is_rung_of(rung_job(job(num_nodes=1), "canary"), job(num_nodes=2), "canary")


def test_a_job_that_states_its_throughput_is_no_rung_and_its_rungs_are_held_to_it() -> None:
    spec = job(preflight={"throughput": 120_000})
    assert rung_of(spec) is None
    for rung in RUNGS:
        made = rung_job(spec, rung)
        assert (rung_of(made), throughput_of(made)) == (rung, 120_000.0)
        assert parse_job(dump_job(made)) == made
        assert is_rung_of(made, spec, rung)
        assert is_rung_of(made, job(), rung) == (rung != "canary")
    for wrong in ({"throughput": 0}, {"throughput": "fast"}, {"steps": 5}, {"rate": 3}):
        with pytest.raises(SpecError):
            job(preflight=wrong)


def test_a_canary_is_as_large_as_the_job_whatever_is_asked_for() -> None:
    for nodes in (3, {"min": 2, "max": 8}):
        spec = job(num_nodes=nodes, resources={"accelerators": 4})
        made = rung_job(spec, "canary", nodes=1)
        assert (made.num_nodes, made.min_nodes, made.resources) == (spec.num_nodes, spec.min_nodes, spec.resources)
        assert is_rung_of(made, spec, "canary")
