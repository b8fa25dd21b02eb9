"""Calls that promote runs from stage to stage: what is missing, approvals, and the job of the next stage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from muster.client.connection import Anyone, run_path

if TYPE_CHECKING:
    from muster.api.promotion import PromotionMade, PromotionStatus, ReviewList


async def run_promotion(to: Anyone, /, ref: str | int, stage: str) -> PromotionStatus:
    """What a stage asks of a run: "needs" with what was found and the command that gets each, "scaling", "history"."""
    return await to._get(run_path(ref, "promotion"), to=stage)


async def promote_run(
    to: Anyone,
    /,
    ref: str | int,
    stage: str,
    *,
    devices: int | None = None,
    changes: Mapping[str, Any] | None = None,
    dry_run: bool = False,
    override: bool = False,
    why: str = "",
    key: str | None = None,
) -> PromotionMade:
    """Submits the job of the next stage, at its scale or with `devices`, if all that it asks for holds: "job".

    `changes`: fields of the job file for its scale, and `envs`. `override`: although something is missing, for admins
    of the project, who say `why`.
    """
    body = {"to": stage, "devices": devices, "changes": dict(changes or {}), "dry_run": dry_run, "override": override,
            "why": why}  # fmt: skip
    return await to._send("POST", run_path(ref, "promotion"), body, key=key)


async def ask_for_review(to: Anyone, /, ref: str | int, stage: str, why: str) -> PromotionStatus:
    """Asks those who may approve that a run is promoted to a stage."""
    return await to._send("POST", run_path(ref, "promotion", "ask"), {"to": stage, "why": why})


async def reviews(to: Anyone, /) -> ReviewList:
    """Reviews that were asked for in your projects and are not answered: "yours" if you may approve."""
    return await to._get("/v1/reviews")


async def approve_promotion(to: Anyone, /, ref: str | int, stage: str, why: str) -> PromotionStatus:
    """Approves that somebody else's run is promoted to a stage."""
    return await to._send("POST", run_path(ref, "promotion", "approve"), {"to": stage, "why": why})
