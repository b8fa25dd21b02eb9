"""Removes control sequences from text before it goes to a terminal: the text may come from another user.

A name, a note or a tag is only text. A rank's output may set colours, but not move the cursor, set a title, fill the
clipboard or reverse the order of letters. Files and other programs get everything as it was written.
"""

from __future__ import annotations

import re
import sys
from typing import Final, Protocol, TextIO

# ASCII control characters except tab and line feed, those of Latin-1, and those that change the writing direction.
_CONTROLS: Final = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_CONTROL: Final = re.compile(f"[{_CONTROLS}]")
_COLOUR: Final = re.compile(r"(\x1b\[[0-9;:]*m)")
_SEQUENCE: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI: the cursor, the screen, modes
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # OSC, DCS and the like
    r"|\x1b[ -/]*[0-~]?"
)


def plain(text: str) -> str:
    """The text without control characters; the rest of a control sequence stays readable."""
    return _CONTROL.sub("", text)


def colours_only(text: str) -> str:
    """A line of output with its colours, and without any other control sequence."""
    parts = _COLOUR.split(text)  # text and colours alternate
    return "".join(part if number % 2 else plain(_SEQUENCE.sub("", part)) for number, part in enumerate(parts))


class Writer(Protocol):
    """What `csv.writer` and similar functions write to."""

    def write(self, text: str, /) -> int: ...


class _Plain:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str, /) -> int:
        return self._stream.write(plain(text))


def stdout() -> Writer:
    """Standard output for a document, unchanged; without control characters if it is a terminal."""
    return _Plain(sys.stdout) if sys.stdout.isatty() else sys.stdout
