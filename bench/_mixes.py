"""Made-up clusters and mixes of requests for `packing.py`: their shapes of demand differ; nothing was tuned to one.

Each is drawn from a seed. `shared` resembles what was published of a production cluster (Weng et al., ATC '23): 1,213
nodes of 1, 2, 4 and 8 accelerators of seven models, more than a third of the requests for a part of one accelerator, an
eighth for none, with very different CPUs.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from muster.core.entities import Node
from muster.core.resources import WHOLE, Resources

GIB = 2**30
Hardware = list[tuple[int, str, int, int, int]]  # nodes, model, accelerators, CPUs, GiB of memory
Request = tuple[float, int, int, float, float]  # frequency, accelerators, thousandths of each, CPUs, GiB of memory


@dataclass(frozen=True, slots=True)
class Mix:
    nodes: list[Node]
    requests: list[Resources]  # to draw from, each as often as it occurs


def shared(draw: random.Random) -> Mix:
    """More than a third want a part of an accelerator."""
    requests: list[Request] = [(0.13, 0, 0, draw.choice([8, 12, 16, 32]), draw.choice([16, 32, 64])) for _ in range(1)]
    requests += [(0.125 / 6, 0, 0, draw.choice([4, 8, 12, 16, 24, 32]), draw.choice([8, 16, 32, 64])) for _ in range(5)]
    shares = [draw.randrange(10, 85) * 10 for _ in range(16)]
    requests += [
        (0.38 / 16, 1, share, draw.choice([2, 3, 4, 6, 8, 12]), draw.choice([4, 8, 16, 24])) for share in shares
    ]
    requests += [(0.48 / 16, 1, WHOLE, draw.choice([3, 6, 8, 10, 11.4, 12, 16, 19]), draw.choice([8, 16, 32, 48]))
                 for _ in range(16)]  # fmt: skip
    requests += [(0.002, 2, WHOLE, 16, 64), (0.002, 4, WHOLE, 32, 128), (0.006, 8, WHOLE, 64, 300)]
    return Mix(_nodes(_SEVEN), _drawn(requests, draw))


def ranges(draw: random.Random) -> Mix:
    """No two requests are equal: CPUs, memory and shares are drawn from ranges."""
    requests = []
    for _ in range(6_000):
        kind = draw.random()
        if kind < 0.1:
            requests.append(Resources(draw.randrange(1, 65) * 500, draw.randrange(2, 64) * GIB))
        elif kind < 0.45:
            share, cpus = draw.randrange(5, 95) * 10, draw.lognormvariate(1.4, 0.6)
            requests.append(Resources(round(cpus * 1000), draw.randrange(2, 32) * GIB, 1, "GPU", share))
        else:
            count, cpus = draw.choice([1, 1, 1, 1, 1, 1, 2, 4]), draw.lognormvariate(2.0, 0.5)
            requests.append(Resources(round(cpus * 1000 * count), draw.randrange(4, 48) * count * GIB, count, "GPU"))
    return Mix(_nodes(_SEVEN), requests)


def training(draw: random.Random) -> Mix:
    """Equal nodes of 8; whole accelerators, from 1 to 8, with few or many CPUs each; some preparation of data."""
    requests: list[Request] = [(0.15, 0, 0, draw.choice([4, 8, 16]), draw.choice([32, 64])) for _ in range(2)]
    for count, often in ((1, 0.4), (2, 0.15), (4, 0.1), (8, 0.1)):
        requests += [(often / 3, count, WHOLE, count * each, count * draw.choice([16, 64, 100])) for each in (4, 8, 14)]
    return Mix(_nodes([(500, "A", 8, 96, 1024)]), _drawn(requests, draw))


def serving(draw: random.Random) -> Mix:
    """Four of five want a part of an accelerator, some with much memory, on nodes of 1, 2 and 4."""
    shares = [100, 125, 200, 250, 300, 400, 500, 600, 700]
    requests: list[Request] = [
        (0.8 / 18, 1, draw.choice(shares), draw.choice([1, 2, 4, 8]), draw.choice([4, 8, 24, 48])) for _ in range(18)
    ]
    requests += [(0.15, 1, WHOLE, draw.choice([4, 8]), 32), (0.05, 0, 0, 8, 16)]
    return Mix(_nodes([(300, "A", 1, 16, 64), (300, "B", 2, 32, 256), (150, "C", 4, 64, 256)]), _drawn(requests, draw))


def hungry(draw: random.Random) -> Mix:
    """CPUs are short on half of the nodes and plentiful on the others; a fifth of the work needs no accelerator."""
    requests: list[Request] = [(0.05, 0, 0, cpus, cpus * 3) for cpus in (4, 8, 16, 32)]
    requests += [(0.25 / 5, 1, share, draw.choice([2, 4, 8]), 12) for share in (200, 300, 400, 500, 600)]
    requests += [(0.55 / 8, 1, WHOLE, cpus, draw.choice([16, 32])) for cpus in (2, 4, 4, 6, 8, 8, 12, 20)]
    return Mix(_nodes([(400, "A", 8, 64, 512), (400, "B", 4, 128, 512)]), _drawn(requests, draw))


MIXES: dict[str, Callable[[random.Random], Mix]] = {
    "shared": shared, "ranges": ranges, "training": training, "serving": serving, "hungry": hungry,
}  # fmt: skip
_SEVEN: Hardware = [
    (550, "A", 8, 96, 384), (380, "B", 2, 104, 512), (130, "C", 2, 24, 128), (40, "D", 8, 128, 768),
    (45, "E", 4, 40, 160), (22, "F", 8, 96, 384), (18, "G", 4, 96, 384), (28, "C", 1, 10, 48),
]  # fmt: skip


def _nodes(hardware: Hardware) -> list[Node]:
    found = []
    for many, model, accelerators, cpus, memory in hardware:
        total = Resources(cpus * 1000, memory * GIB, accelerators, model)
        found += [Node(f"{model.lower()}{accelerators}-{index}", "main", total) for index in range(many)]
    for node in found:
        node.clear()
    return found


def _drawn(requests: list[Request], draw: random.Random) -> list[Resources]:
    asks = [
        Resources(round(cpus * 1000), round(memory * GIB), count, "GPU" if count else "", share or WHOLE)
        for _, count, share, cpus, memory in requests
    ]
    return draw.choices(asks, [often for often, *_ in requests], k=8_000)
