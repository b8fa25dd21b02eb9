"""How the winners held up with other seeds, from the summary of a study that has ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.api.numbers import json_number
from muster.api.studies import ConfirmedView, VerdictView
from muster.core.payload import Doc
from muster.tune.view import StudyView


def confirmed(view: StudyView, summary: Doc) -> list[ConfirmedView]:
    """`summary`: of `StudyEnded`; it has nothing of this if no trial was run again."""
    return [_view(view, one) for one in _held_up(summary).get("groups", ()) if one["number"] in view.trials]


def verdict(summary: Doc) -> VerdictView | None:
    found = _held_up(summary)
    return {"better": found["beats"], "p": found["p"], "text": found["words"]} if found else None


def _held_up(summary: Doc) -> Mapping[str, Any]:
    """See `muster.tune.confirm.HeldUp`."""
    return summary.get("held_up") or {}


def _view(view: StudyView, one: Mapping[str, Any]) -> ConfirmedView:
    trial = view.trials[one["number"]]
    seen = trial.latest
    return {
        "of": trial.number,
        "params": dict(trial.params),
        "seen": json_number(seen[0]) if seen is not None else None,
        "values": [json_number(float(value)) for value in one["values"]],
        "mean": _number(one.get("mean")),
        "deviation": _number(one.get("deviation")),
        "seeds": len(one["values"]) + one["failed"],
    }


def _number(value: float | None) -> Any:
    return None if value is None else json_number(float(value))
