"""Queues and nodes."""

from muster.api.jobs import ResourcesView
from muster.api.typed import TypedDict
from muster.api.words import Health, NodeRole


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
    failures: int  # ends of attempts that are charged to it


class NodeList(TypedDict):
    nodes: list[NodeView]
