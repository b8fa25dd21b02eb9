"""Signed statements of what models and checkpoints were built from, and the keys that sign them."""

from muster.api.typed import Doc, TypedDict


class SigningKeyView(TypedDict):
    """A public key. One that is retired signs no more; what it signed stays good."""

    id: str  # SHA-256 of its 32 bytes
    pem: str
    created_at: float
    retired_at: float | None


class SigningKeyList(TypedDict):
    keys: list[SigningKeyView]  # the one in use first


class StatementHead(TypedDict):
    ref: str  # such as `model:gpt/3`, or `artifact:gpt-17/final`
    digest: str  # SHA-256 of the signed envelope
    key: str
    time: float


class StatementList(TypedDict):
    run: str
    statements: list[StatementHead]


class StatementView(StatementHead):
    envelope: Doc  # DSSE: payload, payloadType, signatures


class StoredFile(TypedDict):
    name: str  # in the statement
    path: str  # of the run's artifact
    digest: str
    bytes: int


class VersionFiles(TypedDict):
    """What Muster stores of a model's version now. `files` is empty if it stores none: they are elsewhere."""

    name: str
    version: int
    run: str
    files: list[StoredFile]
