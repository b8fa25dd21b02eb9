"""The signature of an error: the same for the same traceback on another node, at another path or with other numbers."""

from __future__ import annotations

import hashlib
import re
from typing import Final, NamedTuple

FRAMES: Final = 6  # innermost frames that are compared
_TRACEBACK: Final = "Traceback (most recent call last):"
_RANK: Final = re.compile(r"^\[rank\d+\]: ?", re.MULTILINE)  # torch.distributed puts it before each line
_FRAME: Final = re.compile(r'^\s+File "([^"]*)", line (\d+), in (.+)$', re.MULTILINE)
_END: Final = re.compile(r"^((?:(?:[^\W\d]\w*|<locals>)\.)*[^\W\d]\w*)(?::(?:[ \t](.*))?)?$", re.MULTILINE)
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
    ended = _last_exception(detail)
    if ended is None:
        return None
    kind, message, frames = ended
    if _PASSING_TYPES.match(kind.rpartition(".")[2]) or _PASSING_TEXT.search(message):
        return None
    places = [f"{path.rpartition('/')[2]}:{line}:{function.strip()}" for path, line, function in frames[-FRAMES:]]
    plain = _NUMBER.sub("#", _PATH.sub("/", message))[:_MESSAGE_MAX]
    compared = "\n".join([kind, plain, *places])
    return ErrorSignature(hashlib.sha256(compared.encode()).hexdigest()[:16], kind)


def exception_line(detail: str) -> str:
    """The type and the first line of the message of the last traceback's exception; empty without one."""
    ended = _last_exception(detail)
    return "" if ended is None else f"{ended.kind}: {ended.message}" if ended.message else ended.kind


class _Exception(NamedTuple):
    kind: str
    message: str  # its first line that is not empty
    frames: list[tuple[str, str, str]]  # file, line and function, the innermost last


def _last_exception(detail: str) -> _Exception | None:
    """The exception's line is the first after the frames, which are indented. Its message may have further lines, with
    frames in them too."""
    text = _RANK.sub("", detail[max(0, detail.rfind(_TRACEBACK)) :])
    found = _END.search(text, len(_TRACEBACK)) if text.startswith(_TRACEBACK) else None
    frames = _FRAME.findall(text, 0, found.start()) if found else []
    if found is None or not frames:
        return None
    message = (found[2] or "").strip()
    if not message and ":" in found[0]:
        message = next((line.strip() for line in text[found.end() :].splitlines() if line.strip()), "")
    return _Exception(found[1], message, frames)
