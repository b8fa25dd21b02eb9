"""Compares an attempt with the one before: parameters and environment, as a logbook note with a diff."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import Connection, select, update

from muster.core.event import SYSTEM
from muster.store import record_tables as tables
from muster.store.codec import dumps
from muster.store.insert import add
from muster.track.facts import flat, same_value
from muster.track.rows import Doc, Run, note_row

_DIFF_MAX: Final = 20_000  # characters
# Parts of the environment that can change a result. The nodes are in the note about the attempt's start.
_ENVIRONMENT: Final = ("python.version", "image", "driver", "cuda", "devices", "packages.", "env.", "seeds.")
_PLACE: Final = ("env.CUDA_VISIBLE_DEVICES", "env.NVIDIA_VISIBLE_DEVICES", "env.ROCR_VISIBLE_DEVICES", "env.SLURM_")


def write_difference_note(connection: Connection, run: Run, attempt: int, old: Doc, new: Doc, now: float) -> None:
    """Writes the note, or updates it if more is known by now."""
    diff = difference(attempt, old, new)
    if not diff:
        return
    notes, mark = tables.notes, f"{run.id}:{attempt}:change"
    text = f"Attempt {attempt} differs from attempt {attempt - 1}:\n\n```diff\n{diff}\n```"
    doc = {"attempt": attempt, "diff": diff}
    known = connection.execute(select(notes.c.id).where(notes.c.mark == mark)).scalar_one_or_none()
    if known is None:
        add(connection, notes, [note_row(run.project, run.id, now, SYSTEM, "change", text, doc, mark)])
    else:
        connection.execute(update(notes).where(notes.c.id == known).values(text=text, doc=dumps(doc)))


def difference(attempt: int, old: Doc, new: Doc) -> str:
    """A unified diff of what both attempts have reported so far; empty if nothing differs."""
    before, after = dict[str, str](), dict[str, str]()
    for space, one, other in (
        ("params", old.get("params") or {}, new.get("params") or {}),
        ("environment", _environment(old), _environment(new)),
    ):
        if not one or not other:
            continue  # one of them has reported nothing yet
        # A parameter that the new attempt has not reported may still come.
        keys = other if space == "params" else {**one, **other}
        before |= {f"{space}.{key}": one[key] for key in keys if key in one}
        after |= {f"{space}.{key}": other[key] for key in keys if key in other}
    for key in before.keys() & after.keys():
        if same_value(before[key], after[key]):
            after[key] = before[key]
    lines = difflib.unified_diff(
        _lines(before), _lines(after), f"attempt {attempt - 1}", f"attempt {attempt}", lineterm="", n=0
    )
    return "\n".join(lines)[:_DIFF_MAX]


def _environment(doc: Mapping[str, Any]) -> dict[str, str]:
    known = doc.get("environment") or {}
    devices = [one.get("name", "") if isinstance(one, Mapping) else str(one) for one in known.get("devices") or ()]
    found = flat({**known, "devices": devices})
    return {k: value for k, value in found.items() if k.startswith(_ENVIRONMENT) and not k.startswith(_PLACE)}


def _lines(values: Mapping[str, str]) -> list[str]:
    return [f"{key}: {value}" for key, value in sorted(values.items())]
