"""What launchers and scripts outside get: replies to their batches, and runs that they opened."""

from typing import Literal

from muster.api.typed import TypedDict


class CommandView(TypedDict):
    id: int
    kind: str
    reason: str
    grace: float


class IngestReply(TypedDict):
    """See `muster.wire.Reply`: [rank, stream, offset] of every stream, the next command, and whether all is done."""

    acked: list[tuple[int, str, int]]
    command: CommandView | None
    done: bool
    execs: list[str]  # ids of exec sessions that wait for this worker
    time: float | None  # the server's clock
    keep: list[int]  # steps of checkpoints that the run must not prune: others have yet to start from them


class MeetReply(TypedDict):
    """What a worker is told that is ready to meet its gang: to ask again after so many seconds, to meet at this port of
    the first worker, or to go on without."""

    answer: Literal["wait", "meet", "skip"]
    port: int
    again: float


SecretValues = dict[str, str]  # by name
CodeManifest = dict[str, tuple[str, int, int]]  # path: sha256, bytes, mode


class RunOpened(TypedDict):
    id: str
    attempt: int
    token: str  # for /v1/ingest
