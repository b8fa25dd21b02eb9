"""A job as the client returns it: its last known state, and methods that call the server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from muster.client.stream import LogLine
from muster.core.reasons import Reason
from muster.core.terms import FINAL

if TYPE_CHECKING:
    from muster.client.client import Client


@dataclass(slots=True)
class Job:
    """One job. Times are seconds since the epoch, `attempt` is 0 before the first launch, `raw` is the JSON itself."""

    id: str
    number: int
    name: str
    kind: str
    project: str
    queue: str
    user: str
    phase: str
    reason: Reason | None
    since: float
    submitted_at: float
    started_at: float | None
    finished_at: float | None
    attempt: int
    nodes: list[str]
    num_nodes: int
    nproc: int
    resources: dict[str, Any]
    priority: int
    restarts: dict[str, int]
    checkpoint: dict[str, Any] | None
    progress: dict[str, Any] | None
    purpose: str | None
    tags: dict[str, str]
    run: str
    workdir: str | None
    raw: dict[str, Any] = field(repr=False, compare=False)
    client: Client = field(repr=False, compare=False)

    @classmethod
    def from_view(cls, view: dict[str, Any], client: Client) -> Job:
        """Builds it from a JobView of the API; fields that a newer server adds stay in `raw`."""
        values = {name: view[name] for name in _NAMES}
        values["reason"] = Reason.of(view["reason"]) if view["reason"] else None
        return cls(**values, raw=view, client=client)

    @property
    def final(self) -> bool:
        return self.phase in FINAL

    @property
    def placed(self) -> bool:
        """Whether `nodes` are those that it holds now, and not those of its last attempt."""
        return self.phase in ("starting", "running", "stopping")

    @property
    def ranks(self) -> int:
        """The number of ranks; of a running elastic gang, the current number."""
        return (len(self.nodes) if self.placed else self.num_nodes) * self.nproc

    def refresh(self) -> Job:
        """Updates this object from the server."""
        return self._become(self.client.job(self.id))

    def wait(self, timeout: float | None = None, on_change: Callable[[Job], None] | None = None) -> Job:
        """Waits until it has ended; see `Client.wait`."""
        return self._become(self.client.wait(self.id, timeout, on_change))

    def stop(self, grace: float | None = None, force: bool = False) -> Job:
        return self._become(self.client.stop(self.id, grace, force))

    def resume(self) -> Job:
        return self._become(self.client.resume(self.id))

    def logs(
        self, follow: bool = False, rank: int | None = None, attempt: int | None = None, tail: int | None = None
    ) -> Iterator[LogLine]:
        return self.client.logs(self.id, follow=follow, rank=rank, attempt=attempt, tail=tail)

    def why(self) -> dict[str, Any]:
        return self.client.why(self.id)

    def _become(self, other: Job) -> Job:
        for name in (*_NAMES, "raw"):
            setattr(self, name, getattr(other, name))
        return self


_NAMES = tuple(one.name for one in fields(Job) if one.name not in ("raw", "client"))
