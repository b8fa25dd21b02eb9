"""The shape of every error."""

from muster.api.typed import NotRequired, TypedDict
from muster.api.why import ReasonView


class ProblemView(TypedDict):
    """One mistake in a file or a request."""

    where: str
    given: str
    expected: str
    hint: str


class ErrorView(TypedDict):
    """What went wrong. `code` is stable, for programs; `message` and `hint` are for people."""

    code: str
    message: str
    hint: str
    problems: NotRequired[list[ProblemView]]  # of a file or a request with mistakes
    reasons: NotRequired[list[ReasonView]]  # of a job that was refused


class ErrorAnswer(TypedDict):
    error: ErrorView
