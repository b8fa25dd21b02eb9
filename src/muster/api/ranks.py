"""The ranks of a running job: what each does now, and which is unlike the others."""

from muster.api.typed import TypedDict


class RankView(TypedDict):
    """Figures are null where they are not known. `unlike`: what sets it apart from the others."""

    rank: int
    node: str
    phase: str
    step: int | None
    state: str  # of its process, as the kernel calls it: R, S, D, T
    cpu: float | None  # cores
    device_use: float | None  # 0..1, mean of the last minute
    device_memory: float | None  # 0..1, of its fullest device
    power: float | None  # W, of all its devices
    quiet: float | None  # seconds without any sign of work
    unlike: list[str]


class RanksView(TypedDict):
    job: str
    attempt: int
    now: float
    step_seconds: float | None  # of the last minute
    step_seconds_own: float | None  # of the run's own past
    phases: dict[str, float]  # shares of the ranks' time in the last minute
    ranks: list[RankView]
