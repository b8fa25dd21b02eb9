"""What is wrong with a query: where it stands in the text, what was expected there, and what may have been meant."""

from __future__ import annotations

from muster.core.errors import Invalid

_WINDOW = 60  # characters of a long query that are shown before the mistake, and after it


class QueryError(Invalid):
    """`start` and `end` are places in `text`; the message shows them under it."""

    def __init__(self, text: str, start: int, end: int, what: str, hint: str) -> None:
        super().__init__(f"The query can't be read: {what}\n{pointer(text, start, end)}", hint)
        self.start, self.end = start, end


def pointer(text: str, start: int, end: int) -> str:
    """The text, or the part of it around the place, with carets under the place."""
    first, last = max(0, start - _WINDOW), min(len(text), end + _WINDOW)
    before = "..." if first else ""
    after = "..." if last < len(text) else ""
    # A line break or a tab would move the carets away from what they mean.
    line = "".join(letter if letter.isprintable() else " " for letter in text[first:last])
    width = max(1, min(end, last) - start)
    return f"  {before}{line}{after}\n  {' ' * (len(before) + start - first)}{'^' * width}"
