"""What came out: the figures, the table, the drawings and the report, of results that are made by hand."""

from __future__ import annotations

import re
import statistics
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from html_kit import Page
from muster.core.rules import Rules
from muster.pages.axes import Axis, count_axis, share_axis, time_axis, waits_axis
from muster.sim.model import Cluster, JobResult, PoolShape, Result, Sample, Setup, TraceJob
from muster.sim.report import ReportContent, report
from muster.sim.summary import fairness, fragmentation, jain, percentile, spans_of, summarise, utilisation
from muster.sim.table import ratio_text, rows, span
from muster.sim.timeline import buckets, largest_queues

CLUSTER = Cluster((PoolShape("gpu", 2, 8),))


def done(number, *, submit=0.0, duration=100.0, wait=0.0, size=1, user="ada", queue="q", **more):
    job = TraceJob(str(number), submit, duration, 1, size, user=user, queue=queue)
    return JobResult(job, started=submit + wait, finished=submit + wait + duration, held=duration, **more)


def result(jobs, samples=(), name="fifo"):
    return Result(Setup(name, Rules(), CLUSTER), list(jobs), list(samples), rounds=7, events=9, wall=0.5)


# --- figures ----------------------------------------------------------------------------------------------------------
_VALUES = st.lists(st.floats(0, 1e9), min_size=2, max_size=60)


@given(_VALUES)
def test_percentiles_are_those_of_the_inclusive_method(values):
    ordered = sorted(values)
    cuts = statistics.quantiles(ordered, n=100, method="inclusive")
    assert [percentile(ordered, p) for p in (1, 50, 99)] == pytest.approx([cuts[0], cuts[49], cuts[98]])
    assert percentile(ordered, 0) == ordered[0]
    assert percentile(ordered, 100) == pytest.approx(ordered[-1])


def test_the_percentile_of_one_value_is_that_value():
    assert percentile([4.0], 99.9) == 4.0


@given(st.lists(st.floats(1, 1e6), min_size=2, max_size=40))
def test_jains_index_lies_between_one_over_n_and_one(values):
    index = jain(values)
    assert index is not None
    assert 1 / len(values) - 1e-9 <= index <= 1 + 1e-9


def test_jains_index_of_what_is_known():
    assert jain([3.0, 3.0, 3.0]) == pytest.approx(1.0)
    assert jain([1.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)
    assert jain([1.0]) is None


def test_fairness_is_over_users_or_else_queues():
    alike = [done(1, user="a", wait=100), done(2, user="b", wait=100)]
    assert fairness(alike) == ("users", pytest.approx(1.0))
    assert fairness([done(1, user="", queue="x"), done(2, user="", queue="y", wait=100)]) == (
        "queues", pytest.approx((1 + 2) ** 2 / (2 * (1 + 4))),
    )  # fmt: skip
    assert fairness([done(1), done(2)]) == ("", None)


def test_a_short_job_counts_as_ten_seconds_for_its_slowdown():
    over, index = fairness([done(1, user="a", duration=1.0, wait=19.0), done(2, user="b", duration=10.0, wait=10.0)])
    assert (over, index) == ("users", pytest.approx(1.0))  # both are slowed down twice


def test_the_summary_counts_what_finished_and_what_did_not():
    refused = JobResult(TraceJob("r", 5.0, 1.0, 1, 64), refused="too wide")
    open_ = JobResult(TraceJob("u", 6.0, 1.0))
    jobs = [
        done(1, wait=10, size=1), done(2, wait=30, size=8, preemptions=2, lost=7200.0, failures=1),
        done(3, wait=0, size=0), done(4, wait=50, size=65, submit=20.0), refused, open_,
    ]  # fmt: skip
    found = summarise(result(jobs))
    assert (found.jobs, found.refused, found.unfinished) == (4, 1, 1)
    assert (found.completion.mean, found.queueing.mean, found.queueing.median) == (122.5, 22.5, 20.0)
    assert {size: one.mean for size, one in found.by_size.items()} == {"0": 0.0, "1": 10.0, "2-8": 30.0, ">64": 50.0}
    assert (found.preemptions, found.failures, found.lost) == (2, 1, 2.0)
    assert (found.rounds, found.events, found.wall) == (7, 9, 0.5)
    assert (found.utilisation, found.fragmentation) == (None, None)


def test_nothing_at_all_has_no_figures():
    found = summarise(result([]))
    assert (found.jobs, found.completion.mean, found.queueing.p999, found.by_size) == (0, None, None, {})


def samples():
    return [
        Sample(-5.0, 0.0, 16.0, 0, 1.0),
        Sample(10.0, 8.0, 16.0, 3, 0.5, {"a": 6.0, "b": 2.0}),
        Sample(30.0, 16.0, 16.0, 1, 1.0, {"a": 16.0}),
        Sample(90.0, 0.0, 16.0, 0, 1.0),
    ]


def test_use_and_fragmentation_are_means_over_the_time_of_submissions():
    spans = [(one.time, length) for one, length in spans_of(samples(), 0.0, 40.0)]
    assert spans == [(-5.0, 10.0), (10.0, 20.0), (30.0, 10.0)]
    assert utilisation(samples(), 0.0, 40.0) == pytest.approx((8 * 20 + 16 * 10) / (16 * 40))
    assert fragmentation(samples(), 0.0, 40.0) == pytest.approx(0.5 * 20 / 40)
    assert utilisation(samples(), 0.0, 190.0) == pytest.approx((8 * 20 + 16 * 60) / (16 * 190))
    assert utilisation([], 0.0, 40.0) is None
    assert utilisation(samples(), 40.0, 40.0) is None


@given(st.lists(st.tuples(st.floats(0, 1000), st.floats(0, 16)), max_size=30), st.integers(1, 20))
def test_buckets_hold_all_that_the_samples_do(points, count):
    taken = [Sample(time, used, 16.0, 0, 1.0, {"q": used}) for time, used in sorted(points)]
    found = buckets(taken, 100.0, 900.0, count)
    whole = sum(sample.used * length for sample, length in spans_of(taken, 100.0, 900.0))
    assert sum(one.used * one.length for one in found) == pytest.approx(whole, abs=1e-6)
    assert all(one.length <= 800 / count + 1e-6 for one in found)


def test_the_largest_queues_come_first():
    found = buckets(samples(), 0.0, 100.0, 10)
    assert largest_queues(found, 5) == ["a", "b"]
    assert largest_queues(found, 1) == ["a"]


# --- the table --------------------------------------------------------------------------------------------------------
def test_the_table_compares_with_the_first():
    one, two = (summarise(result([done(1, wait=wait, size=4)])) for wait in (100.0, 300.0))
    table = {row.label: row for row in rows([one, two])}
    assert table["completion, mean"].cells == ("3m20s", "6m40s")
    assert table["completion, mean"].ratios == (1.0, 2.0)
    assert table["queueing, mean"].ratios == (1.0, 3.0)
    assert table["  2-8 GPUs"].cells == ("1m40s", "5m00s")
    assert table["preemptions"].cells == ("0", "0")
    assert "refused" not in table
    assert "GPU-hours lost" not in table


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0s"), (9.96, "10.0s"), (59, "59s"), (60, "1m00s"), (3599, "59m59s"), (3600, "1h00m"), (90_000, "1d01h")],
)
def test_spans_read_well(seconds, text):
    assert span(seconds) == text
    assert span(None) == span(float("nan")) == "-"


@pytest.mark.parametrize(
    ("ratio", "text"), [(None, ""), (0.0042, "×0.0042"), (0.5, "×0.50"), (1.0, "×1.00"), (1234.5, "×1,234")]
)
def test_ratios_read_well(ratio, text):
    assert ratio_text(ratio) == text


# --- drawings ---------------------------------------------------------------------------------------------------------
@given(st.floats(0, 1e9))
def test_axes_hold_what_they_are_made_for(value):
    assert count_axis(value, "jobs").high >= value
    assert 0 <= waits_axis(value).place(value) <= 1 + 1e-9
    for axis in (count_axis(value, "jobs"), waits_axis(value), time_axis(0, value), share_axis("jobs")):
        assert all(-1e-9 <= axis.place(at) <= 1 + 1e-9 for at, _ in axis.ticks)
        assert len(axis.ticks) <= 60


def test_a_scale_of_powers_gives_each_power_the_same_room():
    axis = Axis(1.0, 1000.0, (), "", log=True)
    assert [axis.place(value) for value in (0.0, 1.0, 10.0, 100.0, 1000.0)] == pytest.approx([0, 0, 1 / 3, 2 / 3, 1])


def story(**changes):
    results = [
        result([done(1, wait=0.0, queue="a"), done(2, wait=500.0, submit=50.0, queue="<b>")], samples(), name)
        for name in ("fifo", "<script>alert(1)</script>")
    ]
    given = {
        "title": "2 jobs of <t>", "origin": {"trace": "A & B", "license": "CC BY <4.0>"},
        "settings": [("cluster", "gpu: 2 nodes")], "notes": ["1 row bad: <i>"], "results": results,
        "summaries": [summarise(one) for one in results],
    }  # fmt: skip
    return ReportContent(**{**given, **changes})


def test_the_report_is_one_sound_file_that_fetches_nothing():
    text = report(story())
    page = Page()
    page.feed(text)
    page.close()
    assert page.open == []
    assert page.links == []
    assert "<script" not in text
    assert "http" not in text
    assert "url(" not in text
    words = " ".join(page.text)
    for told in ("2 jobs of <t>", "A & B", "CC BY <4.0>", "1 row bad: <i>", "gpu: 2 nodes", "completion, mean"):
        assert told in words


def test_every_drawing_is_well_formed_and_has_a_title():
    text = report(story())
    drawings = re.findall(r"<svg.*?</svg>", text)
    assert len(drawings) >= 5
    for drawing in drawings:
        ElementTree.fromstring(drawing)
    for label in re.findall(r'role="img" aria-labelledby="([^"]+)"', text):
        assert f'<figcaption id="{label}">' in text
    assert not re.search(r'd="[^"]*(nan|inf)', text)


def test_a_result_without_samples_or_jobs_has_a_report_too():
    bare = result([JobResult(TraceJob("r", 0.0, 1.0), refused="too wide")])
    text = report(story(results=[bare], summaries=[summarise(bare)], notes=[], origin={}))
    page = Page()
    page.feed(text)
    assert page.open == []
    assert "All 1 rows were in order." in " ".join(page.text)
