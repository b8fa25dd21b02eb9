"""Closed lists of words that the job file, the record, the API and the command line share, each with its type."""

from __future__ import annotations

from typing import Final, Literal, get_args

from muster.wire import OUTCOMES

Kind = Literal["train", "eval", "data", "sweep", "session"]  # of a job
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

Phase = Literal["queued", "starting", "running", "stopping", "succeeded", "failed", "stopped"]  # of a job
PHASES: Final[tuple[Phase, ...]] = get_args(Phase)
ACTIVE: Final[frozenset[str]] = frozenset({"starting", "running", "stopping"})  # an attempt holds resources
FINAL: Final[frozenset[str]] = frozenset(OUTCOMES)

EntryKind = Literal[  # of an entry in a logbook
    "note", "purpose", "start", "restart", "preemption", "stop", "end", "change", "alert", "promotion"
]
ENTRY_KINDS: Final[tuple[EntryKind, ...]] = get_args(EntryKind)

FileKind = Literal["file", "media", "checkpoint", "model"]  # of an artifact that a run saves
FILE_KINDS: Final[tuple[FileKind, ...]] = get_args(FileKind)

Stage = Literal["none", "staging", "production", "archived"]  # of a version of a model
STAGES: Final[tuple[Stage, ...]] = get_args(Stage)
