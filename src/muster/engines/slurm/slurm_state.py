"""The Slurm engine's state: its gangs, Slurm's jobs as last seen, and which job belongs to which attempt."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from muster.engines.describe import Home
from muster.engines.slurm.gang import SlurmGang
from muster.engines.slurm.model import OVER, PENDING, Cluster, JobRow, MachineRow, SlurmClient
from muster.engines.slurm.settings import PoolSettings, SlurmSettings
from muster.engines.slurm.shared import AttemptRecord, Key, Shared


@dataclass(slots=True)
class Orphan:
    """A job that Slurm has requeued and that has no attempt yet."""

    row: JobRow
    job: str
    since: float  # monotonic
    shape: str = ""


@dataclass(slots=True)
class SlurmState:
    settings: SlurmSettings
    home: Home
    client: SlurmClient
    shared: Shared
    cluster: Cluster | None = None
    gangs: dict[Key, SlurmGang] = field(default_factory=dict)
    claims: dict[tuple[str, int], Key] = field(default_factory=dict)  # (SLURM_JOB_ID, restart) → attempt
    arrays: dict[str, dict[int, Key]] = field(default_factory=dict)
    orphans: dict[str, Orphan] = field(default_factory=dict)
    rows: dict[str, JobRow] = field(default_factory=dict)
    rows_at: float = 0.0  # monotonic: not later than the state they show
    machines: list[MachineRow] = field(default_factory=list)
    pools: dict[str, PoolSettings] = field(default_factory=dict)

    @property
    def mark(self) -> str:
        """The prefix of every job comment of this Muster."""
        return f"muster:{self.home.installation}:"

    def attribute(self) -> None:
        """Assigns every row to its attempt. Ignores ended jobs that belong to no gang."""
        seen: set[str] = set()
        for row in self.rows.values():
            key = self.key(row)
            if key is None:
                if row.state not in OVER:
                    seen.add(row.id)
                    self._adopt_orphan(row)
                continue
            gang = self.gangs.get(key)
            if gang is None:
                if row.state not in OVER:
                    self.gangs[key] = SlurmGang(key, AttemptRecord(row.num_nodes, "", row.id, row.restarts))
            elif not gang.record.slurm:
                self.assign(gang, row.id, row.restarts)
            elif gang.record.slurm != row.id and row.state not in OVER:
                self._settle_double(gang, row)
        self.orphans = {id: orphan for id, orphan in self.orphans.items() if id in seen}

    def key(self, row: JobRow) -> Key | None:
        """The attempt that this start of a job belongs to; None for a requeued job that has no attempt yet."""
        if row.restarts:
            return self.claims.get((row.raw, row.restarts))
        return self._first_key(row)

    def is_leaving(self, key: Key) -> bool:
        """Whether an earlier attempt's job is about to end: then Slurm may requeue it."""
        for row in self.rows.values():
            whose = self.key(row)
            if whose is not None and whose[0] == key[0] and whose[1] < key[1]:
                gang = self.gangs.get(whose)
                mine = gang is None or gang.record.slurm == row.id
                if mine and row.state not in OVER and row.state not in PENDING:
                    return True
        return False

    def assign(self, gang: SlurmGang, slurm: str, restart: int) -> None:
        gang.record, gang.since = replace(gang.record, slurm=slurm, restart=restart), time.monotonic()
        self.shared.keep(gang.key, gang.record)

    def _first_key(self, row: JobRow) -> Key | None:
        words = row.comment.removeprefix(self.mark).split(":")
        if words[0] == "array" and len(words) == 3:
            if words[1] not in self.arrays:
                self.arrays[words[1]] = self.shared.array(words[1])
            number = row.id.partition("_")[2]
            return self.arrays[words[1]].get(int(number)) if number.isdigit() else None
        return (words[0], int(words[1])) if len(words) == 2 and words[1].isdigit() else None

    def _adopt_orphan(self, row: JobRow) -> None:
        known = self.orphans.get(row.id)
        if known is not None:
            known.row = row
            return
        last = self.claims.get((row.raw, row.restarts - 1)) or self._first_key(row)
        if last is not None and row.restarts:
            gang = self.gangs.get(last)
            shape = gang.record.shape if gang is not None else ""
            self.orphans[row.id] = Orphan(row, last[0], time.monotonic(), shape)

    def _settle_double(self, gang: SlurmGang, row: JobRow) -> None:
        """Resolves two jobs for one attempt: the one that has started it keeps it, else the first;
        the other is cancelled."""
        if self.shared.owner(gang.key) == f"{row.raw}.{row.restarts}":
            other, mine = gang.record.slurm, row.id
        else:
            other, mine = row.id, gang.record.slurm
        if mine != gang.record.slurm:
            self.assign(gang, mine, row.restarts)
        self.client.cancel([other])
