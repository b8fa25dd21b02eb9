"""The signature of an error: the same for the same traceback on another node, at another path or with other numbers."""

from __future__ import annotations

import hashlib
import re
from typing import Final, NamedTuple

FRAMES: Final = 6  # innermost frames that are compared
_TRACEBACK: Final = "Traceback (most recent call last):"
_FRAME: Final = re.compile(r'^\s*File "([^"]*)", line (\d+), in (.+)$', re.MULTILINE)
_END: Final = re.compile(r"^((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?::\s?(.*))?$")
_NUMBER: Final = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?")
_PATH: Final = re.compile(r"(?:/[\w.@+-]+){2,}")
_MESSAGE_MAX: Final = 200  # characters

# Errors that another attempt may not meet again: networks, collectives, accelerators.
_PASSING_TYPES: Final = re.compile(
    r"^(Connection\w*|BrokenPipe\w*|Timeout\w*|Interrupted\w*|Dist\w*Error|NCCLError|AcceleratorError|gaierror|herror"
    r"|\w*(Timeout|Disconnect|Unavailable)\w*)$"
)
_PASSING_TEXT: Final = re.compile(
    r"connection (was )?(reset|refused|closed|aborted|timed out)|timed out|timeout|broken pipe|network is unreachable"
    r"|no route to host|temporary failure in name resolution|host is down|stale file handle|input/output error"
    r"|\bnccl\b|\bgloo\b|\brccl\b|\bcuda error\b|\bhip error\b|\bcudnn\b|\bxid\b|uncorrectable ecc|unspecified launch"
    r"|transport endpoint|too many requests|service unavailable|\b50[234]\b",
    re.IGNORECASE,
)


class ErrorSignature(NamedTuple):
    digest: str
    error: str  # the type of the exception


def signature(detail: str) -> ErrorSignature | None:
    """The signature of the last traceback of an output; None without one, and for errors that may pass by themselves.

    Compared are the type of the exception, its message without numbers and paths, and the innermost frames by file
    name, line and function.
    """
    start = detail.rfind(_TRACEBACK)
    if start < 0:
        return None
    text = detail[start:]
    frames = _FRAME.findall(text)[-FRAMES:]
    ended = _end_of(text)
    if not frames or ended is None:
        return None
    kind, message = ended
    if _PASSING_TYPES.match(kind.rpartition(".")[2]) or _PASSING_TEXT.search(message):
        return None
    places = [f"{path.rpartition('/')[2]}:{line}:{function.strip()}" for path, line, function in frames]
    plain = _NUMBER.sub("#", _PATH.sub("/", message))[:_MESSAGE_MAX]
    compared = "\n".join([kind, plain, *places])
    return ErrorSignature(hashlib.sha256(compared.encode()).hexdigest()[:16], kind)


def _end_of(text: str) -> tuple[str, str] | None:
    """The type and the message of the exception: the first line after the frames that is not indented."""
    for line in text[max(found.end() for found in _FRAME.finditer(text)) :].splitlines() if _FRAME.search(text) else ():
        if line and not line[0].isspace() and (found := _END.match(line.rstrip())):
            return found[1], found[2] or ""
    return None
