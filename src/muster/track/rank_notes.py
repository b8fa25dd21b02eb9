"""Notes that ranks write: stored once, even if every rank of a gang writes the same note."""

from __future__ import annotations

import hashlib

from sqlalchemy import Connection, select, update

from muster.core.event import SYSTEM
from muster.store import record_tables as tables
from muster.store.codec import dumps, loads
from muster.store.insert import add
from muster.track.rows import Run, note_row


def add_rank_note(
    connection: Connection, run: Run, attempt: int, rank: int, time: float, text: str, system: bool = False
) -> None:
    """Adds a note. Ranks that write the same text in an attempt share one note, of the lowest rank.

    If one rank repeats the text, that is another note. `system`: the note of the runtime, which is not repeated.
    """
    notes = tables.notes
    mark = f"{run.id}:{attempt}:{hashlib.sha256(text.encode()).hexdigest()[:32]}"
    doc = {"attempt": attempt, "rank": rank}
    author, kind = (SYSTEM, "system") if system else (run.user, "note")
    known = connection.execute(select(notes.c.id, notes.c.doc).where(notes.c.mark == mark)).one_or_none()
    if known is None:
        add(connection, notes, [note_row(run.project, run.id, time, author, kind, text, doc, mark)])
        return
    other = loads(known.doc).get("rank", rank)
    if other == rank and not system:
        add(connection, notes, [note_row(run.project, run.id, time, author, kind, text, doc)])
    elif rank < other:
        connection.execute(update(notes).where(notes.c.id == known.id).values(time=time, doc=dumps(doc)))
