"""The sets of words that fields of the API may have."""

from typing import Final, Literal

Phase = Literal["queued", "starting", "running", "stopping", "succeeded", "failed", "stopped"]
PHASES: Final[tuple[Phase, ...]] = ("queued", "starting", "running", "stopping", "succeeded", "failed", "stopped")
Kind = Literal["train", "eval", "data", "sweep", "session"]
Role = Literal["viewer", "member", "admin"]
ROLES: Final[tuple[Role, ...]] = ("viewer", "member", "admin")  # in ascending order; each includes those before it
Health = Literal["healthy", "suspect", "quarantined", "draining"]
NodeRole = Literal["node", "slot", "machine"]
WorkerState = Literal["starting", "running", "ended"]
WorkClass = Literal["single", "distributed", "trial", "evaluation", "session"]
Stage = Literal["none", "staging", "production", "archived"]
NoteKind = Literal["note", "purpose", "start", "restart", "preemption", "stop", "end", "change", "alert", "promotion"]
Axis = Literal["step", "time"]

# Who may use a route. `nobody`: no token is needed. `anyone`: any valid token. `viewer`, `member`, `admin`: this role
# in the project that the request is about. `superuser`: an administrator of the server. `attempt`: an attempt's token.
Need = Literal["nobody", "anyone", "viewer", "member", "admin", "superuser", "attempt"]
