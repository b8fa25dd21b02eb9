"""Errors in a query: the position in the text, what was expected there, and a suggestion."""

from __future__ import annotations

from muster.core.errors import Invalid

_WINDOW = 60  # characters of a long query that are shown before and after the error


class QueryError(Invalid):
    """`start` and `end` are positions in `text`; the message marks them."""

    def __init__(self, text: str, start: int, end: int, what: str, hint: str) -> None:
        super().__init__(f"The query can't be read: {what}\n{pointer(text, start, end)}", hint)
        self.start, self.end = start, end


def pointer(text: str, start: int, end: int) -> str:
    """The text, or the part around the position, with carets under the position."""
    first, last = max(0, start - _WINDOW), min(len(text), end + _WINDOW)
    before = "..." if first else ""
    after = "..." if last < len(text) else ""
    # A line break or tab would displace the carets.
    line = "".join(letter if letter.isprintable() else " " for letter in text[first:last])
    width = max(1, min(end, last) - start)
    return f"  {before}{line}{after}\n  {' ' * (len(before) + start - first)}{'^' * width}"
