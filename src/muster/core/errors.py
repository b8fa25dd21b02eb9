"""Every error that Muster raises to a user.

MusterError                 what happened, and what to do
├── SpecError               a job or policy file with mistakes, all reported at once
├── Refused                 a well-formed job that is not accepted, with the reasons
├── NotFound                a job, queue, project or token that does not exist
├── Unauthenticated         no token, or one that is not valid
├── NotAllowed              a token whose role is too low
├── Invalid                 a request that is not valid in the current state
├── Conflict                another request changed the state first
│   └── NotStarted          a job, or one of its workers, that is about to run: wait and retry
├── TooMany                 the caller's share of the server is in use: wait and retry
├── Unavailable             not available now: no leader, a full disk, a server that can't be reached
├── RecordFailed            the database refused a write to the record
├── EngineError             the engine refused or failed
└── ConfigError             a setting, a file or an installation that must be fixed
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from muster.core.reasons import Reason

if TYPE_CHECKING:  # the client loads this module, and `typing_extensions` costs more than all of it
    from muster.api.errors import ErrorView, ProblemView


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a file: where, what was given, what was expected, how to fix it."""

    where: str
    given: str
    expected: str
    hint: str

    def to_dict(self) -> ProblemView:
        return {"where": self.where, "given": self.given, "expected": self.expected, "hint": self.hint}

    def __str__(self) -> str:
        return f"{self.where}: got {self.given}, expected {self.expected}. {self.hint}"


class MusterError(Exception):
    """The base class. `code` is stable, for programs; `message` and `hint` are for people."""

    code = "error"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def to_dict(self) -> ErrorView:
        return {"code": self.code, "message": self.message, "hint": self.hint}

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


class SpecError(MusterError):
    code = "bad_spec"

    def __init__(
        self, problems: list[Problem], source: str = "the job", hint: str = "Mend each and submit again."
    ) -> None:
        count = "one mistake" if len(problems) == 1 else f"{len(problems)} mistakes"
        super().__init__(f"{source} has {count}.", hint)
        self.problems = problems

    def to_dict(self) -> ErrorView:
        return {**super().to_dict(), "problems": [p.to_dict() for p in self.problems]}

    def __str__(self) -> str:
        return "\n".join([self.message, *(f"  - {p}" for p in self.problems)])


class Refused(MusterError):
    code = "refused"

    def __init__(self, reasons: list[Reason]) -> None:
        super().__init__("; ".join(r.message for r in reasons), " ".join(r.hint for r in reasons if r.hint))
        self.reasons = reasons

    def to_dict(self) -> ErrorView:
        return {**super().to_dict(), "reasons": [r.to_dict() for r in self.reasons]}

    def __str__(self) -> str:
        if len(self.reasons) < 2:
            return super().__str__()
        told = (f"  - {r.message}. {r.hint}".rstrip() for r in self.reasons)
        return "\n".join([f"Refused for {len(self.reasons)} reasons.", *told])


class NotFound(MusterError):
    code = "not_found"


class Unauthenticated(MusterError):
    code = "unauthenticated"


class NotAllowed(MusterError):
    code = "not_allowed"


class Invalid(MusterError):
    code = "invalid"


class Conflict(MusterError):
    code = "conflict"


class NotStarted(Conflict):
    code = "not_started"


class TooMany(MusterError):
    code = "too_many"


class Unavailable(MusterError):
    code = "unavailable"


class RecordFailed(MusterError):
    code = "record_failed"


class EngineError(MusterError):
    code = "engine_error"


class ConfigError(MusterError):
    code = "config_error"
