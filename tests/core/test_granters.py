"""Every reason that the policy or the settings cause says who can grant an exception, once, for programs too."""

from __future__ import annotations

import pytest

from muster.core.reasons import REASONS, granter_words, reason, with_granter

GRANTED = [kind for kind in REASONS.values() if kind.granted_by]


@pytest.mark.parametrize("kind", GRANTED, ids=lambda kind: kind.code)
def test_the_hint_says_who(kind) -> None:
    found = with_granter(reason(kind.code), ["ada", "bob"])
    assert found.hint.startswith(kind.hint)
    assert "can grant it" in found.hint
    assert with_granter(found, ["ada", "bob"]) == found, "once"
    by = found.data["granted_by"]
    assert by["people"] == (["ada", "bob"] if kind.granted_by == "project" else [])
    assert ("ada or bob (admins of the project)" in found.hint) == (kind.granted_by == "project")
    assert "granted_by" not in with_granter(reason(kind.code)).data, "a wait's data stay as they are"


def test_reasons_that_rules_cause_are_among_them() -> None:
    codes = {kind.code for kind in GRANTED}
    assert codes >= {
        "never_allowed", "pool_not_allowed", "turns_need_one_node", "required_missing", "priority_out_of_range",
        "engine_forbids", "over_quota", "limit_reached", "quota_reached", "kept_by_owner", "no_pool", "spares_kept",
        "image_not_approved", "environment_not_approved", "vulnerable_packages", "too_little_memory",
        "admission_refused", "secret_found", "file_too_large", "notebook_outputs",
    }  # fmt: skip
    assert not [kind for kind in GRANTED if kind.category not in ("wait", "refusal")]


def test_what_nobody_grants_stays_as_it_is() -> None:
    found = reason("no_command")
    assert with_granter(found, ["ada"]) == found
    assert granter_words("project") == "An admin of the project can grant it."
    many = granter_words("project", ["a", "b", "c", "d"])
    assert many == "a or b or c (admins of the project) can grant it."
