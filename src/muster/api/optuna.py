"""Journals of Optuna: what its journal storage reads and appends."""

from muster.api.typed import TypedDict


class OptunaJournalView(TypedDict):
    project: str
    name: str
    user: str  # who made it
    created_at: float
    updated_at: float
    logs: int
    bytes: int


class OptunaJournalList(TypedDict):
    journals: list[OptunaJournalView]


class OptunaLogs(TypedDict):
    """`logs` begin at the number that was asked for; there are more while their number is below `end`. They are texts
    of JSON as Optuna writes it, with NaN and Infinity."""

    id: int  # of the journal; 0: there is none yet
    end: int  # the number of the next log
    logs: list[str]


class OptunaAppended(OptunaLogs):
    """`logs`: those of others, between the number that was asked for and `first`; not all of them if they are many."""

    first: int  # the number of the first log that was appended


class OptunaSnapshotSaved(TypedDict):
    logs: int  # that the kept snapshot adds up


class OptunaJournalDeleted(TypedDict):
    project: str
    name: str
    deleted: bool
