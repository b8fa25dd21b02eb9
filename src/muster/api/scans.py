"""What scans find in code, job files and artifacts."""

from typing import Literal, NotRequired

from muster.api.typed import TypedDict

FindingSort = Literal["secret", "large_file", "notebook", "unsafe", "not_scanned"]
# Of an artifact. `flagged`: something was found, and the policy lets it pass.
ScanStatus = Literal["unscanned", "clean", "flagged", "quarantined"]


class ScanFinding(TypedDict):
    sort: FindingSort
    place: str
    what: str
    hint: str  # what to do
    size: NotRequired[int]  # bytes of a large file
