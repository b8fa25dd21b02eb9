"""Suggestions for names that are not known."""

from __future__ import annotations

from muster.core.suggest import close_matches, closest, did_you_mean

KNOWN = ("research", "production", "default")


def test_the_closest_name_is_offered() -> None:
    assert did_you_mean("reserch", KNOWN) == "Did you mean `research`?"
    assert did_you_mean("reserch", iter(KNOWN), "Create it.", quote="'") == "Did you mean 'research'?"


def test_without_a_close_one_all_are_listed_or_something_else_is_said() -> None:
    assert did_you_mean("x", iter(KNOWN)) == "There are: research, production, default."
    assert did_you_mean("x", KNOWN, "Create it.") == "Create it."
    assert did_you_mean("x", KNOWN, "") == ""


def test_how_close_it_must_be_is_the_callers() -> None:
    assert closest("prod", KNOWN) is None
    assert closest("prod", KNOWN, 0.5) == "production"
    assert close_matches("a", ["ab", "ac", "b"], 1) == ["ac"]
