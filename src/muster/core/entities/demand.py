"""What work asks for on this cluster, learnt from what is submitted: the requests that are typical of it.

Each request that was made lately has a weight, which halves every two weeks. Of a cluster that has seen many jobs only
an eighth is counted, so that most submissions change nothing here. The weights that the scheduler uses are replaced
only when they have shifted. All of it is folded from the events.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from muster.core.entities.base import EntityType
from muster.core.payload import Doc
from muster.core.resources import WHOLE, Resources

if TYPE_CHECKING:
    from muster.core.job import Job
    from muster.core.state_data import Changes, State

HALF_LIFE: Final = 14 * 86_400.0  # seconds
MOST: Final = 64  # requests that are remembered; the lightest is dropped for another
USED: Final = 32  # of these, the heaviest, by which nodes are judged
EVERY: Final = 64  # the first jobs, all of which are counted
SAMPLE: Final = 8  # of later ones, one in so many is
FIRST: Final = 16  # jobs until the weights are first looked at; then again when as many jobs came as are known
LONGEST: Final = 8192  # jobs after which they are looked at in any case
SHIFT: Final = 0.1  # of all weight: a smaller shift leaves the weights that the scheduler uses as they are
_NOTHING: Final = 1e-6  # a weight below it does not count


@dataclass(frozen=True, slots=True)
class Demand:
    """A request that was made: how often, each time counted less as it gets older. `at`: as of when, in seconds."""

    ask: Resources
    weight: float = 0.0
    at: float = 0.0

    def __deepcopy__(self, memo: object) -> Demand:
        return self  # snapshots copy all of them

    def now(self, time: float) -> float:
        past = time - self.at
        return self.weight * 0.5 ** (past / HALF_LIFE) if past > 0 else self.weight


@dataclass(frozen=True, slots=True)
class Shape:
    """A typical request of one worker, and how many such workers are known."""

    ask: Resources
    weight: float


Shapes = tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class TypicalWork:
    """The typical requests for accelerators, the heaviest first. `due`: the number of the job at which they are looked
    at again."""

    shapes: Shapes = ()
    due: int = FIRST

    def __deepcopy__(self, memo: object) -> TypicalWork:
        return self


def _decode(doc: Doc) -> Demand:
    return Demand(Resources(**doc["ask"]), doc["weight"], doc["at"])


def _decode_typical(doc: Doc) -> TypicalWork:
    shapes = tuple([Shape(Resources(**shape["ask"]), shape["weight"]) for shape in doc["shapes"]])
    return TypicalWork(shapes, doc["due"])


DEMANDS = EntityType("demand", _decode)
TYPICAL_WORK = EntityType("typical_work", _decode_typical)
CLUSTER: Final = "cluster"  # the name of the only entity of the last kind
UNKNOWN: Final = TypicalWork()


def typical_work(state: State) -> TypicalWork:
    return TYPICAL_WORK.all(state).get(CLUSTER, UNKNOWN)


def learn_demand(state: State, job: Job, time: float, changes: Changes) -> None:
    """The job asks for something: a fold calls this once for it."""
    number = job.number
    if number <= EVERY:
        _count(state, job.ask, max(job.spec.num_nodes, 1), time, changes)
    elif not _mixed(number) % SAMPLE:
        _count(state, job.ask, max(job.spec.num_nodes, 1) * SAMPLE, time, changes)
    typical = typical_work(state)
    if number < typical.due:
        return
    weights = {demand.ask: demand.now(time) for _, demand in sorted(DEMANDS.all(state).items())}
    due = number + min(max(FIRST, int(sum(weights.values()))), LONGEST)
    usable = [ask for ask in weights if ask.accelerators and weights[ask] > _NOTHING]
    heaviest = sorted(usable, key=lambda ask: -weights[ask])[:USED]
    shapes = tuple([Shape(ask, weights[ask]) for ask in heaviest])
    if _shifted(typical.shapes, shapes) < SHIFT:
        shapes = typical.shapes
    TYPICAL_WORK.put(state, CLUSTER, TypicalWork(shapes, due), changes)


def _count(state: State, asked: Resources, workers: int, time: float, changes: Changes) -> None:
    name, ask = _rounded(asked)
    known = DEMANDS.all(state)
    demand = known.get(name) or Demand(ask, 0.0, time)
    DEMANDS.put(state, name, Demand(ask, demand.now(time) + workers, max(time, demand.at)), changes)
    known = DEMANDS.all(state)
    if len(known) > MOST:
        lightest = min((other for other in known if other != name), key=lambda other: (known[other].now(time), other))
        DEMANDS.drop(state, lightest, changes)


def _shifted(old: Shapes, new: Shapes) -> float:
    """The part of all weight by which they differ."""
    before, after = ({shape.ask: shape.weight for shape in shapes} for shapes in (old, new))
    most, least = sum(before.values()) or 1.0, sum(after.values()) or 1.0
    asks = before | after
    return sum(abs(before.get(ask, 0.0) / most - after.get(ask, 0.0) / least) for ask in asks) / 2


def _mixed(number: int) -> int:
    """A number without pattern: every eighth job may be one of a kind, as of an array."""
    return (number * 2_654_435_761 & 0xFFFF_FFFF) >> 16


@lru_cache(maxsize=4096)
def _rounded(ask: Resources) -> tuple[str, Resources]:
    """A name for the request, and the request rounded up: its CPUs to two digits, its memory to one, a part of an
    accelerator to a twentieth. Requests that differ by less are one."""
    cpus, memory = _digits(ask.milli_cpus, 2), _digits(ask.memory, 1)
    share = min(-(-ask.share // 50) * 50, WHOLE - 1) if ask.share < WHOLE else WHOLE
    kind = f"{ask.accelerator}:{ask.accelerators}x{share}/{ask.accelerator_memory}" if ask.accelerators else "none"
    rounded = Resources(cpus, memory, ask.accelerators, ask.accelerator, share, ask.accelerator_memory)
    return f"{kind} {cpus} {memory}", rounded


def _digits(number: int, digits: int) -> int:
    step = int(10 ** max(len(str(number)) - digits, 0))
    return -(-number // step) * step
