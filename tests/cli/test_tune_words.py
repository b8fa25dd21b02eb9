"""A study on a terminal: its best, its states, money and time, importance, levels, and the course of the best."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console, RenderableType

from muster.api.studies import BestSoFar, StudyStatus
from muster.cli.tune_words import sparkline, status_line, status_screen, trials_table
from muster.core.reasons import reason
from muster.tune.report import study_report, study_status
from muster.tune.space import Parameter, Space
from muster.tune.spec import Objective, StudySpec
from study_report_kit import SPEC, StudyLog, asha, share_of_names, studies, two_losses, with_runs


def status(log: StudyLog, **facts: object) -> StudyStatus:
    return study_status(log.view(), log.facts(**facts), share_of_names)


def shown(content: RenderableType, width: int = 100) -> str:
    screen = io.StringIO()
    Console(width=width, file=screen, color_system=None, highlight=False).print(content)
    return screen.getvalue()


def test_the_screen_of_a_study_that_runs():
    log = asha(60, over=False)
    found = study_status(log.view(), with_runs(log), share_of_names)
    text = shown(status_screen(found))
    best = log.view().best()
    assert best is not None
    lines = text.splitlines()
    assert lines[0].startswith("lr-and-decay   running   minimize val_loss")
    assert f"trial {best.number}, {best.phase}" in lines[1]
    assert f"lr={best.params['lr']:.4g}" in lines[2]
    for one in found["states"]:
        assert f"{one['trials']} {one['state']}" in text
    assert "of 300.00 USD" in text
    assert "until its money is spent, at the pace" in " ".join(text.split())
    assert re.search(r"lr +━{20} +50%", text)
    assert re.search(r"wd +━{10}╌{10} +25%", text)
    levels = [line.split()[:3] for line in lines if re.match(r"(10|30|90) ", line)]
    assert [[int(part) for part in one[:2]] for one in levels] == [
        [rung["level"], rung["reached"]] for rung in found["rungs"] if rung["level"] is not None
    ]
    assert "No trial has run to its end" in text


def test_the_line_has_what_matters():
    log = asha(200)
    line = status_line(status(log))
    best = log.view().best()
    assert best is not None
    assert line.startswith(
        f"ended; best val_loss {best.values[0]:.5g} (trial {best.number}); 200 of 200, and 15 more trials: 37 complete"
    )
    assert line.endswith("168.51 of 300.00 USD; 13m56s of 2d00h")


def test_what_a_study_waits_for_is_said():
    text = shown(status_screen(status(asha(30, over=False), wait=reason("over_budget", "Budget lab has 3 USD left."))))
    assert re.search(r"waits +Budget lab has 3 USD left\.", text)


def test_of_several_objectives_each_has_its_best():
    goals = (Objective("val_loss"), Objective("tokens_per_s", "maximize"))
    found = status(asha(100, values=two_losses, spec=StudySpec("two", SPEC.space, goals, parallel=16)))
    text = shown(status_screen(found))
    for one in found["progress"]:
        end = one["points"][-1]
        assert f"{one['metric']} {end['value']:.5g} (trial {end['trial']})" in text


def test_the_sparkline_follows_the_best():
    def course(values: list[float]) -> BestSoFar:
        points = [
            {"trial": at, "ended": 10 * (at + 1), "seconds": 0.0, "cost": 0, "value": value}
            for at, value in enumerate(values)
        ]
        return {"metric": "loss", "points": points, "ended": 100, "seconds": 0.0, "cost": 0}  # type: ignore[typeddict-item]

    assert sparkline(course([8.0, 4.0, 2.0, 1.0]), 10) == "█▃▁▁▁▁▁▁▁▁"
    assert sparkline(course([1.0, 2.0]), 10) == "▁█████████"
    late = course([3.0])
    late["points"][0]["ended"] = 50
    assert sparkline(late, 10) == "    ▄▄▄▄▄▄"
    assert sparkline(course([]), 10) == ""
    assert len(sparkline({**course([5.0, 4.0]), "ended": 20}, 80)) == 20


def test_names_of_users_are_no_markup():
    space = Space((Parameter("[red]x[/]", "choice", choices=("[/]", "[bold]b")),))
    log = StudyLog(StudySpec("[link=x]name", space, (Objective("[/blink]loss"),)))
    for trial in range(3):
        log.start(trial, {"[red]x[/]": "[/]"}, by="[dim]me")
        log.end(trial, "complete", [float(trial)], violated=["[u] < 3"] if trial else [])
    found = study_report(log.view(), log.facts(), share_of_names)
    text = shown(status_screen(found)) + shown(trials_table(found["rows"], found["study"]["objectives"], "USD"), 200)
    for told in ("[link=x]name", "[red]x[/]=[/]", "[/blink]loss", "breaks [u] < 3"):
        assert told in text


def test_no_number_of_a_trial_is_cut():
    log = asha(60)
    found = study_report(log.view(), log.facts(), share_of_names)
    text = shown(trials_table(found["rows"][:5], found["study"]["objectives"], "USD"), 80)
    assert "…" not in text
    for one in found["rows"][:5]:
        assert f"lr={one['params']['lr']:.4g}" in text


def test_of_many_parameters_and_levels_the_first_and_the_highest_are_shown():
    text = shown(status_screen(status(asha(100)), most=2))
    assert "and 4 more" in text
    assert "2 lower levels are not shown" in text


@settings(deadline=None, max_examples=60)
@given(studies(), st.sampled_from((40, 80, 160)))
def test_any_study_fits_any_terminal(log, width):
    text = shown(status_screen(status(log)), width)
    assert max(map(len, text.splitlines())) <= width
    assert len(status_line(status(log)).splitlines()) == 1


@pytest.mark.parametrize("over", [True, False])
def test_a_study_without_limits_has_no_bars_of_them(over):
    spec = StudySpec("free", SPEC.space, (Objective("loss"),), parallel=4)
    text = shown(status_screen(status(asha(20, spec=spec, over=over))))
    assert not re.search(r"(money|time) +[━╌]", text)


def test_what_has_no_price_is_not_called_free():
    log = StudyLog(SPEC)
    params = {"lr": 1e-3, "wd": 1e-3, "batch": 64, "model": "shallow", "dropout": 0.1}
    assert "0.00 of 300.00 USD" in shown(status_screen(status(log)))
    log.start(0, params)
    log.end(0, "complete", [0.5], seconds=60.0)
    assert "nothing that ran has a price" in shown(status_screen(status(log)))
    log.start(1, params)
    log.end(1, "complete", [0.5], seconds=60.0, cost=2_500_000)
    assert "2.50 of 300.00 USD" in shown(status_screen(status(log)))
