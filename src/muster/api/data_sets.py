"""Data sets that runs have named: their versions, and who used them."""

from typing import Literal

from muster.api.typed import TypedDict


class DataVersion(TypedDict):
    """One version of a data set, by the last run that named it."""

    ref: str  # in the lineage: `data:c4-en@v3`
    name: str
    version: str  # "" for a name without one
    readers: int  # runs
    writers: int
    first_at: float
    last_at: float
    digest: str  # "" where no run has said it, as below
    uri: str
    rows: int | None
    bytes: int | None


class DataUse(TypedDict):
    """A run that read a data set, or wrote it."""

    version: str
    run: str
    name: str  # of the run
    project: str
    user: str
    phase: str
    role: Literal["reads", "writes"]
    time: float
    digest: str


class DataList(TypedDict):
    data: list[DataVersion]  # the last used first
    more: bool  # there are others, which a text finds


class DataDetail(TypedDict):
    name: str
    versions: list[DataVersion]
    uses: list[DataUse]  # the newest first
    more: bool  # there are older ones
