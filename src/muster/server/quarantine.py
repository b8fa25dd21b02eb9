"""Who may download an artifact that a scan found unsafe: administrators, with a reason, which is logged."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from muster.core.record_events import ArtifactOpened
from muster.server.auth import Identity
from muster.track.artifact_scans import refusal
from muster.track.tracking import Tracking

Why = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=1000,
        pattern=r"^[^\x00]*$",
        description="why an administrator downloads what is quarantined",
    ),
]


def refuse(track: Tracking, digest: str) -> None:
    """As `check_open`, for whoever asks."""
    if found := track.scans.quarantined(digest):
        raise refusal(*found)


def check_open(track: Tracking, caller: Identity, digest: str, why: str | None = None) -> None:
    """Raises Refused for content that is quarantined. Content that no scan has seen yet is scanned first."""
    found = track.scans.quarantined(digest)
    if found is None:
        return
    one, bad = found
    if why is None or not caller.superuser:
        raise refusal(one, bad)
    project = track.runs.get(one.run)
    told = ArtifactOpened(one.path, why[:200])
    track.db.write(events=[track.db.event(told, caller.user, project.project if project else "", one.run)])
