"""`muster cost advice`: what it prints, and how it tells what it can't work with."""

from __future__ import annotations

from muster.api.cost import AdviceList
from muster.cli.cost_advice import KINDS, _show
from muster.cost.advice import ADVICE

FOUND: AdviceList = {
    "now": 0.0, "since": 0.0, "days": 30.0, "currency": "EUR", "whole": True, "runs": 3, "unpriced": ["cloud"],
    "advice": [{
        "kind": "spot", "subject": "gpt (pool s)", "project": "language", "saves": 12_340_000,
        "arithmetic": "3 runs cost 40.00 EUR", "command": "muster runs reproduce gpt-1 -o use_spot=true",
        "evidence": ["gpt-1"], "confidence": "estimated",
    }],
}  # fmt: skip


def test_each_piece_has_its_saving_its_arithmetic_and_its_command(capsys):
    _show(FOUND)
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [
        "spot: gpt (pool s) in language saves 12.34 EUR a month (estimated)",
        "  3 runs cost 40.00 EUR",
        "  muster runs reproduce gpt-1 -o use_spot=true",
        "  from gpt-1",
    ]
    assert "No price: cloud." in shown.err


def test_a_server_without_prices_has_nothing_to_advise(live, at_home):
    found = at_home("cost", "advice", "--json")
    assert found.code == 0, found.err
    assert (found.json["advice"], found.json["whole"]) == ([], True)
    plain = at_home("cost", "advice", "--project", "default")
    assert plain.code == 0
    assert "Nothing to advise" in plain.err


def test_what_it_can_not_work_with(at_home):
    assert tuple(ADVICE) == KINDS
    wrong = at_home("cost", "advice", "--kind", "magic")
    assert (wrong.code, "right-size" in wrong.err) == (2, True)
    assert at_home("cost", "advice", "--reserve-price", "-1").code == 2
    assert at_home("cost", "advice", "--buy-price", "0").code == 2
    part = at_home("cost", "advice", "--kind", "reserve", "--project", "default")
    assert part.code == 1
    assert "demand of all projects" in part.err
    assert at_home("cost", "advice", "--project", "nobody").code == 1
