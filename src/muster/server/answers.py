"""The HTTP form of errors: a status, and {error: {code, message, hint}}."""

from __future__ import annotations

from typing import Final

from fastapi.responses import JSONResponse

from muster.api.errors import ErrorView
from muster.core.errors import (
    ConfigError,
    Conflict,
    EngineError,
    Invalid,
    MusterError,
    NotAllowed,
    NotFound,
    NotStarted,
    RecordFailed,
    Refused,
    SpecError,
    TooMany,
    Unauthenticated,
    Unavailable,
)

STATUS: Final[dict[type[MusterError], int]] = {
    SpecError: 422,
    Refused: 409,
    NotFound: 404,
    Unauthenticated: 401,
    NotAllowed: 403,
    Invalid: 400,
    Conflict: 409,
    NotStarted: 409,
    TooMany: 429,
    Unavailable: 503,
    RecordFailed: 500,
    EngineError: 502,
    ConfigError: 500,
}
_HEADERS: Final = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "1"}, 503: {"Retry-After": "1"}}


def answer(status: int, body: ErrorView, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": body}, status, headers)


def error_answer(error: MusterError) -> JSONResponse:
    status = STATUS.get(type(error), 400)
    return answer(status, error.to_dict(), _HEADERS.get(status))
