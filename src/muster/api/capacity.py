"""How much of the hardware is used, free, and out of service."""

from muster.api.typed import TypedDict


class CapacityView(TypedDict):
    """What there is of one kind of hardware. `total` is the sum of the other three."""

    pool: str
    accelerator: str  # "": nodes without accelerators, whose CPUs are counted
    total: float
    used: float  # also on nodes that are out of service
    free: float
    drained: float  # neither used nor free: its node is draining or quarantined
    nodes: int
    nodes_out: int  # of them, out of service


class CapacityList(TypedDict):
    pools: list[CapacityView]
