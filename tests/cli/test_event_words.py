"""Every kind of the audit log has words, and data that does not fit them is shown as it is."""

from __future__ import annotations

import pytest

from muster.cli.event_words import words
from muster.core.event import AUDIT

DATA = {
    "name": "gpt", "source": "sdk", "attempt": 2, "fields": ["name", "tags"], "keys": ["lr", "wd"], "count": 30,
    "path": "a/b", "experiment": 3, "version": 4, "stage": "production", "alias": "best", "method": "POST",
    "address": "10.0.0.7", "kind": "note.added", "error": "no", "token": "ab12", "since": 1.0,
    "receiver": "hook chat",
}  # fmt: skip


@pytest.mark.parametrize("kind", sorted(AUDIT))
def test_it_is_said_in_words(kind: str) -> None:
    said = words(kind, DATA)
    assert said
    assert "{" not in said
    assert words(kind, {}) in (None, said)


def test_they_say_who_and_how_many() -> None:
    assert words("auth.failed", DATA) == "30 failed sign-ins from 10.0.0.7 with the token ab12"
    assert words("run.params", DATA) == "set the 30 parameters lr, wd and 28 more"
    assert words("version.staged", DATA) == "moved gpt/4 to production"
    assert words("job.submitted", DATA) is None
