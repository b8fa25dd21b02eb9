"""Errors in MLflow's format: a code, a message, and the class by which dashboards group them."""

from __future__ import annotations

import json
from typing import Final

from muster.core.errors import (
    Conflict,
    Invalid,
    MusterError,
    NotAllowed,
    NotFound,
    Refused,
    SpecError,
    Unauthenticated,
    Unavailable,
)

STATUS: Final = {
    "INTERNAL_ERROR": 500,
    "INVALID_STATE": 500,
    "NOT_IMPLEMENTED": 501,
    "TEMPORARILY_UNAVAILABLE": 503,
    "RESOURCE_CONFLICT": 409,
    "ENDPOINT_NOT_FOUND": 404,
    "RESOURCE_DOES_NOT_EXIST": 404,
    "PERMISSION_DENIED": 403,
    "UNAUTHENTICATED": 401,
    "BAD_REQUEST": 400,
    "RESOURCE_ALREADY_EXISTS": 400,
    "INVALID_PARAMETER_VALUE": 400,
}
_USER: Final = "KAM00"  # the caller's mistake
_OURS: Final = "XXM00"
_CLASSES: Final = {
    "BAD_REQUEST": (_USER, "INVALID_PARAMETER_VALUE"),
    "ENDPOINT_NOT_FOUND": (_USER, "RESOURCE_NOT_FOUND"),
    "INTERNAL_ERROR": (_OURS, "CLIENT_INTERNAL_ERROR"),
    "INVALID_PARAMETER_VALUE": (_USER, "INVALID_PARAMETER_VALUE"),
    "INVALID_STATE": (_OURS, "CLIENT_INTERNAL_ERROR"),
    "PERMISSION_DENIED": (_USER, "PERMISSION_DENIED"),
    "RESOURCE_ALREADY_EXISTS": (_USER, "RESOURCE_ALREADY_EXISTS"),
    "RESOURCE_DOES_NOT_EXIST": (_USER, "RESOURCE_NOT_FOUND"),
    "TEMPORARILY_UNAVAILABLE": (_OURS, "CLIENT_INTERNAL_ERROR"),
}
_OF_MUSTER: Final[dict[type[MusterError], str]] = {
    NotFound: "RESOURCE_DOES_NOT_EXIST",
    NotAllowed: "PERMISSION_DENIED",
    Unauthenticated: "UNAUTHENTICATED",
    Invalid: "INVALID_PARAMETER_VALUE",
    SpecError: "INVALID_PARAMETER_VALUE",
    Refused: "INVALID_PARAMETER_VALUE",
    Conflict: "RESOURCE_ALREADY_EXISTS",
    Unavailable: "TEMPORARILY_UNAVAILABLE",
}


class Fault(Exception):
    """An error for an MLflow client: one of MLflow's error codes, and a message."""

    def __init__(self, message: str, code: str = "INVALID_PARAMETER_VALUE") -> None:
        super().__init__(message)
        self.message, self.code = message, code

    @property
    def status(self) -> int:
        return STATUS.get(self.code, 500)

    def to_json(self) -> bytes:
        body = {"error_code": self.code, "message": self.message}
        if self.code in _CLASSES:
            body["sqlstate"], body["error_class"] = _CLASSES[self.code]
        return json.dumps(body).encode()


def missing(message: str) -> Fault:
    return Fault(message, "RESOURCE_DOES_NOT_EXIST")


def fault_of(error: MusterError) -> Fault:
    """A Muster error as an MLflow error."""
    return Fault(str(error), _OF_MUSTER.get(type(error), "INTERNAL_ERROR"))
