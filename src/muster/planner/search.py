"""Layouts of every number of devices of every kind: which fit, why the others don't, and which is the simplest."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

from muster.planner.catalogue import GIB, Device, computes
from muster.planner.exact import scores
from muster.planner.memory import Memory, peak
from muster.planner.setups import Layout, Recompute, Setup
from muster.planner.shapes import PlanError, Shape
from muster.planner.speed import Step, step, steps_for

_TPS: Final = (1, 2, 4, 8)
_PPS: Final = (1, 2, 4, 8)
_PAYS: Final = 0.7  # twice the devices should take at most 1 / (2 x this) of the time
_LORA: Final = 16
_RECOMPUTE: Final[tuple[Recompute, ...]] = ("none", "selective", "full")


@dataclass(frozen=True, slots=True)
class Option:
    """One way to train on so many devices of a kind."""

    device: Device
    layout: Layout
    setup: Setup
    memory: Memory
    step: Step
    items: float  # to train on, in all

    @property
    def fits(self) -> bool:
        return self.memory.total <= self.device.memory

    @property
    def seconds(self) -> float:
        """From the first step to the last."""
        return self.step.seconds * steps_for(self.items, self.setup)

    @property
    def cost(self) -> float:
        return self.seconds / 3600 * self.step.price

    @property
    def complexity(self) -> float:
        """What there is to understand, beyond one device: kinds of parallelism first, then what saves memory."""
        layout, setup = self.layout, self.setup
        kinds = {"dp": 1, "fsdp": 2, "tp": 4, "pp": 6}
        found = float(sum(worth for name, worth in kinds.items() if getattr(layout, name) > 1))
        found += {"none": 0.0, "selective": 0.5, "full": 0.6}[setup.recompute] + (3 if setup.offload else 0)
        return found + (0.2 if setup.micros(layout) > 1 else 0) + (8 if setup.lora else 0)

    @property
    def words(self) -> str:
        """The layout and what saves memory, for a table."""
        extra = [f"recompute {self.setup.recompute}"] if self.setup.recompute != "none" else []
        extra += [f"micro-batch {self.setup.micro_samples(self.layout)}"] if self.setup.micros(self.layout) > 1 else []
        extra += ["offload"] if self.setup.offload else []
        extra += [f"LoRA {self.setup.lora}"] if self.setup.lora else []
        return ", ".join([str(self.layout), *extra])

    def to_dict(self) -> dict[str, Any]:
        return {
            "device": self.device.name, "devices": self.layout.devices, "layout": self.layout.mesh(),
            "recompute": self.setup.recompute, "micro_batch": self.setup.micro_samples(self.layout),
            "micro_batches": self.setup.micros(self.layout), "offload": self.setup.offload, "lora": self.setup.lora,
            "precision": self.setup.compute, "fits": self.fits, "memory_gib": self.device.memory_gib,
            "peak_gib": round(self.memory.total / GIB, 2), "allocated_gib": round(self.memory.allocated / GIB, 2),
            "memory": {name: round(size / GIB, 3) for name, size in self.memory.parts().items()},
            "host_gib": round(self.memory.host / GIB, 2),
            "step_s": self.step.seconds, "step": self.step.parts(), "mfu": self.step.mfu,
            "items_per_s": self.step.rate, "cost_per_billion": self.step.per_billion, "seconds": self.seconds,
            "cost": self.cost, "words": self.words, "factor": self.step.factor,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Refused:
    """A layout that can't be had, and why, in a sentence."""

    device: str
    devices: int
    layout: str
    why: str

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclass(frozen=True, slots=True)
class Answer:
    """Everything that `muster plan` shows."""

    options: list[Option]  # those that fit, by device and number
    refused: list[Refused]
    simplest: Option | None  # of those within the deadline and the budget
    cheapest: Option | None  # of them, too
    stops: Mapping[str, str]  # device → from where on more of it pays no longer
    cheaper: list[str]  # what would let a cheaper device do

    def to_dict(self) -> dict[str, Any]:
        return {
            "options": [each.to_dict() for each in self.options],
            "refused": [each.to_dict() for each in self.refused],
            "simplest": self.simplest.to_dict() if self.simplest else None,
            "cheapest": self.cheapest.to_dict() if self.cheapest else None,
            "stops_paying": dict(self.stops),
            "cheaper": self.cheaper,
        }


def predict(setup: Setup, layout: Layout, device: Device, items: float = 0.0) -> Option:
    """One layout, as it is. Raises PlanError if the device can't compute so."""
    setup = computes(device, setup)
    memory = peak(setup, layout)
    memory = replace(memory, buffers=memory.buffers + scores(setup, layout, device))
    return Option(device, layout, setup, memory, step(setup, layout, device), items or setup.tokens)


def search(
    setup: Setup,
    devices: Sequence[Device],
    counts: Sequence[int],
    items: float,
    deadline: float | None = None,
    budget: float | None = None,
) -> Answer:
    """Raises nothing for what does not fit: that is `refused`."""
    options: list[Option] = []
    refused: list[Refused] = []
    for device in devices:
        for count in counts:
            for layout in layouts(count, setup, device):
                if why := cannot(setup, layout, device):
                    refused.append(Refused(device.name, count, str(layout), why))
                    continue
                found = lightest(setup, layout, device, items)
                if found.fits:
                    options.append(found)
                else:
                    refused.append(Refused(device.name, count, str(layout), too_large(found)))
    within = [each for each in options if _within(each, deadline, budget)]
    simplest = min(within, key=lambda each: (each.complexity, each.layout.devices, each.cost), default=None)
    return Answer(
        options=options,
        refused=refused,
        simplest=simplest,
        cheapest=min(within, key=lambda each: each.cost, default=None),
        stops={device.name: text for device in devices if (text := _stops(device, options))},
        cheaper=_cheaper(setup, devices, counts, options, simplest, (deadline, budget), items),
    )


def layouts(count: int, setup: Setup, device: Device) -> Iterator[Layout]:
    """The layouts of so many devices, simple ones first. Sharding stays within a machine if there are several."""
    seen: set[Layout] = set()
    divisible = isinstance(setup.model, Shape)
    for pp in _PPS if divisible else (1,):
        for tp in _TPS if divisible else (1,):
            if count % (pp * tp) or tp > device.per_node:
                continue
            rest = count // (pp * tp)
            inside = max(1, min(rest, device.per_node // tp))
            for fsdp in (1, inside, rest):
                layout = Layout(dp=rest // fsdp, fsdp=fsdp, tp=tp, pp=pp)
                if rest % fsdp == 0 and layout not in seen:
                    seen.add(layout)
                    yield layout


def cannot(setup: Setup, layout: Layout, device: Device) -> str:
    """Why the model can't be divided so, in a sentence; "" if it can. As `muster.train` refuses it."""
    try:
        setup = computes(device, setup)
    except PlanError as error:
        return f"{error}."
    model, tp, pp = setup.model, layout.tp, layout.pp
    if layout.data > setup.batch:
        return f"A batch of {setup.batch} samples gives {layout.data} data ranks less than one each."
    if isinstance(model, Shape):
        for size, what in ((model.heads, "heads"), (model.kv_heads, "KV heads"), (model.ffn, "FFN columns")):
            if size % tp:
                return f"{size} {what} don't divide by tp {tp}."
        if pp > model.layers:
            return f"{model.layers} layers are fewer than pp {pp} stages."
        if pp > 1 and model.tied:
            return f"A tied head would need the embedding on the first and the last of pp {pp} stages."
        if (tp > 1 or pp > 1) and model.experts > 1:
            return "Experts are planned with data and sharded parallelism alone."
    if pp > 1 and setup.batch % layout.data:
        return f"A pipeline needs equal shares: {setup.batch} samples don't divide by {layout.data} data ranks."
    if setup.compute == "fp8" and tp > 1:
        return f"Products in fp8 take no tp {tp}."
    if setup.offload and layout.fsdp == 1:
        return "`parallel.offload` moves shards: it needs fsdp 2 or more."
    return ""


def lightest(setup: Setup, layout: Layout, device: Device, items: float) -> Option:
    """The fastest variation that fits, of smaller micro-batches and more recomputation. If none does, that which needs
    least. What the setup asks for already is never taken away."""
    first = _RECOMPUTE.index(setup.recompute)
    tried = []
    for recompute in _RECOMPUTE[first:] if isinstance(setup.model, Shape) else _RECOMPUTE[first : first + 1]:
        for size in _micro_sizes(setup, layout):
            changed = replace(setup, recompute=recompute, micro_batch=size)
            tried.append(predict(changed, layout, device, items))
    fitting = [each for each in tried if each.fits]
    if fitting:
        return min(fitting, key=lambda each: each.seconds * (1.005 if each.setup.micros(layout) > 1 else 1.0))
    return min(tried, key=lambda each: each.memory.total)


def too_large(option: Option) -> str:
    """Why it does not fit, in a sentence."""
    parts = option.memory.parts()
    most = max(parts, key=lambda name: parts[name])
    return (
        f"It needs {option.memory.total / GIB:.0f} GiB of {option.device.memory_gib:.0f}, also with {_tried(option)}; "
        f"{parts[most] / GIB:.0f} GiB of it are {'the ' if most != 'weights' else ''}{_NAMES[most]}."
    )


def _tried(option: Option) -> str:
    size = option.setup.micro_samples(option.layout)
    return f"a micro-batch of {size} and recomputation {option.setup.recompute}"


def _micro_sizes(setup: Setup, layout: Layout) -> Iterator[int | None]:
    share = -(-setup.batch // layout.data)
    if layout.pp > 1:  # a bubble of a fifth at most, if the batch has so many samples
        sizes = [size for size in _halves(share) if share % size == 0]
        many = [size for size in sizes if share // size >= 4 * (layout.pp - 1)]
        yield from many or sizes[-1:]
        return
    most = min(share, setup.micro_batch or share)
    yield from (None if size == share else size for size in _halves(most))


def _halves(size: int) -> Iterator[int]:
    while size > 1:
        yield size
        size = -(-size // 2)
    yield 1


def _within(option: Option, deadline: float | None, budget: float | None) -> bool:
    return (deadline is None or option.seconds <= deadline) and (budget is None or option.cost <= budget)


def _stops(device: Device, options: Sequence[Option]) -> str:
    """The number of devices from which on more of them buy little time."""
    best: dict[int, float] = {}
    for each in options:
        if each.device.name == device.name:
            count = each.layout.devices
            best[count] = min(best.get(count, each.seconds), each.seconds)
    for few, many in pairwise(sorted(best)):
        gained = best[few] / best[many]
        if gained < _PAYS * many / few:
            return (
                f"beyond {few}: {many} take {1 / gained:.0%} of the time for {many / few / gained:.1f} times the cost"
            )
    return ""


def _cheaper(
    setup: Setup,
    devices: Sequence[Device],
    counts: Sequence[int],
    options: Sequence[Option],
    than: Option | None,
    limits: tuple[float | None, float | None],
    items: float,
) -> list[str]:
    """For each device that costs less an hour than the answer: what lets as few of them do, where the setup as it is
    doesn't fit."""
    most = than.layout.devices if than else min(counts)
    few = [count for count in counts if count <= most]
    found = []
    for device in sorted(devices, key=lambda each: each.price):
        if than is not None and device.price >= than.device.price:
            continue
        mine = [each for each in options if each.device.name == device.name and each.layout.devices <= most]
        if any(each.setup.recompute == setup.recompute for each in mine):
            continue
        best = min(mine, key=lambda each: each.cost, default=None) or _helped(setup, device, few, items)
        if best is None:
            found.append(f"{device.name}: not on {most}, neither with recomputation nor offload nor LoRA.")
            continue
        adapted = ", which trains adapters and not the model" if best.setup.lora else ""
        took = f"{format_seconds(best.seconds)}, {best.cost:,.0f} USD"
        found.append(
            f"{device.name}: {best.layout.devices} do with {best.words}{adapted}: {took}{_late(best, *limits)}."
        )
    return found


def _helped(setup: Setup, device: Device, counts: Sequence[int], items: float) -> Option | None:
    """With offload, else with LoRA: on as few devices as do."""
    offloaded, adapted = replace(setup, offload=True), replace(setup, lora=_LORA)
    for changed in (offloaded, adapted) if isinstance(setup.model, Shape) else (offloaded,):
        for count in counts:
            for layout in layouts(count, changed, device):
                if layout.tp == layout.pp == 1 and not cannot(changed, layout, device):
                    found = lightest(changed, layout, device, items)
                    if found.fits:
                        return found
    return None


def format_seconds(seconds: float) -> str:
    """For people: 1.5 h, 3.2 days."""
    for unit, length in (("days", 172_800), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / (86_400 if unit == 'days' else length):,.1f} {unit}"
    return f"{seconds:.1f} s"


def _late(option: Option, deadline: float | None, budget: float | None) -> str:
    late = deadline is not None and option.seconds > deadline
    dear = budget is not None and option.cost > budget
    return (
        " (late and over the budget)" if late and dear else " (late)" if late else " (over the budget)" if dear else ""
    )


_NAMES: Final = {
    "weights": "weights", "optimizer": "optimizer's moments", "gradients": "gradients", "activations": "activations",
    "loss": "logits and the loss", "buffers": "buffers", "reserve": "reserve of CUDA and the allocator",
}  # fmt: skip
