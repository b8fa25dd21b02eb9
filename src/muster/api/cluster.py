"""Queues and nodes."""

from muster.api.jobs import ResourcesView
from muster.api.typed import TypedDict
from muster.api.words import CheckStatus, Health, NodeRole


class QueueView(TypedDict):
    """A queue with its most important rules; all rules are in `/v1/rules`."""

    name: str
    project: str
    min_priority: int
    max_priority: int
    order: str
    weight: float
    quota: dict[str, int]  # accelerators, by pool
    parent: str | None
    queued: int
    active: int


class QueueList(TypedDict):
    queues: list[QueueView]


class NodeView(TypedDict):
    name: str
    engine: str
    role: NodeRole
    pool: str
    health: Health
    why: str
    labels: dict[str, str]
    total: ResourcesView
    free: ResourcesView
    used: ResourcesView | None  # by all users of a machine, if its engine knows
    jobs: list[str]
    users: list[str]  # of the jobs
    failures: int  # ends of attempts that are charged to it
    spare: bool  # kept free now, for jobs that lose a node


class NodeList(TypedDict):
    nodes: list[NodeView]


class DeviceReading(TypedDict):
    """The last figures of an accelerator, or of a slice of one."""

    gpu: int
    name: str
    profile: str  # of a slice, such as 1g.10gb
    use: float | None  # 0 to 1
    memory_used: float | None  # bytes
    memory: float | None
    power: float | None  # watts
    temperature: float | None  # degrees Celsius


class NodeReading(TypedDict):
    """The last figures of a node on which work runs. `devices` is empty unless the node was asked for by its name."""

    name: str
    memory: float | None  # bytes
    available: float | None
    disk: float | None  # the used part of its fullest file system, 0 to 1
    use: float | None  # of its accelerators, on average
    temperature: float | None  # of its hottest accelerator, in degrees Celsius
    devices: list[DeviceReading]


class NodeReadings(TypedDict):
    now: float
    nodes: list[NodeReading]


class CheckView(TypedDict):
    check: str
    status: CheckStatus
    detail: str
    seconds: float


class NodeCheckView(TypedDict):
    """What the checks of a node found now. `later`: its engine can only check it before the next start there."""

    name: str
    later: bool
    findings: list[CheckView]


class NodeEntry(TypedDict):
    """Something that happened to a node. `kind` is a health, `released`, `checked`, `check_asked`, `straggler`, `clock`
    (its clock is off), `link` (its link is slow) or the reason of a failure. `job` and `actor` are empty for those who
    may not see them."""

    seq: int
    time: float
    kind: str
    text: str
    job: str
    actor: str


class NodeRecordView(TypedDict):
    """The history of a node, oldest first. `next`: the `before` of the page before this one; null: there is none."""

    name: str
    failures: dict[str, int]
    entries: list[NodeEntry]
    next: int | None
