"""Lines of a job's output with the lines around them, as text that can be shown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import re2

from muster.api.logs import LogMatch
from muster.core.errors import Invalid
from muster.server.log_search import Line
from muster.store.base import LogChunk, Store

LONGEST: Final = 2000  # characters of a line that are shown
_LEAD: Final = 200  # characters before what was found, where the line is longer
_MEMORY: Final = 8 << 20  # bytes of a pattern and its states
_READ: Final = 64 << 10  # bytes at once
_FARTHEST: Final = 1 << 20  # bytes that are read on either side
# Colours and other sequences of terminals.
_ESCAPES: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])|[\x00-\x08\x0b-\x1f]"
)


def compiled(text: str | None, regex: str | None, case: bool) -> Any:
    """The pattern of a search; RE2 takes time linear in what it searches. Raises Invalid."""
    if (not text) == (not regex):
        raise Invalid("A search has either `text` or `regex`.", "Give one of the two.")
    options = re2.Options()
    options.max_mem, options.log_errors, options.never_nl, options.case_sensitive = _MEMORY, False, True, case
    try:
        made = re2.compile((re2.escape(text) if text else f"(?m){regex}").encode(), options)
    except re2.error as error:
        said = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error)
        raise Invalid(f"The pattern is not valid: {said}.", "Write it as for RE2 or `grep -E`.") from None
    finally:
        re2.purge()
    return made


class Context:
    """Shows lines of one job with `lines` of the same rank before and after each."""

    def __init__(self, store: Store, job: str, pattern: Any, lines: int) -> None:
        self._store, self._job, self._pattern, self._lines = store, job, pattern, lines

    def show(self, line: Line) -> LogMatch:
        before = self._beside(line, last=True)
        after = self._beside(line, last=False)
        data = b"".join(chunk.data for chunk in (*before, line.chunk, *after))
        begin = line.offset - (before[0] if before else line.chunk).offset
        end = data.find(b"\n", begin)
        own, rest = (data[begin:end], data[end + 1 :]) if end >= 0 else (data[begin:], b"")
        text, spans = shown(own, self._pattern)
        return {
            "id": line.chunk.id,
            "attempt": line.attempt,
            "rank": line.chunk.rank,
            "offset": line.offset,
            "time": line.chunk.time,
            "before": [shown(one)[0] for one in data[:begin].split(b"\n")[-1 - self._lines : -1]],
            "text": text,
            "spans": spans,
            "after": [shown(one)[0] for one in rest.removesuffix(b"\n").split(b"\n")[: self._lines] if rest],
        }

    def _beside(self, line: Line, last: bool) -> Sequence[LogChunk]:
        """The adjacent chunks of the rank that have enough lines, in the order of arrival."""
        own, place = line.chunk, line.offset - line.chunk.offset
        missing = self._lines + 1 - (own.data[:place] if last else own.data[place:]).count(b"\n")
        edge, size, found = own, 0, list[LogChunk]()
        while missing > 0 and size < _FARTHEST:
            after, before = (0, edge.id) if last else (edge.id, None)
            page = self._store.logs(
                self._job, line.attempt, own.rank, after, 16, before=before, most=_READ, last=last
            )  # fmt: skip
            for chunk in page:
                if (edge.offset if last else chunk.offset) != (chunk.end if last else edge.end):
                    return found  # output is missing there
                found.insert(0 if last else len(found), chunk)
                edge, size, missing = chunk, size + len(chunk.data), missing - chunk.data.count(b"\n")
            if not page:
                break
        return found


def shown(line: bytes, pattern: Any = None) -> tuple[str, list[tuple[int, int]]]:
    """A line as a terminal leaves it, and where the pattern matches in it."""
    parts = [part for part in line.rstrip(b"\r").split(b"\r") if part] or [b""]
    matching = (part for part in reversed(parts) if pattern is not None and pattern.search(part) is not None)
    text = _ESCAPES.sub("", next(matching, parts[-1]).decode(errors="replace"))
    spans = _spans(text, pattern) if pattern is not None else []
    if len(text) <= LONGEST:
        return text, spans
    begin = max(0, min(spans[0][0] - _LEAD, len(text) - LONGEST)) if spans else 0
    end = begin + LONGEST
    return text[begin:end], [(max(a, begin) - begin, min(b, end) - begin) for a, b in spans if a < end and b > begin]


def _spans(text: str, pattern: Any) -> list[tuple[int, int]]:
    data, found = text.encode(), list[tuple[int, int]]()
    for match in pattern.finditer(data):
        begin = len(data[: match.start()].decode(errors="replace"))
        if match.end() > match.start():
            found.append((begin, begin + len(data[match.start() : match.end()].decode(errors="replace"))))
        if len(found) == 100:
            break
    return found
