"""Conversion of single values (duration, size, accelerators, number, name) between notation and canonical form."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Final

PRIORITIES: Final = {"low": 20, "normal": 50, "high": 75, "urgent": 95}
ANY_ACCELERATOR: Final = "GPU"
NAME_MAX: Final = 50


class InvalidValue(ValueError):
    """Text that does not fit its field; `hint` says what to do, "" stands for the field's usual hint."""

    def __init__(self, hint: str = "") -> None:
        super().__init__(hint)
        self.hint = hint


def parse_duration(text: str) -> float:
    """Seconds from `6h`, `1h30m`, `2:30:00` (H:M:S), `1-12:00:00` (D-H:M:S) or a plain number of seconds."""
    words = text.strip().lower()
    if len(words) > _LONGEST:
        raise InvalidValue
    if _NUMBER.fullmatch(words):
        return float(words)
    if _DURATION.fullmatch(words):
        parts = [(float(number), _SECONDS[unit]) for number, unit in _DURATION_PART.findall(words)]
        units = [unit for _, unit in parts]
        if units != sorted(set(units), reverse=True):
            raise InvalidValue("Write each unit once, the largest first, as in `1d6h30m`.")
        return sum(number * unit for number, unit in parts)
    if _TWO_PART_CLOCK.fullmatch(words):
        first, second = words.split(":")
        raise InvalidValue(f"`{words}` may be hours or minutes: write `{first}h{second}m` or `{first}m{second}s`.")
    return _clock(words)


def parse_duration_or_auto(text: str) -> float | str:
    """Like `parse_duration`, or "auto"."""
    return "auto" if text.strip().lower() == "auto" else parse_duration(text)


def format_duration(seconds: float) -> str:
    """The shortest text in d, h, m and s that `parse_duration` converts to exactly these seconds."""
    if seconds != int(seconds) or seconds >= _EXACT_SECONDS:
        return f"{float(seconds)!r}s"
    left, words = int(seconds), ""
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, length)
        words += f"{count}{unit}" if count else ""
    return words or "0s"


def parse_size(text: str) -> int:
    """Bytes from `64GB` or `64G` (10^9) and `64GiB` or `64Gi` (2^30).

    A unit is needed: a bare 64 is bytes to Kubernetes, megabytes to Slurm and gigabytes to SkyPilot.
    """
    words = text.strip()
    match = _SIZE.fullmatch(words.lower())
    if not match:
        raise InvalidValue
    number, unit = match.groups()
    if not unit:
        raise InvalidValue(f"Say the unit: `{words}GB` (10^9 bytes) or `{words}GiB` (2^30 bytes).")
    return int(Decimal(number) * _BYTES[unit])


def format_size(size: int) -> str:
    """The shortest text that `parse_size` converts to exactly these bytes; on a tie a decimal unit is used."""
    exact = [f"{size // scale}{unit}" for unit, scale in _SIZE_UNITS if size % scale == 0]
    return min(exact, key=len)


def parse_accelerators(text: str) -> tuple[str, int, int]:
    """Kind, in upper case, count, and thousandths of each from `H100:8`, `H100` (one), `8` (of any kind) or `H100:0.5`.

    ("", 0, 1000) for `0`.
    """
    match = _ACCELERATORS.fullmatch(text.strip())
    if not match:
        raise InvalidValue
    bare, kind, count = match.groups()
    if not bare and not count and (times := _TIMES.fullmatch(kind)):
        raise InvalidValue(f"Write `{times[1].upper()}:{times[2]}`.")
    number, share = _whole_or_part(bare or count or "1")
    return (kind.upper() if kind else ANY_ACCELERATOR, number, share) if number else ("", 0, 1000)


def format_accelerators(kind: str, count: int, share: int = 1000) -> str:
    amount = str(count) if share == 1000 else f"{count * share / 1000:g}"
    return f"{kind or ANY_ACCELERATOR}:{amount}"


def parse_integer(text: str) -> int:
    """A whole number. `2.0` is accepted because other programs write it."""
    match = _INTEGER.fullmatch(text.strip())
    if not match:
        raise InvalidValue
    return int(match[1])


def parse_number(text: str) -> float:
    if len(text) > _LONGEST or not _NUMBER.fullmatch(text.strip().lower()):
        raise InvalidValue
    return float(text)


def format_number(number: float) -> int | float:
    """The number for people, without `.0`."""
    return int(number) if number == int(number) else number


def parse_flag(text: str) -> bool:
    """Also accepts `yes`, `no`, `on` and `off`, which are common because of YAML 1.1."""
    try:
        return _FLAGS[text.strip().lower()]
    except KeyError:
        raise InvalidValue from None


def parse_priority(text: str) -> int:
    named = PRIORITIES.get(text.strip().lower())
    return parse_integer(text) if named is None else named


def by_priority(table: Mapping[str, str], priority: int) -> str:
    """The table maps a minimum priority, by name or number, to a value: the value of the highest one reached, or ""."""
    levels = {parse_priority(level): found for level, found in table.items()}
    reached = [level for level in levels if level <= priority]
    return levels[max(reached)] if reached else ""


def format_priority(priority: int) -> str | int:
    return next((name for name, value in PRIORITIES.items() if value == priority), priority)


def mended_name(text: str) -> str:
    """The closest valid job name: `My_Run 2` becomes `my-run-2`."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if not name or not name[0].isalpha():
        name = f"job-{name}"
    return name[:NAME_MAX].strip("-")


def name_from_command(run: str) -> str:
    """A job name from its command: the script or module (`train` for `python train.py`), or else the program."""
    lines = [line.strip() for line in run[:_NAMING].splitlines()]
    commands = [line for line in lines if line and not line.startswith(("#", "set ", "cd ", "export ", "source "))]
    for words in map(_shell_words, commands):
        scripts = [word for word in words if PurePosixPath(word).suffix in (".py", ".sh", ".ipynb")]
        if scripts:
            return mended_name(PurePosixPath(scripts[0]).stem)
        if "-m" in words[:-1]:
            return mended_name(words[words.index("-m") + 1].rpartition(".")[2])
    programs = [word for words in map(_shell_words, commands) for word in words if "=" not in word]
    return mended_name(PurePosixPath(programs[0]).name) if programs else "job"


def _whole_or_part(text: str) -> tuple[int, int]:
    """The count, and thousandths of each: (8, 1000) for `8` and (1, 500) for `0.5`."""
    thousandths = Decimal(text) * 1000
    if thousandths % 1000 == 0:
        return int(thousandths) // 1000, 1000
    if thousandths > 1000:
        raise InvalidValue(
            "Only one accelerator can be shared: ask for a part of one, as in `H100:0.5`, or for whole ones."
        )
    if thousandths % 1:
        raise InvalidValue("An accelerator is shared in thousandths: write at most three digits after the point.")
    return 1, int(thousandths)


def _clock(words: str) -> float:
    match = _CLOCK.fullmatch(words)
    if not match:
        raise InvalidValue
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    if minutes > 59 or seconds > 59 or (match[1] and hours > 23):
        raise InvalidValue("In H:M:S and D-H:M:S, minutes and seconds stay under 60, and hours under 24 after days.")
    return float(days * 86400 + hours * 3600 + minutes * 60 + seconds)


def _shell_words(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:  # an open quote: the shell will report it, and a name can still be found
        return line.split()


_LONGEST: Final = 64  # maximum characters of a number or duration; more is a mistake, and expensive to parse
_NAMING: Final = 2000  # characters of a command that are searched for its name
_EXACT_SECONDS: Final = 10**12  # below this, days to seconds add up without rounding in a float
_DIGITS: Final = r"[0-9]+(?:\.[0-9]+)?"
_NUMBER: Final = re.compile(rf"[+-]?(?:{_DIGITS}|\.[0-9]+|[0-9]+\.)(?:e[+-]?[0-9]+)?")
_INTEGER: Final = re.compile(r"([+-]?(?:0|[1-9][0-9]{0,17}))(?:\.0*)?")
_FLAGS: Final = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_SECONDS: Final[dict[str, float]] = {
    **dict.fromkeys(("w", "week", "weeks"), 604800),
    **dict.fromkeys(("d", "day", "days"), 86400),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1),
    "ms": 0.001,
}
_UNIT: Final = "|".join(sorted(_SECONDS, key=len, reverse=True))
_DURATION_PART: Final = re.compile(rf"({_DIGITS}(?:e[+-]?[0-9]+)?)\s*({_UNIT})(?![a-z])\s*")
_DURATION: Final = re.compile(rf"(?:{_DURATION_PART.pattern})+")
_CLOCK: Final = re.compile(
    r"(?:([0-9]{1,5})-(?=[0-9]{1,2}(?::[0-9]{1,2}){0,2}$)|(?=[0-9]+:[0-9]+:))"
    r"([0-9]{1,6})(?::([0-9]{1,2})(?::([0-9]{1,2}))?)?"
)
_TWO_PART_CLOCK: Final = re.compile(r"[0-9]{1,6}:[0-9]{1,2}")
# Printed forms, decimal first so that it is used on a tie; every other spelling is accepted as input.
_SIZE_UNITS: Final = [
    ("B", 1),
    *((f"{letter}B", 1000**power) for power, letter in enumerate("KMGTP", start=1)),
    *((f"{letter}iB", 1024**power) for power, letter in enumerate("KMGTP", start=1)),
]
_BYTES: Final = {
    spelling: scale for unit, scale in _SIZE_UNITS for spelling in {unit.lower(), unit.lower().removesuffix("b")} - {""}
}
_SIZE: Final = re.compile(rf"([0-9]{{1,24}}(?:\.[0-9]{{1,12}})?)\s*({'|'.join(sorted(_BYTES, key=len))})?")
_COUNT: Final = r"([0-9]{1,6}(?:\.[0-9]{1,9})?)"
_ACCELERATORS: Final = re.compile(rf"(?:{_COUNT}|([A-Za-z][A-Za-z0-9._-]{{0,63}})(?::{_COUNT})?)")
# `H100x8`, `L40Sx8`, `A100-80GBx8` and `GPUx8`, but not `RTX4090`: a digit, or a digit and a suffix, precedes the x.
_TIMES: Final = re.compile(r"(.*[0-9](?:[A-Z]|GB)?|GPU)X([0-9]{1,4})", re.IGNORECASE)
