"""Ids of runs, and checks of their names and other facts."""

from __future__ import annotations

import re
import secrets
from typing import Final

from muster.api.words import KINDS, PHASES
from muster.core.errors import Invalid
from muster.store.codec import check_text
from muster.track.facts import NAME_MAX

PURPOSE_MAX: Final = 32_000  # characters, as in a job file
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
# Names that a job has or may get: its id, or its number.
_OF_JOB: Final = re.compile(r"([a-z]([a-z0-9-]*[a-z0-9])?-)?\d+\Z")


def check_facts(
    *, name: str | None = None, kind: str | None = None, phase: str | None = None, purpose: str | None = None
) -> None:
    check_text(name, purpose)
    if name is not None and len(name) > NAME_MAX:
        raise Invalid(f"The name of a run has {len(name):,} characters.", f"Use at most {NAME_MAX}.")
    if purpose is not None and len(purpose) > PURPOSE_MAX:
        raise Invalid(f"The purpose of a run has {len(purpose):,} characters.", f"Use at most {PURPOSE_MAX:,}.")
    for what, given, known in (("kind", kind, KINDS), ("phase", phase, PHASES)):
        if given is not None and given not in known:
            raise Invalid(f"The {what} of a run was given as {given!r}.", f"Use one of {', '.join(known)}.")


def checked_id(run: str) -> str:
    if not _ID.match(run) or _OF_JOB.match(run):
        raise Invalid(
            f"{run[:100]!r} can't be the id of a run.",
            "Use at most 100 letters, digits, `.`, `_` and `-`; numbers and `...-NUMBER` are kept for jobs.",
        )
    return run


def new_id(name: str) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()[:50]).strip("-") or "run"
    while True:
        run = f"{slug}-{secrets.token_hex(4)}"
        if not _OF_JOB.match(run):
            return run
