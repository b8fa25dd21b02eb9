"""What a check finds, and the report of a rung: for people as text, for programs as a mapping."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Status = Literal["ok", "failed", "not applicable", "unknown"]
Level = Literal["unit", "resume", "smoke", "failure", "canary"]
VERSION: Final = 1  # of the mapping
_MARKS: Final[Mapping[Status, str]] = {"ok": "ok", "failed": "FAILED", "not applicable": "-", "unknown": "unknown"}
_WIDTH: Final = 110  # characters of a line


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found. `detail` says it with numbers and names, `hint` what to change."""

    status: Status
    detail: str
    hint: str = ""
    numbers: Mapping[str, Any] = field(default_factory=dict)


def ok(detail: str, **numbers: Any) -> Finding:
    return Finding("ok", detail, "", numbers)


def failed(detail: str, hint: str, **numbers: Any) -> Finding:
    return Finding("failed", detail, hint, numbers)


def not_applicable(why: str, hint: str = "") -> Finding:
    """The check has nothing to look at in this program."""
    return Finding("not applicable", why, hint)


def unknown(why: str, hint: str = "", **numbers: Any) -> Finding:
    """The check applies, and what it saw does not decide it."""
    return Finding("unknown", why, hint, numbers)


@dataclass(frozen=True, slots=True)
class Result:
    """A check with what it found, and the seconds that it took."""

    rung: Level
    name: str
    proves: str  # one sentence
    finding: Finding
    seconds: float = 0.0

    @property
    def status(self) -> Status:
        return self.finding.status

    def to_dict(self) -> dict[str, Any]:
        found = self.finding
        return {
            "rung": self.rung, "name": self.name, "proves": self.proves, "status": found.status,
            "detail": found.detail, "hint": found.hint, "numbers": _finite(found.numbers),
            "seconds": round(self.seconds, 4),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Report:
    """The results of one rung, or of several. `about` is what was checked: versions, device, sizes."""

    program: str
    results: Sequence[Result]
    notes: Sequence[str] = ()  # what was changed for the checks, such as a smaller model
    about: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Everything that applies is ok."""
        return all(result.status in ("ok", "not applicable") for result in self.results)

    @property
    def exit_status(self) -> int:
        return 0 if self.passed else 1

    def of(self, name: str) -> Result:
        """The result of the check with this name."""
        return next(result for result in self.results if result.name == name)

    def named(self, status: Status) -> list[str]:
        """The names of the checks with this status."""
        return [result.name for result in self.results if result.status == status]

    def to_dict(self) -> dict[str, Any]:
        return {
            "version": VERSION, "program": self.program, "passed": self.passed, "notes": list(self.notes),
            "about": dict(self.about), "seconds": round(self.seconds, 3),
            "checks": [result.to_dict() for result in self.results],
        }  # fmt: skip

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=1, default=_plain)

    def __str__(self) -> str:
        return "\n".join([*self._head(), *(line for result in self.results for line in _lines(result)), self._sum()])

    def _head(self) -> list[str]:
        rungs = ", ".join(dict.fromkeys(result.rung for result in self.results))
        return [f"Preflight of {self.program}: {rungs}", *(f"  note: {note}" for note in self.notes)]

    def _sum(self) -> str:
        counts = {status: len(self.named(status)) for status in _MARKS}
        words = [f"{count} {status}" for status, count in counts.items() if count]
        verdict = "passed" if self.passed else "NOT passed"
        return f"{verdict}: {', '.join(words)}, in {self.seconds:.1f} s"


def document(reports: Sequence[Report]) -> dict[str, Any]:
    """What programs read: the reports of one or more rungs."""
    rungs: list[dict[str, Any]] = [json.loads(report.to_json()) for report in reports]
    return {"version": VERSION, "passed": all(report.passed for report in reports), "reports": rungs}


@dataclass(frozen=True, slots=True)
class Check:
    """A check of a subject. `needs` are checks without whose success it has nothing to say; `on_error` is what it says
    when the program raises an exception in it."""

    name: str
    proves: str
    run: Callable[[Any], Finding]
    needs: tuple[str, ...] = ()
    on_error: Status = "unknown"


def some(names: Sequence[str], most: int = 5) -> str:
    """Names in a sentence: the first few, and how many more there are."""
    listed = ", ".join(names[:most])
    return f"{listed} and {len(names) - most} more" if len(names) > most else listed


def _lines(result: Result) -> list[str]:
    found = result.finding
    first = f"  {_MARKS[found.status]:8}{result.name:15}"
    lines = textwrap.wrap(found.detail, _WIDTH, initial_indent=first, subsequent_indent=" " * 25) or [first]
    if found.hint and found.status in ("failed", "unknown"):
        lines += textwrap.wrap(found.hint, _WIDTH, initial_indent=" " * 25 + "→ ", subsequent_indent=" " * 27)
    return lines


def _plain(value: Any) -> Any:
    """NumPy's and torch's scalars as numbers; anything else as text."""
    return value.item() if hasattr(value, "item") else str(value)


def _finite(value: Any) -> Any:
    """For JSON, which has no NaN and no infinity: they become text."""
    if isinstance(value, Mapping):
        return {str(name): _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
