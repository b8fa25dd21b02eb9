"""The closed lists of words that the job file, the record, the API and the command line share, each with its type."""

from typing import Final, Literal, get_args

Phase = Literal["queued", "starting", "running", "stopping", "succeeded", "failed", "stopped"]  # of a job
PHASES: Final[tuple[Phase, ...]] = get_args(Phase)
UNFINISHED: Final[tuple[Phase, ...]] = PHASES[:4]
ACTIVE: Final[frozenset[str]] = frozenset({"starting", "running", "stopping"})
FINAL: Final[frozenset[str]] = frozenset({"succeeded", "failed", "stopped"})
Kind = Literal["train", "eval", "data", "sweep", "session"]  # of a job
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
Rung = Literal["unit", "resume", "smoke", "failure", "canary"]  # of preflight, in ascending order
RUNGS: Final[tuple[Rung, ...]] = get_args(Rung)
WorkClass = Literal["single", "distributed", "trial", "evaluation", "session"]
WorkerState = Literal["starting", "running", "ended"]

Role = Literal["viewer", "member", "admin"]  # in ascending order; each includes those before it
ROLES: Final[tuple[Role, ...]] = get_args(Role)
Health = Literal["healthy", "suspect", "quarantined", "draining"]  # of a node
CheckStatus = Literal["ok", "failed", "unknown"]  # of a check of a node
NodeRole = Literal["node", "slot", "machine"]

NoteKind = Literal[  # of an entry in a logbook
    "note", "purpose", "start", "restart", "preemption", "stop", "end", "change", "alert", "promotion", "system"
]
NOTE_KINDS: Final[tuple[NoteKind, ...]] = get_args(NoteKind)
FileKind = Literal["file", "media", "checkpoint", "model"]  # of an artifact that a run saves
FILE_KINDS: Final[tuple[FileKind, ...]] = get_args(FileKind)
Stage = Literal["none", "staging", "production", "archived"]  # of a version of a model
STAGES: Final[tuple[Stage, ...]] = get_args(Stage)
BOOKKEEPING: Final = ("ledger",)  # metrics of `muster.train` that prove something and measure nothing
Axis = Literal["step", "time"]  # of a curve

# Who may use a route. `nobody`: no token is needed. `anyone`: any valid token. `viewer`, `member`, `admin`: this role
# in the project that the request is about. `superuser`: an administrator of the server. `attempt`: an attempt's token.
# `auditor`: an administrator of the server, also with a token that may only read.
Need = Literal["nobody", "anyone", "viewer", "member", "admin", "auditor", "superuser", "attempt"]


def is_measurement(metric: str) -> bool:
    """Whether a metric is shown unless all are asked for: not samples of the hardware, not bookkeeping."""
    return not metric.startswith("system/") and metric not in BOOKKEEPING
