"""The logbook of a run and of a project."""

from muster.api.typed import Doc, TypedDict
from muster.api.words import NoteKind


class NoteView(TypedDict):
    id: int
    project: str
    run: str  # empty: a note on the project
    time: float
    author: str
    kind: NoteKind
    text: str  # Markdown
    doc: Doc  # attachments, step, attempt, diff, reason
    mark: str | None


class NotePage(TypedDict):
    entries: list[NoteView]
    next: int | None  # pass it as `after` for the next page


class RunNotes(NotePage):
    run: str


class ProjectNotes(NotePage):
    project: str
