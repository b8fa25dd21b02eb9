"""Merges parameters and environments that ranks report: the lowest rank's value wins, and differences are reported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.core.event import SYSTEM
from muster.store.insert import Row
from muster.track.rows import Doc, Run, note_row


def take_params(doc: Doc, rank: int, given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Adds a rank's parameters to the document.

    Returns the values taken, and texts about those not taken because a lower rank has another value.
    """
    known, writer = doc.setdefault("params", {}), doc.get("params_rank")
    lowest = writer is None or rank <= writer
    taken = {key: value for key, value in given.items() if lowest or key not in known}
    differing = {} if rank == writer or writer is None else {
        key: f"`{key}` is `{known[key][:200]}` to rank {writer} and `{value[:200]}` to rank {rank}"
        for key, value in given.items()
        if key in known and known[key] != value
    }  # fmt: skip
    known.update(taken)
    doc["params_rank"] = rank if lowest else writer
    return taken, differing


def take_environment(doc: Doc, rank: int, new: Doc) -> None:
    """Adds a rank's environment to the document: the lowest rank's is the attempt's, others only as differences."""
    first = doc.get("environment_rank")
    if first is None or rank <= first:
        if first is not None and rank < first:
            doc.setdefault("environments", {})[str(first)] = _different(doc["environment"], new)
        doc["environment"], doc["environment_rank"] = new, rank
    else:
        doc.setdefault("environments", {})[str(rank)] = _different(new, doc["environment"])


def _different(one: Mapping[str, Any], other: Mapping[str, Any]) -> Doc:
    return {key: value for key, value in one.items() if other.get(key) != value}


def disagreement(run: Run, attempt: int, differing: Mapping[str, str], now: float) -> Row:
    lines = "\n".join(f"- {line}" for line in differing.values())
    text = f"Ranks of attempt {attempt} disagree on parameters; the lowest rank's are kept:\n\n{lines}"
    doc = {"attempt": attempt, "params": list(differing)}
    return note_row(run.project, run.id, now, SYSTEM, "alert", text, doc, f"{run.id}:{attempt}:ranks")
