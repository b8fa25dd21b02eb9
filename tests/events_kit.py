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
    "stacks": 1_700_000_000_000, "ranks": 8, "what": "a pickle that runs code", "why": "to look at it",
    "save": 1_700_000_000_000,
    "overridden": ["metric"], "run": "gpt-7",
    "session": "cd" * 16, "share": "ef" * 16, "how": "link", "expires_at": 90.0,
}  # fmt: skip
EVENT_DOC: Final[dict[str, Any]] = {
    **AUDIT_DOC,
    "number": 7, "queue": "research", "user": "ada", "spec": {"name": "gpt", "run": "true"}, "key": "once",
    "expect": 60.0, "trusted": True, "code": {"tree": "ab"}, "index": 4,
    "needs": {"prepare-3": "succeeded"}, "start": {"run": "gpt-2", "step": 9}, "how": "link", "reserve": 7_000_000,
    "scope": {"project": "language"}, "period": "fixed",
    "first": "2026-11-01", "last": "2026-11-30", "mode": "stop", "spent": {"fixed": 5}, "days": {"2026-11-18": 5},
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
    "finance": True, "expires_at": 90.0, "failed": 1, "what": "checksum",
    "holder": "a", "epoch": 2, "rows": {"notes": 3},
    "check": "clock", "nodes": ["n1"], "programs": ["language/ada/gpt"],
    "findings": [{"check": "disk", "status": "failed", "detail": "it is full", "seconds": 0.1}],
    "verdict": {"kind": "process stopped", "behind": [3]}, "action": "restart", "room": 2, "usable": 3, "gpu": 3,
    "boot": "94e34cb1-4b67-47af-88f9-75f396a33907",
    "rule": "device-idle", "severity": "warning", "value": 0.2, "facts": {"value": "20%"}, "group": "device-idle",
    "subject": {
        "kind": "run", "name": "gpt-7", "title": "gpt", "project": "language", "queue": "", "pool": "", "nodes": [],
    },
    "book": {"currency": "EUR"}, "amount": 1_500_000, "platform": 200_000, "currency": "EUR", "family": "gpt",
    "environment": "production", "held": [8000, 64_000, 2**30, 1], "day": "2026-11-18", "idle": 7, "kept": 8,
    "lines": [[0, 3_600_000_000, 1_700_000_000, 1_700_000, 0, 1_700_000, "on_demand"]], "shares": {"language": 1},
    "changed": {"main": 1.0},
    "keys": ["lr", "wd"], "receivers": ["ops"], "done": True, "until": 90.0, "why": "maintenance", "run": "gpt-7",
    "priority": 20,
    "seed": 7, "prior": [{"params": {"lr": 0.1}, "values": [0.5]}], "params": {"lr": 0.3}, "wait": None,
    "summary": {"best": [1]}, "study": "lr-1", "origin": "enqueued", "of": 1, "bracket": 2, "note": "said",
    "replaces": 0, "outside": [3],
    "rungs": [[3, 4, [0.5]]], "cost": 5_000_000, "values": [0.4], "extra": {"memory": 3.5},
    "violated": ["memory < 3"], "ran": 90.0,
    "rung": "canary", "parts": {"code": "ab", "scale": "cd"}, "jobs": ["canary-gpt-3"],
    "overridden": ["metric"], "public": "AAAA", "asker": "worker-1", "study_left": 12, "study_ran": 600.0,
}  # fmt: skip


def doc_of(kind: str) -> dict[str, Any]:
    """JSON with every field of the payloads of this kind."""
    own: dict[str, dict[str, Any]] = {
        "node.health": {"reason": "it is hot"}, "node.slow": {"reason": "it is hot"}, "node.fault": {"code": "79"},
        "job.priority": {"reason": "set by ada"}, "alert.pending": {"held": 300.0},
        "prices.set": {"book": {"currency": "EUR"}},
        "pool.idle": {"book": 3}, "project.stored": {"book": 3},
        "budget.granted": {"period": "2026-11"},
        "provider_account.bound": {"issuer": "https://login.example.org", "subject": "s-1"},
        "cost.corrected": {"book": 3, "charge": 12}, "attempt.charged": {"book": 3, "cause": "node_lost"},
    }  # fmt: skip
    own["study.enqueued"], own["study.pruned"] = {"params": [{"lr": 0.3}]}, {"runs": ["lr-2"]}
    doc = {**EVENT_DOC, **own.get(kind, {})}
    return {name: doc[name] for name, _, _ in KINDS[kind].CODING}
