"""Imports of runs, and their media."""

from muster.api.typed import NotRequired, TypedDict, open_ended


class ImportBegun(TypedDict):
    id: str
    attempt: int
    done: bool  # whether all of it was stored before


@open_ended
class MediumView(TypedDict):
    """A histogram, image, table or text: `data`, or `digest` for /v1/blobs/DIGEST."""

    id: int
    name: str
    step: int
    attempt: int
    rank: int
    time: float
    kind: str
    digest: NotRequired[str]


class MediaPage(TypedDict):
    run: str
    media: list[MediumView]
    next: int | None  # pass it as `after` for the next page
