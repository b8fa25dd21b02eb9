"""A search in a job's output."""

from muster.api.typed import TypedDict


class LogMatch(TypedDict):
    """A line that was found, with lines of the same rank around it. Escape sequences are left out, long lines cut."""

    id: int  # of the chunk in which the line begins
    attempt: int
    rank: int
    offset: int  # of the line, in bytes of the rank's output
    time: float | None  # when it was written; null: not known
    before: list[str]
    text: str
    spans: list[tuple[int, int]]  # of `text`, what matches: where it begins and ends, in characters
    after: list[str]


class LogMatches(TypedDict):
    """In the order of attempts, and within one in the order of arrival."""

    matches: list[LogMatch]
    next: str | None  # pass it as `after` to go on; null: everything was searched
    searched: int  # bytes that this answer looked at
    total: int  # bytes of the attempts and ranks that were asked for
