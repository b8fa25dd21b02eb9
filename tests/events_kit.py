"""What tests share about events: the kinds of the audit log, and JSON that has every field of every payload."""

from __future__ import annotations

from typing import Any, Final

import muster.core.state  # noqa: F401 - registers every kind
from muster.core.payload import KINDS

AUDIT: Final = frozenset(kind for kind, cls in KINDS.items() if cls.AUDIT)
AUDIT_DOC: Final[dict[str, Any]] = {
    "name": "gpt", "source": "sdk", "attempt": 2, "fields": ["name", "tags"], "keys": ["lr", "wd"], "count": 30,
    "path": "a/b", "experiment": 3, "version": 4, "stage": "production", "alias": "best", "method": "POST",
    "address": "10.0.0.7", "kind": "note.added", "error": "no", "token": "ab12", "since": 1.0,
    "receiver": "hook chat", "exec": "ab" * 16, "worker": 1, "node": "n1", "command": "ls -l", "tty": True, "code": 3,
    "cause": "", "seconds": 1.5, "metric": "loss", "step": 7, "message": "loss is nan",
    "stacks": 1_700_000_000_000, "ranks": 8,
}  # fmt: skip
EVENT_DOC: Final[dict[str, Any]] = {
    **AUDIT_DOC,
    "number": 7, "queue": "research", "user": "ada", "spec": {"name": "gpt", "run": "true"}, "key": "once",
    "expect": 60.0, "trusted": True, "code": {"tree": "ab"}, "index": 4,
    "needs": {"prepare-3": "succeeded"},
    "seats": [{"node": "n0", "devices": [0, 1], "share": 1000}, {"node": "n1", "devices": [3], "share": 250}],
    "reason": {"code": "preempted", "message": "j2 goes first", "hint": "wait", "data": {"for_job": "j2"}},
    "at": 1.0, "p50": 2.0, "p90": 3.0, "cut": ["j3"], "doc": {"id": "gpt-7"}, "then": "queued", "grace": 30.0,
    "charge": "preempted", "not_before": 5.0, "outcome": "failed", "worker": 1, "node": "n1",
    "exit": {"outcome": "failed"}, "step": 120, "bytes": 10, "rank": 3, "pool": "main",
    "resources": {
        "milli_cpus": 8000, "memory": 2**30, "accelerators": 4, "accelerator": "H100", "share": 1000,
        "accelerator_memory": 80 * 10**9,
    },
    "labels": {"rack": "r1"}, "role": "machine", "health": "draining", "by": "engine", "engine": "slurm",
    "delegated": True, "accelerator": "H100", "spot": True, "away": "no answer", "machines": 4, "project": "language",
    "min_priority": 10, "max_priority": 60, "description": "models", "members": {"ada": "admin"},
    "rules": {"half_life": 60.0}, "text": "half_life: 1m", "id": "ab12", "digest": "00", "superuser": True,
    "expires_at": 90.0, "failed": 1, "what": "checksum", "holder": "a", "epoch": 2, "rows": {"notes": 3},
    "check": "clock", "nodes": ["n1"], "programs": ["language/ada/gpt"],
    "findings": [{"check": "disk", "status": "failed", "detail": "it is full", "seconds": 0.1}],
    "verdict": {"kind": "process stopped", "behind": [3]}, "action": "restart", "room": 2, "usable": 3, "gpu": 3,
    "boot": "94e34cb1-4b67-47af-88f9-75f396a33907",
    "rule": "device-idle", "severity": "warning", "value": 0.2, "facts": {"value": "20%"}, "group": "device-idle",
    "subject": {
        "kind": "run", "name": "gpt-7", "title": "gpt", "project": "language", "queue": "", "pool": "", "nodes": [],
    },
    "keys": ["lr", "wd"], "receivers": ["ops"], "done": True, "until": 90.0, "why": "maintenance", "run": "gpt-7",
}  # fmt: skip


def doc_of(kind: str) -> dict[str, Any]:
    """JSON with every field of the payloads of this kind."""
    own = {"node.health": {"reason": "it is hot"}, "node.slow": {"reason": "it is hot"}, "node.fault": {"code": "79"}}
    doc = {**EVENT_DOC, **own.get(kind, {})}
    return {name: doc[name] for name, _, _ in KINDS[kind].CODING}
