"""Exec sessions: a command that runs beside a job's ranks, and its streams."""

from muster.api.typed import TypedDict


class ExecView(TypedDict):
    """A session that was opened."""

    id: str
    job: str
    attempt: int
    worker: int
    rank: int  # whose environment the command has
    node: str


class ExecRequest(TypedDict):
    """What the process on the node runs."""

    command: list[str]
    rank: int
    tty: tuple[int, int] | None  # rows and columns; None: no terminal
    term: str
    copy: str | None  # "send" or "receive": the command is a path, which is copied


class ExecOffset(TypedDict):
    """How far the server has a stream, in bytes."""

    end: int


class ExecClosed(TypedDict):
    id: str
    ended: bool
