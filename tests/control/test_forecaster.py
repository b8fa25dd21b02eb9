"""Forecasts are made beside the loop, kept in the log, and scored against what happened."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rig import Rig, nodes

from muster.control.forecaster import FORECAST_AFTER, NOTED_EVERY, Forecaster
from muster.control.score import Scored, calibration, score
from muster.core.event import Event
from muster.core.payload import decode


class Watched(Rig):
    def __post_init__(self) -> None:
        self.forecaster: Forecaster | None = None
        super().__post_init__()
        self.forecaster = Forecaster(self.commit, lambda: self.controller.board, self.clock, lambda: True)

    def _committed(self, events) -> None:
        super()._committed(events)
        if self.forecaster is not None:
            self.forecaster.fold([event for event in events if event.kind == "job.submitted"])

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]


@pytest.fixture
def rig() -> Iterator[Watched]:
    made = Watched(nodes(1))
    yield made
    made.close()


def look(rig: Watched, seconds: float) -> None:
    rig.tick(seconds=seconds)
    assert rig.forecaster is not None
    rig.forecaster.step()


def test_those_who_still_wait_are_forecast_once(rig: Watched) -> None:
    first = rig.submit(gpus=4, max_duration="1h")
    rig.tick()
    second = rig.submit(gpus=4)
    look(rig, FORECAST_AFTER)
    assert [event.job for event in rig.of("job.forecast")] == [second]
    look(rig, FORECAST_AFTER)
    (event,) = rig.of("job.forecast")
    assert event.data.at <= event.data.p50 <= event.data.p90 <= rig.job(first).started_at + 3600


def test_what_is_scored_was_forecast_by_the_progress_that_jobs_report(rig: Watched) -> None:
    first = rig.submit(gpus=4, max_duration="1h")
    rig.tick()
    rig.forecaster = Forecaster(
        rig.commit, lambda: rig.controller.board, rig.clock, lambda: True, lambda: {first: rig.clock.now() + 60}
    )
    rig.submit(gpus=4)
    look(rig, FORECAST_AFTER)
    (event,) = rig.of("job.forecast")
    assert 50 < event.data.p50 - event.data.at <= event.data.p90 - event.data.at < 120


def test_what_was_said_is_scored_when_the_job_starts(rig: Watched) -> None:
    first = rig.submit(gpus=4, max_duration="1h")
    rig.tick()
    second = rig.submit(gpus=4)
    look(rig, FORECAST_AFTER)
    found = calibration(rig.store, 0.0, rig.clock.now())
    assert (found["all"]["jobs"], found["all"]["counted_p50"]) == (1, 0)
    rig.clock.time = 1000.0 + 2.0
    rig.end(first)
    rig.clock.time += FORECAST_AFTER + 2 * 3600
    rig.tick()
    assert rig.job(second).phase == "running"
    found = calibration(rig.store, 0.0, rig.clock.now())
    assert found["all"]["before_p90"] == 0.0
    assert found["all"]["error"] > 0
    assert list(found["queues"]) == ["default"]
    assert list(found["sizes"]) == ["2 to 8"]
    assert calibration(rig.store, rig.clock.now(), rig.clock.now())["all"]["jobs"] == 0
    assert calibration(rig.store, 0.0, rig.clock.now(), queue="other")["all"]["jobs"] == 0


def test_one_that_was_stopped_before_it_started_does_not_count(rig: Watched) -> None:
    rig.submit(gpus=4)
    rig.tick()
    second = rig.submit(gpus=4)
    look(rig, FORECAST_AFTER)
    rig.stop(second)
    assert calibration(rig.store, 0.0, rig.clock.now())["all"]["jobs"] == 0


def test_what_a_job_waits_for_is_noted_when_it_changes(rig: Watched) -> None:
    rig.submit(gpus=4, priority=95)
    rig.tick()
    waits = rig.submit(gpus=1)
    look(rig, NOTED_EVERY)
    look(rig, NOTED_EVERY)
    look(rig, NOTED_EVERY)
    assert [(event.job, event.data.reason.code) for event in rig.of("job.waits")] == [(waits, "no_capacity")]
    node = {"name": "n0", "health": "draining", "reason": "a test"}
    rig.store.append([Event(decode("node.health", node), rig.clock.now())])
    look(rig, NOTED_EVERY)
    assert [event.data.reason.code for event in rig.of("job.waits")] == ["no_capacity", "nodes_unhealthy"]


def said(started: float | None, p50: float = 10.0, p90: float | None = 20.0) -> Scored:
    return Scored("job", "default", "up to 1", 0.0, p50, p90, started)


def test_shares_and_errors() -> None:
    found = score([said(5.0), said(15.0), said(30.0), said(None)], now=15.0)
    assert (found.jobs, found.counted_p50, found.before_p50) == (4, 4, 0.25)
    assert (found.counted_p90, found.before_p90) == (3, 2 / 3)
    assert (found.error, found.size_of_error, found.wait) == (5.0, 5.0, 15.0)
    assert score([said(None, p50=30.0)], now=15.0).before_p50 is None
