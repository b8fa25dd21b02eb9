"""Every kind of the audit log has words, and data that does not fit them is shown as it is."""

from __future__ import annotations

import pytest

from events_kit import AUDIT, AUDIT_DOC
from muster.cli.event_words import words


@pytest.mark.parametrize("kind", sorted(AUDIT))
def test_it_is_said_in_words(kind: str) -> None:
    said = words(kind, AUDIT_DOC)
    assert said
    assert "{" not in said
    assert words(kind, {}) in (None, said)


def test_they_say_who_and_how_many() -> None:
    assert words("auth.failed", AUDIT_DOC) == "30 failed sign-ins from 10.0.0.7 with the token ab12"
    assert words("run.params", AUDIT_DOC) == "set the 30 parameters lr, wd and 28 more"
    assert words("version.staged", AUDIT_DOC) == "moved gpt/4 to production"
    assert words("job.submitted", AUDIT_DOC) is None
