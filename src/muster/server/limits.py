"""The limits of a server: the table `[limits]` of its settings, read once and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from muster.control.quota import Quota
from muster.core.config import Table
from muster.core.units import parse_size


@dataclass(frozen=True, slots=True)
class Limits:
    """Times are in seconds. Administrators' tokens have no limits of jobs, content or tokens."""

    header_timeout: float = 10.0  # for a TLS handshake, and again for all headers of a request
    body_timeout: float = 60.0  # without enough progress of a body, or of a client that reads an answer
    connections: int = 10_000  # in total
    connections_without_token: int = 1_000  # per address; above it, the oldest one is closed
    reads_per_user: int = 4  # heavy reads of one user at once; others wait in line
    reads: int = 24  # of all users
    read_wait: float = 10.0  # in line, before a read is refused with 429
    streams_per_user: int = 64
    execs: int = 200  # commands beside jobs (`muster exec`, `attach`, `cp`) at once; each holds 2 MiB at most
    execs_per_user: int = 16
    execs_per_worker: int = 8
    exec_idle: float = 3600.0  # without a byte, after which such a command is ended
    exec_bytes_per_second: float = 50e6  # of one such command, in each direction
    jobs_per_user: int = 20_000  # live jobs
    jobs_per_project: int = 50_000
    tasks_per_array: int = 10_000
    tokens_per_user: int = 1_000  # valid ones
    bytes_per_project: str = ""  # of artifacts, such as "10TB"; no limit when empty
    bytes: Mapping[str, str] = field(default_factory=dict)  # project → its own limit, in place of that

    @classmethod
    def of(cls, given: object) -> Limits:
        """Reads the table. Raises ConfigError with every mistake."""
        table, usual = Table("", {"limits": given}).table("limits"), cls()
        numbers = [one.name for one in fields(cls) if isinstance(getattr(usual, one.name), int | float)]
        values: dict[str, Any] = {}
        for name in numbers:
            values[name] = table.value(name, getattr(usual, name), _positive, "a number above 0")
        table.size("bytes_per_project", 0)
        for project, size in table.words("bytes").items():
            Table(f"{table.where}.bytes", {project: size}, table.mistakes).size(project, 0)
        table.finish()
        return cls(**values, bytes_per_project=table.text("bytes_per_project"), bytes=table.words("bytes"))

    def quota(self) -> Quota:
        """The limits of what users and projects may store and submit."""
        usual = int(parse_size(self.bytes_per_project)) if self.bytes_per_project else None
        own = {project: int(parse_size(size)) for project, size in self.bytes.items()}
        return Quota(self.jobs_per_user, self.jobs_per_project, self.tokens_per_user, usual, self.tasks_per_array, own)


def _positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0
