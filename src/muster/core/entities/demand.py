"""What work asks for on this cluster, learnt from what is submitted: the requests that are typical of it.

Each request that was made lately has a weight, which halves every two weeks. The weights that the scheduler uses are
those of the last refresh, so that it need not follow each job. All of it is folded from the events.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from muster.core.entities.base import EntityType, from_fields
from muster.core.payload import Doc
from muster.core.resources import Resources

if TYPE_CHECKING:
    from muster.core.job import Job
    from muster.core.state_data import Changes, State

HALF_LIFE: Final = 14 * 86_400.0  # seconds
MOST: Final = 64  # requests that are remembered; the lightest is dropped for another
USED: Final = 32  # of these, the heaviest, by which nodes are judged
FIRST: Final = 16  # jobs until the first refresh; later ones are due when half as many are new as are known
_NOTHING: Final = 1e-6  # a weight below it does not count


@dataclass(slots=True)
class Demand:
    """A request that was made: how often, each time counted less as it gets older. `at`: as of when, in seconds."""

    ask: Resources
    weight: float = 0.0
    at: float = 0.0

    def __deepcopy__(self, memo: object) -> Demand:
        return Demand(self.ask, self.weight, self.at)  # snapshots copy all of them

    def now(self, time: float) -> float:
        past = time - self.at
        return self.weight * 0.5 ** (past / HALF_LIFE) if past > 0 else self.weight


@dataclass(frozen=True, slots=True)
class Shape:
    """A typical request of one worker, and how many such workers are known."""

    ask: Resources
    weight: float


@dataclass(frozen=True, slots=True)
class Typical:
    """The typical requests for accelerators as of the last refresh, the heaviest first. `epoch` counts these."""

    shapes: tuple[Shape, ...] = ()
    epoch: int = 0

    def __deepcopy__(self, memo: object) -> Typical:
        return self


@dataclass(slots=True)
class DemandCount:
    """Jobs since the last refresh, and after how many the next one is due."""

    new: int = 0
    due: int = FIRST


def _decode(doc: Doc) -> Demand:
    return Demand(Resources(**doc["ask"]), doc["weight"], doc["at"])


def _decode_typical(doc: Doc) -> Typical:
    return Typical(tuple([Shape(Resources(**shape["ask"]), shape["weight"]) for shape in doc["shapes"]]), doc["epoch"])


DEMANDS = EntityType("demand", _decode)
DEMAND_COUNTS = EntityType("demand_count", from_fields(DemandCount))
TYPICAL = EntityType("typical", _decode_typical)
CLUSTER: Final = "cluster"  # the name of the only entity of the last two kinds
UNKNOWN: Final = Typical()


def typical_of(state: State) -> Typical:
    return TYPICAL.all(state).get(CLUSTER, UNKNOWN)


def learn_demand(state: State, job: Job, time: float, changes: Changes) -> None:
    """The job asks for something: a fold calls this once for it."""
    name, ask = _rounded(job.ask)
    known = DEMANDS.all(state)
    demand = known.get(name) or Demand(ask, 0.0, time)
    demand.weight, demand.at = demand.now(time) + max(job.spec.num_nodes, 1), max(time, demand.at)
    DEMANDS.put(state, name, demand, changes)
    known = DEMANDS.all(state)
    if len(known) > MOST:
        lightest = min((other for other in known if other != name), key=lambda other: (known[other].now(time), other))
        DEMANDS.drop(state, lightest, changes)
    count = DEMAND_COUNTS.all(state).get(CLUSTER) or DemandCount()
    count.new += 1
    if count.new >= count.due:
        weights = {name: demand.now(time) for name, demand in known.items()}
        count.new, count.due = 0, max(FIRST, int(sum(weights.values())) // 2)
        usable = [name for name in weights if known[name].ask.accelerators and weights[name] > _NOTHING]
        heaviest = sorted(usable, key=lambda name: (-weights[name], name))[:USED]
        shapes = tuple([Shape(known[name].ask, weights[name]) for name in heaviest])
        TYPICAL.put(state, CLUSTER, Typical(shapes, typical_of(state).epoch + 1), changes)
    DEMAND_COUNTS.put(state, CLUSTER, count, changes)


@lru_cache(maxsize=4096)
def _rounded(ask: Resources) -> tuple[str, Resources]:
    """A name for the request, and the request with its CPUs rounded up to three digits and its memory to two: requests
    that differ by less are one."""
    cpus, memory = _digits(ask.milli_cpus, 3), _digits(ask.memory, 2)
    kind = f"{ask.accelerator}:{ask.accelerators}x{ask.share}/{ask.accelerator_memory}" if ask.accelerators else "none"
    rounded = Resources(cpus, memory, ask.accelerators, ask.accelerator, ask.share, ask.accelerator_memory)
    return f"{kind} {cpus} {memory}", rounded


def _digits(number: int, digits: int) -> int:
    step = 10 ** max(len(str(number)) - digits, 0)
    return -(-number // step) * step
