"""Turns what programs report of damaged and unreadable checkpoints into events, each once in an attempt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeGuard

from muster.core.attempt_events import AttemptPaused, CheckpointSkipped, CheckpointTaken
from muster.core.payload import Payload

_MOST: Final = 50  # events of one attempt: a program could report without end
_TEXT_MAX: Final = 500  # characters
_PATH_MAX: Final = 4096


def restore_events(docs: Sequence[tuple[int, dict[str, Any]]], said: set[str]) -> tuple[list[Payload], list[Payload]]:
    """Skipped checkpoints, and pauses. `docs`: each with the rank that it comes from.

    `said`: what the attempt reported before. Every rank of a gang may look for a checkpoint and report the same.
    """
    skipped: list[Payload] = []
    pauses: list[Payload] = []
    for _, doc in docs:
        found: list[tuple[str, Payload]] = []
        if doc["type"] == "waiting":
            text = _text(doc.get("text"))
            found.append((f"waiting:{text}", AttemptPaused(text)))
        elif doc["type"] == "restore" and isinstance(doc.get("skipped"), list):
            step = doc.get("step")
            used = step if _whole(step) else None
            for each in doc["skipped"]:
                if isinstance(each, dict):
                    path = _text(each.get("path"))
                    found.append((f"skipped:{path}", CheckpointSkipped(path, _text(each.get("what")), used)))
        for key, event in found:
            if key not in said and len(said) < _MOST:
                said.add(key)
                (pauses if isinstance(event, AttemptPaused) else skipped).append(event)
    return skipped, pauses


def taken_events(docs: Sequence[tuple[int, dict[str, Any]]], source: str) -> list[CheckpointTaken]:
    """That the run has the checkpoint of its source, which the program can't choose: only the job file can."""
    found: list[CheckpointTaken] = []
    for _, doc in docs:
        step, size = doc.get("step"), doc.get("bytes")
        if doc["type"] == "taken" and _whole(step) and _whole(size):
            how = "link" if doc.get("how") == "link" else "copy"
            path = str(doc.get("path") or "")[:_PATH_MAX]
            found.append(CheckpointTaken(source, step, path, size, how, _text(doc.get("why"))))
    return found


def _whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _text(value: object) -> str:
    return str(value or "")[:_TEXT_MAX]
