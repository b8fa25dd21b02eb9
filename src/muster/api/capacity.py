"""How much of the hardware is used, free, and out of service."""

from muster.api.typed import TypedDict


class StrandedView(TypedDict):
    """Free accelerators that no typical request could use, by what is missing beside them."""

    cpus: float
    memory: float
    accelerators: float  # more of them, or more of a shared one


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
    stranded: StrandedView  # of the free accelerators; not known of machines on which an engine places the workers


class CapacityList(TypedDict):
    pools: list[CapacityView]
