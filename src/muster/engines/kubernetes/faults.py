"""Classifies an API server's error: the gang is refused, it is held and retried, or the server is away."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, Literal

from muster.core.errors import EngineError
from muster.engines.kubernetes.client import KubeClient, KubeError
from muster.engines.remote import Held

ROLES: Final = "Bind the roles of deploy/base/access.yaml; docs/kubernetes.md lists the rights."
UNEXPLAINED: Final = "ServerError"  # for an error without a stated cause
Object = dict[str, Any]

# The message of an authorizer's denial. Admission plugins answer 403 as well, with other messages.
_RIGHT: Final = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<kind>[^"]*)"'
    r'(?: in API group "(?P<group>[^"]*)")?(?: in the namespace "(?P<namespace>[^"]*)")?'
)
# Server-side apply reports schema violations with status 500 and no reason.
_SCHEMA: Final = re.compile(r"failed to (create typed patch object|convert new object|convert patch object) \(")
_NO_NAMESPACE: Final = re.compile(r'namespaces "[^"]*" not found')
_AWAY: Final = (401, 429, 502, 503)
_LATER: Final = (408, 409, 504)


@dataclass(frozen=True, slots=True)
class Fault:
    kind: Literal["refused", "held", "away"]
    message: str
    code: str = ""  # for a held gang
    hint: str = ""
    own: bool = False  # the engine's fault, not the job's

    def as_held(self) -> Held:
        return Held(self.code, self.message, self.hint, self.own)


def fault_of(error: EngineError) -> Fault | None:
    """Classifies an error by the answer alone; None if the answer does not tell."""
    if not isinstance(error, KubeError) or error.status in _AWAY:
        return Fault("away", error.message)
    if error.status == 403:
        return _forbidden(error)
    if error.status in _LATER:
        return Fault("held", error.message, error.reason or "Conflict")
    if error.status == 404 and _NO_NAMESPACE.search(error.message):
        return Fault("held", error.message, "NoNamespace", "Have the namespace made: `kubectl create namespace`.", True)
    if error.status < 500:
        return Fault("refused", f"{error.message} {error.hint}".strip())
    if "failed calling webhook" in error.message:
        hint = "See the webhook's own pods. It is tried again by itself, and others go on."
        return Fault("held", error.message, "WebhookDown", hint)
    if _SCHEMA.search(error.message):
        return Fault("refused", error.message)
    return None


def examine(client: KubeClient, body: Object, error: EngineError) -> Fault:
    """Like `fault_of`. If the answer does not tell, tries the same object in a dry run,
    and asks the server whether it is ready."""
    known = fault_of(error)
    if known is not None:
        return known
    try:
        client.create_dry(body)
        return Fault("held", error.message, UNEXPLAINED)
    except EngineError as second:
        fault = fault_of(second)
        if fault is not None and "does not support dry run" not in second.message:
            return fault if fault.code != "AlreadyExists" else Fault("held", error.message, UNEXPLAINED)
    try:
        ready = client.is_ready()
    except EngineError as third:
        return Fault("away", third.message)
    return Fault("held", error.message, UNEXPLAINED) if ready else Fault("away", error.message)


def _forbidden(error: KubeError) -> Fault:
    if found := _RIGHT.search(error.message):
        kind = f"{found['kind']}.{found['group']}" if found["group"] else found["kind"]
        where = f" in the namespace {found['namespace']}" if found["namespace"] else ""
        return Fault("held", f"{found['user']} may not {found['verb']} {kind}{where}", "MissingRight", ROLES, True)
    if "exceeded quota" in error.message or "status unknown for quota" in error.message:
        hint = "Wait until what counts towards the quota has gone, or have it raised."
        return Fault("held", error.message, "ExceededQuota", hint)
    if "not yet ready to handle request" in error.message:
        return Fault("held", error.message, "NotReady")
    if "because it is being terminated" in error.message:
        return Fault("held", error.message, "NamespaceTerminating", "Have the namespace made again.", True)
    return Fault("refused", error.message)
