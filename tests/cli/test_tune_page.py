"""The HTML report of a study: one sound file, whatever users call their things, and of any size of study."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from html_kit import check_page
from muster.api.studies import StudyReport
from muster.cli.tune_page import ROWS, page
from muster.pages.axes import amount_axis, value_axis
from muster.pages.parallel import Track, Upright, parallel_chart
from muster.tune.report import study_report
from muster.tune.space import Parameter, Space
from muster.tune.spec import Objective, StudySpec
from study_report_kit import SPEC, StudyLog, asha, many, share_of_names, studies, two_losses, with_runs

HOSTILE = (
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</title></style><b>bold",
    "&lt;i&gt; &amp; <!-- ",
    "\u202egnp.exe\u0007\x1b[31m\x00",
    "half \ud83d of a pair",
    "Größe 数据 🚀 ]]>",
    "https://example.org/x.js",
)


def report(log: StudyLog, facts: Any = None) -> StudyReport:
    return study_report(log.view(), facts or log.facts(), share_of_names)


def figures(text: str) -> dict[str, str]:
    """The charts by the id of their caption."""
    return {re.findall(r'figcaption id="([^"]+)"', one)[0]: one for one in re.findall(r"<figure.*?</figure>", text)}


def test_a_report_has_every_chart_and_says_how_to_read_it():
    log = asha(200)
    text = page(report(log, with_runs(log)))
    said = check_page(text)
    drawn = figures(text)
    slices = {f"slice-{place}" for place in range(len(SPEC.space.parameters))}
    assert drawn.keys() == {
        "trials-0", "time-0", "money-0", "winners", "cost", "parallel", "plane", "curves", *slices,
    }  # fmt: skip
    for one in drawn.values():
        sentence = html.unescape(re.findall(r"<figcaption[^>]*>[^<]+<small>(.*?)</small>", one)[0])
        assert sentence.endswith(".")
        assert len(sentence) > 30
    # The figures of a chart are beside it as a table, or in that of the trials.
    assert [name for name, one in drawn.items() if "<details>" not in one] == ["time-0", "money-0", "parallel"]
    words = " ".join(said.text)
    for told in (
        "Study lr-and-decay", "168.51 of 300.00 USD", "200 of 200, and 15 more", "37 complete",
        "asha (eta=3, grace=10)", "memory < 70GB", "4 to 24 by 4, when model == 'deep'",
        "1e-05 to 0.1, logarithmic", "All 215, the best first.", "It asks for no more trials: ",
    ):  # fmt: skip
        assert told in words, told


def test_each_mark_tells_its_trial_when_a_pointer_rests_on_it():
    log = asha(120)
    found = report(log)
    drawn = figures(page(found))
    for name in ("trials-0", "cost", "slice-0"):
        dots = re.findall(r'<path d="[^"]+"><title>(.*?)</title></path>', drawn[name])
        ranked = [one for one in found["rows"] if one["rank"] is not None]
        assert len(dots) == len(ranked) - sum(one["turn"] is None for one in ranked)
        assert len(set(re.findall(r"trial (\d+),", " ".join(dots)))) == len(dots)
        best = f"trial {found['best']['number']}, rank 1:"
        assert sum(one.startswith(best) for one in dots) == 1
        assert '<g class="ring"' in drawn[name]


@pytest.mark.parametrize("text", HOSTILE)
def test_texts_of_users_stay_texts(text):
    space = Space(
        (
            Parameter(f"p{text}", "choice", choices=(text, "b", f"c{text}")),
            Parameter("x", "float", 0.0, 1.0, when=f"y == {text!r}"),
        )
    )
    spec = StudySpec(f"name {text}", space, (Objective(f"m{text}"), Objective("two")), (f"a < 3 {text}",))
    log = StudyLog(spec)
    for trial in range(12):
        params = {f"p{text}": (text, "b")[trial % 2], "x": trial / 12}
        log.start(trial, params, by=f"by {text}", note="asked")
        broken = [f"a < 3 {text}"] if trial == 3 else []
        log.end(trial, "complete", [float(trial), -float(trial)], note=f"note {text}", violated=broken, cost=10**6)
    found = report(log)
    found["study"]["currency"] = "EUR"
    found["verdict"] = {"better": True, "p": 0.01, "text": f"verdict {text}"}
    found["notes"].append(f"hint {text}")
    made = page(found)
    said = check_page(made)
    plain = "".join(letter for letter in text if letter not in "\u202e\u0007\x1b\x00").replace("\ud83d", "?")
    words = " ".join(said.text)
    for told in ("name ", "note ", "by ", "Verdict ", "hint ", "a < 3 "):
        assert told + plain in words
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", made)


@settings(deadline=None, max_examples=60)
@given(studies(), st.booleans())
def test_any_study_has_a_sound_page(log, runs):
    check_page(page(report(log, with_measured(log) if runs else None)))


def with_measured(log: StudyLog) -> Any:
    from muster.tune.report import LearningCurve  # noqa: PLC0415

    inf = float("inf")
    points = [(0.0, inf), (1.0, 3.0), (2.0, float("nan")), (3.0, -1e308), (4.0, 1e308)]
    marks = [(2.0, "promoted"), (9.0, "restarted")]
    return log.facts(curves={number: LearningCurve(points, marks) for number in log.trials})


def test_a_study_that_has_just_begun_has_a_page():
    said = check_page(page(report(StudyLog(SPEC))))
    assert "none yet" in " ".join(said.text)
    assert said.tags["figure"] == 0


def test_values_that_can_not_be_drawn_are_told_in_the_table():
    log = StudyLog(StudySpec("wild", SPEC.space, (Objective("loss", "maximize"),)))
    values = [float("inf"), 1e308, -1e308, 5.0, float("-inf"), 1e-320]
    for trial, value in enumerate(values):
        log.start(trial, {"lr": 1e-3, "wd": 1e-3, "batch": 64, "model": "shallow", "dropout": 0.1})
        log.end(trial, "complete", [value], cost=trial)
    text = page(report(log))
    said = check_page(text)
    assert {"inf", "-inf", "1e+308"} <= set(said.text)


def test_a_study_of_many_trials_has_a_page_that_opens():
    log = many(20_000)
    found = report(log)
    text = page(found)
    said = check_page(text)
    assert len(text) < 2_000_000
    table = re.findall(r'aria-label="Trials".*?</table>', text)[0]
    assert table.count("<tr>") == ROWS + 1
    assert f"{ROWS} of 20,000, the best first." in " ".join(said.text)
    assert f"{found['sample']['shown']:,} of 20,000 trials are drawn" in " ".join(said.text)
    assert found["sample"]["rule"] in " ".join(said.text)
    best = f"trial {found['best']['number']}, rank 1:"
    assert all(best in one for name, one in figures(text).items() if name in ("trials-0", "parallel", "slice-0"))


def test_several_objectives_have_a_front_and_a_course_each():
    goals = (Objective("val_loss"), Objective("tokens_per_s", "maximize"))
    log = asha(120, values=two_losses, spec=StudySpec("two", SPEC.space, goals, parallel=16))
    found = report(log)
    drawn = figures(page(found))
    assert {"trials-0", "trials-1", "front-0-1"} <= drawn.keys()
    marked = re.findall(r'<g class="dots top">(.*?)</g>', drawn["front-0-1"])[0]
    assert marked.count("<title>") == len(found["front"])


def test_a_missing_place_breaks_the_line_of_a_trial():
    axes = [Upright(name, "", [(0.0, "0")]) for name in "abcde"]
    track = Track([0.0, 0.5, None, 1.0, None], "g0", "trial 1")
    chart = parallel_chart("All", "How.", axes, [track], [], "all")
    assert 'd="M100.0 1000L300.0 500M700.0 0h.1"' in chart


@given(st.floats(-1e300, 1e300), st.floats(0, 1e300), st.booleans())
def test_an_axis_of_values_holds_them_and_has_ticks(low, length, log):
    high = min(low + length, 1e300)
    axis = value_axis(low, high, "loss", log=log)
    assert axis.low <= low <= high <= axis.high
    assert 2 <= len(axis.ticks) <= 20
    assert all(-1e-6 <= axis.place(at) <= 1 + 1e-6 for at, _ in axis.ticks)
    assert 0 <= axis.place(axis.within(low)) <= axis.place(axis.within(high)) <= 1 + 1e-9
    assert amount_axis(abs(high), "USD").low == 0.0
