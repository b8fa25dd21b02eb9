"""A provenance statement: in-toto's Statement v1 with a predicate in the shape of SLSA provenance v1.

What the platform saw itself and what a program or a person only said are told apart in the statement: see `OBSERVED`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from muster.core.envelope import strict_json
from muster.core.errors import Invalid
from muster.track.paths import check_path

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "https://slsa.dev/provenance/v1"
BUILT: Final = "urn:muster:build:run:v1"  # every file came from an attempt of a job
UPLOADED: Final = "urn:muster:build:upload:v1"  # a person or a program outside sent a file: nobody saw how it was made
FILE_NAME: Final = "muster.statement.json"  # of a statement beside its files
SUBJECTS_MAX: Final = 100_000
_SHA256: Final = re.compile(r"[0-9a-f]{64}")

Doc = dict[str, Any]

# The server's own knowledge: content that it hashed when it arrived, and what its log says of jobs and attempts.
OBSERVED: Final = (
    "subject", "buildDefinition.internalParameters", "buildDefinition.resolvedDependencies[origin=stored]",
    "runDetails.metadata", "runDetails.muster_attempts",
)  # fmt: skip
# Said by the submitting client (commit), by launchers (packages, devices, image) or by programs (data sets).
CLAIMED: Final = ("buildDefinition.externalParameters", "buildDefinition.resolvedDependencies[origin=claimed]")


@dataclass(frozen=True, slots=True)
class Subject:
    """A file: its path relative to the artifact, its digest, and who sent it."""

    name: str
    sha256: str
    sender: str = ""  # `attempt 2`, `user ada`


@dataclass(frozen=True, slots=True)
class Statement:
    subjects: tuple[Subject, ...]
    predicate: Doc = field(default_factory=dict)

    @property
    def built(self) -> bool:
        """Whether every file came from an attempt of a job."""
        return bool(_at(self.predicate, "buildDefinition", "buildType") == BUILT)

    @property
    def about(self) -> str:
        """What was signed, such as `model:gpt/3`."""
        return str(_at(self.predicate, "buildDefinition", "internalParameters", "ref") or "")

    @property
    def run(self) -> str:
        return str(_at(self.predicate, "runDetails", "metadata", "invocationId") or "")

    @property
    def builder(self) -> str:
        return str(_at(self.predicate, "runDetails", "builder", "id") or "")

    def encode(self) -> bytes:
        """Canonical JSON: the same statement gives the same bytes."""
        subjects = []
        for one in sorted(self.subjects, key=lambda one: one.name):
            notes = {"annotations": {"sender": one.sender}} if one.sender else {}
            subjects.append({"name": one.name, "digest": {"sha256": one.sha256}, **notes})
        doc = {"_type": STATEMENT_TYPE, "subject": subjects, "predicateType": PREDICATE_TYPE}
        return canonical({**doc, "predicate": self.predicate})


def canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def digest_of(value: Any) -> str:
    return hashlib.sha256(canonical(value)).hexdigest()


def subjects_digest(subjects: Sequence[Subject]) -> str:
    """Equal for the same files with the same content, whatever else is known of them."""
    return digest_of(sorted([one.name, one.sha256] for one in subjects))


def read_statement(payload: bytes) -> Statement:
    """The statement of a payload whose signature was found good. Raises Invalid: a signer may be wrong, too."""
    doc = strict_json(payload, "The signed statement")
    if not isinstance(doc, dict) or doc.get("_type") != STATEMENT_TYPE or doc.get("predicateType") != PREDICATE_TYPE:
        raise Invalid(
            f"The signed document is no provenance: `_type` {STATEMENT_TYPE} with `predicateType` {PREDICATE_TYPE} "
            "was expected.",
            "Name the statement of a model or checkpoint.",
        )
    subjects, predicate = doc.get("subject"), doc.get("predicate")
    if not isinstance(subjects, list) or not 0 < len(subjects) <= SUBJECTS_MAX or not isinstance(predicate, dict):
        raise Invalid(f"The statement does not name 1 to {SUBJECTS_MAX:,} files.", "Get it again.")
    found = tuple(_subject(one) for one in subjects)
    twice, count = Counter(one.name for one in found).most_common(1)[0]
    if count > 1:
        raise Invalid(f"The statement names {twice!r} twice.", "Get it again.")
    return Statement(found, predicate)


def _subject(raw: Any) -> Subject:
    name, digest = (raw.get("name"), raw.get("digest")) if isinstance(raw, Mapping) else (None, None)
    sha256 = digest.get("sha256") if isinstance(digest, Mapping) else None
    if not isinstance(name, str) or not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise Invalid("A file in the statement has no name, or no SHA-256.", "Get the statement again.")
    sender = raw.get("annotations", {}).get("sender", "") if isinstance(raw.get("annotations"), Mapping) else ""
    return Subject(check_path(name), sha256, str(sender))


def _at(doc: Any, *path: str) -> Any:
    for part in path:
        doc = doc.get(part) if isinstance(doc, Mapping) else None
    return doc
