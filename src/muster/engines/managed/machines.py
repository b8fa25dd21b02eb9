"""The machine types of a managed service, and the choice of the smallest one that holds a job's request per node."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from muster.core.errors import Problem, SpecError
from muster.core.resources import Resources
from muster.core.units import ANY_ACCELERATOR

GIB: Final = 2**30


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine type, as in the vendor's documentation."""

    name: str
    cpus: int
    memory: int  # GiB
    kind: str = ""  # of its accelerators, as in a job file
    count: int = 0
    size: int = 0  # GB of memory on each accelerator
    code: str = ""  # the service's name for the accelerator, where it must be given


def accelerated(kind: str, size: int, types: str, code: str = "") -> Iterator[Machine]:
    """Machine types of one accelerator, written as `name count cpus memory` and separated by commas."""
    for row in types.split(","):
        name, count, cpus, memory = row.split()
        yield Machine(name, int(cpus), int(memory), kind, int(count), size, code)


def plain(types: str) -> Iterator[Machine]:
    """Machine types without accelerators, written as `name cpus memory` and separated by commas."""
    for row in types.split(","):
        name, cpus, memory = row.split()
        yield Machine(name, int(cpus), int(memory))


def pick(given: str, ask: Resources, machines: Sequence[Machine], field: str, source: str) -> Machine:
    """The machine type that the job file names as `field`, or the smallest that holds what it asks for."""
    return named(given, ask, machines, field, source) if given else choose(ask, machines, field, source)


def choose(ask: Resources, machines: Sequence[Machine], field: str, source: str) -> Machine:
    """The smallest machine type that holds `ask`.
    Raises SpecError that lists what there is; `field` overrides the choice."""
    fitting = [machine for machine in machines if not lacks(machine, ask)]
    if fitting:
        # Without accelerators in the request, machines without accelerators come first;
        # among equals the table's order counts.
        return min(fitting, key=lambda machine: (machine.count, machine.cpus, machine.memory))
    alike = [machine for machine in machines if not ask.accelerators or _is_kind(machine, ask)]
    if alike:
        most = max(alike, key=lambda machine: (machine.count, machine.cpus))
        hint = f"Ask for less on each node and for more nodes: {most.name} has {_words(most)}. Or name {field}."
        raise SpecError([Problem("resources", str(ask), "what one machine type has", hint)], source)
    kinds = ", ".join(sorted({f"{machine.kind} ({machine.size} GB)" for machine in machines if machine.kind}))
    hint = f"Choose one of these, or name a machine type of your own as {field}."
    raise SpecError([Problem("resources.accelerators", str(ask), f"one of {kinds}", hint)], source)


def named(name: str, ask: Resources, machines: Sequence[Machine], field: str, source: str) -> Machine:
    """The machine type that the job file names. One that is not in the table is accepted unchecked."""
    found = next((machine for machine in machines if machine.name == name), None)
    if found is None:
        return Machine(name, 0, 0)
    if missing := lacks(found, ask):
        hint = "Name a larger one, or leave it out: it is chosen by `resources` then."
        raise SpecError([Problem(field, name, f"a machine type that holds {ask} ({missing})", hint)], source)
    return found


def lacks(machine: Machine, ask: Resources) -> str:
    """What the machine does not have of `ask`, in words; "" when it fits."""
    if ask.accelerators and not _is_kind(machine, ask):
        return f"it has {machine.kind or 'no accelerators'}"
    if machine.count < ask.accelerators:
        return f"it has {machine.count} {machine.kind}"
    if machine.size * 10**9 < ask.accelerator_memory:
        return f"its accelerators have {machine.size} GB"
    if machine.cpus * 1000 < ask.milli_cpus:
        return f"it has {machine.cpus} CPUs"
    if machine.memory * GIB < ask.memory:
        return f"it has {machine.memory} GiB of memory"
    return ""


def surplus(machine: Machine, ask: Resources) -> str:
    """A sentence when the job pays for more accelerators than it asks for; else ""."""
    if machine.count <= ask.weight:
        return ""
    asked = f"{ask.weight:g} {ask.accelerator}" if ask.accelerators else "none"
    return f"{machine.name} has {machine.count} {machine.kind} and the job asks for {asked}: all of them are paid for."


def _is_kind(machine: Machine, ask: Resources) -> bool:
    """Whether the machine has the requested kind: `A100` is any A100, `A100-80GB` the one of that size."""
    if ask.accelerator == ANY_ACCELERATOR:
        return machine.count > 0 and not machine.kind.startswith("TRAINIUM")  # no program runs on both
    names = {machine.kind, f"{machine.kind}{machine.size}GB", f"{machine.kind}{machine.size}G"}
    return _bare(ask.accelerator) in map(_bare, names)


def _bare(name: str) -> str:
    return re.sub(r"[^A-Z0-9]", "", name.upper()).removeprefix("NVIDIA").removeprefix("TESLA")


def _words(machine: Machine) -> str:
    accelerators = f"{machine.count} {machine.kind} of {machine.size} GB, " if machine.count else ""
    return f"{accelerators}{machine.cpus} CPUs and {machine.memory} GiB"
