"""Turns error responses of the server into the exceptions that it raised."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from muster.core import errors
from muster.core.errors import MusterError, Problem, Refused, SpecError, Unavailable
from muster.core.reasons import Reason


def error_from(status: int, body: bytes, url: str) -> MusterError:
    """The exception for an error response."""
    try:
        return error_body(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        text = " ".join(body.decode(errors="replace")[:200].split()) or "nothing"
        return Unavailable(f"{url} answered HTTP {status}: {text}", "Is it a Muster server?")


def error_body(raw: Mapping[str, Any]) -> MusterError:
    """The exception that the server described, of the same class."""
    code, message, hint = str(raw["code"]), str(raw["message"]), str(raw.get("hint") or "")
    problems = [Problem(**problem) for problem in raw.get("problems") or ()]
    reasons = [Reason.of(reason) for reason in raw.get("reasons") or ()]
    if code == SpecError.code and problems:
        error: MusterError = SpecError(problems, hint=hint)
        error.message = message
        return error
    if code == Refused.code and reasons:
        return Refused(reasons)
    error = _CLASSES.get(code, MusterError)("\n".join([message, *(f"  - {one}" for one in problems)]), hint)
    error.code = code
    return error


_CLASSES: Final[dict[str, type[MusterError]]] = {
    kind.code: kind
    for kind in (
        errors.NotFound,
        errors.Unauthenticated,
        errors.NotAllowed,
        errors.Invalid,
        errors.Conflict,
        errors.NotStarted,
        errors.TooMany,
        errors.Unavailable,
        errors.EngineError,
        errors.ConfigError,
    )
}
