"""Encodes values as text and bytes for a store, and decodes them."""

from __future__ import annotations

import json
from typing import Any, Final

from isal import isal_zlib
from pydantic_core import PydanticSerializationError, from_json, to_json

from muster.core.entities import ENTITIES
from muster.core.errors import ConfigError, Invalid
from muster.core.job import Attempt, Job
from muster.core.payload import Payload, decode
from muster.core.spec import JobSpec
from muster.core.state import State

_WORTH_PACKING: Final = 128  # bytes; for less, zlib costs time and saves nothing
_JOB_FIELDS: Final = (
    "id", "number", "project", "queue", "user", "submitted_at", "phase", "since", "reason", "key", "started_at",
    "finished_at", "attempt", "charges", "not_before", "stop", "checkpoint", "ran", "expect",
    "waited", "claim", "code", "trusted", "needs", "awaits",
    "index", "outcomes", "repair", "since_attempt", "resume_step", "spent", "relaunch", "new_priority", "reserved",
    "start", "new_pool", "study_left", "study_ran",
)  # fmt: skip


def dumps(value: Any) -> str:
    """Compact JSON; encodes dataclasses directly, without copying them first."""
    return to_json(value).decode()


def loads(text: str | bytes) -> Any:
    return from_json(text)


def seal(data: Payload) -> tuple[Payload, str]:
    """An event's payload and its JSON. What UTF-8 can't encode (half a surrogate pair) becomes `?` in both."""
    doc = data.to_log()
    try:
        return data, to_json(doc).decode()
    except PydanticSerializationError:
        text = _replaced(doc)
        return decode(data.KIND, from_json(text)), text


def seal_values(values: dict[str, Any]) -> dict[str, str]:
    """The JSON of each value, with the same replacement in names and values."""
    try:
        to_json(values)
    except PydanticSerializationError:
        values = from_json(_replaced(values))
    return {key: dumps(value) for key, value in values.items()}


def payload_from(kind: str, text: str) -> Payload:
    """Inverse of `seal`."""
    return decode(kind, from_json(text))


def check_text(*values: str | None) -> None:
    """Rejects what a text column can't hold: PostgreSQL stores no NUL, and no store half a surrogate pair."""
    for value in values:
        if value and ("\0" in value or not (value.isascii() or _encodes(value))):
            raise Invalid(
                f"The text {value!r} can't be stored: it holds a NUL or half a surrogate pair.",
                "Use valid Unicode text without NUL characters.",
            )


def storable(value: str) -> str:
    """The text with `?` for half a surrogate pair and U+FFFD for NUL: an error may quote either."""
    return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def job_text(job: Job) -> str:
    """`Job.to_doc` as JSON, several times faster than calling it."""
    return to_json({name: getattr(job, name) for name in _JOB_FIELDS}).decode()


def job_from(spec: str, doc: str) -> Job:
    return Job.from_doc(from_json(doc), spec_from(spec))


def spec_from(text: str) -> JobSpec:
    """The spec. Values equal to defaults are dropped first: so all specs share one copy and use half the memory."""
    raw = from_json(text)
    for name, default in _DEFAULTS:
        if name in raw and raw[name] == default:
            del raw[name]
    return JobSpec.model_validate(raw)


def attempt_from(doc: str) -> Attempt:
    return Attempt.from_doc(from_json(doc))


def entity_text(kind: str, entity: object) -> str:
    return dumps(ENTITIES[kind].encode(entity))


def load_entity(state: State, kind: str, name: str, doc: str) -> None:
    """Adds the entity of one row to the state."""
    type_ = ENTITIES.get(kind)
    if type_ is None:
        raise ConfigError(
            f"The database has entities of the kind {kind!r}, which this version of Muster does not know.",
            "Use the version of Muster that last used it, or a newer one.",
        )
    type_.load(state, name, type_.decode(from_json(doc)))


def pack(raw: bytes) -> bytes:
    """Compressed if that is smaller; `unpack` recognises compression by the length."""
    if len(raw) < _WORTH_PACKING:
        return raw
    packed = isal_zlib.compress(raw, 1)
    return packed if len(packed) < len(raw) else raw


def unpack(blob: bytes, length: int) -> bytes:
    return blob if len(blob) == length else isal_zlib.decompress(blob, bufsize=length)


def shapes_from(text: str) -> dict[int, tuple[str, ...]]:
    return {int(shape): tuple(names) for shape, names in from_json(text).items()}


def _replaced(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace").decode()


def _encodes(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


# Defaults as JSON values, except mappings: pydantic makes a copy of those for every spec, which costs more.
_DEFAULTS: Final = tuple(
    (name, from_json(to_json(field.default)))
    for name, field in JobSpec.model_fields.items()
    if not field.is_required() and not isinstance(field.default, dict)
)
