"""A function for each sbatch option that a job file has a field for: fills in the shape and returns the field."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Final

from muster.foreign.sbatch import Option
from muster.foreign.sbatch_shape import RANK_NAMES, Message, Shape, Unconvertible, megabytes, seconds, whole

# Arguments: the option, all given options, and the shape to fill in. Raises Odd for a value that can't be converted.
Reader = Callable[[Option, Mapping[str, Option], Shape], str]


def for_slurm(option: Option, given: Mapping[str, Option], shape: Shape) -> str:
    """Passes an option that only Slurm understands to Slurm unchanged."""
    text = f"--{option.name}={option.value}" if option.value else f"--{option.name}"
    shape.slurm.setdefault("extra", []).append(text)
    return "slurm.extra"


def nodes(option: Option, given: Mapping[str, Option], shape: Shape) -> str:
    low, dash, high = option.value.partition("-")
    least = whole(low, "nodes")
    most = whole(high, "nodes") if dash else least
    shape.nodes = most
    shape.fields["num_nodes"] = most if least == most else {"min": least, "max": most}
    return "num_nodes"


def ntasks(option: Option, given: Mapping[str, Option], shape: Shape) -> str:
    total = whole(option.value, "tasks")
    if "ntasks-per-node" in given:
        if "nodes" not in given:
            shape.nodes = math.ceil(total / whole(given["ntasks-per-node"].value, "tasks"))
            shape.fields["num_nodes"] = shape.nodes
            return "num_nodes"
        return "num_nodes and nproc, which say it already"
    shape.tasks = math.ceil(total / shape.nodes)
    if total % shape.nodes:
        told = f"does not come out even on {shape.nodes} nodes: {shape.tasks} ranks run on each."
        shape.notes.append(Message(option.line, option.written, told))
    elif "nodes" not in given and total > 1:
        told = f"says nothing of nodes: all {total} ranks run on one. Set `num_nodes` and `nproc` to spread them."
        shape.notes.append(Message(option.line, option.written, told))
    return "nproc"


def tasks_per_node(option: Option, given: Mapping[str, Option], shape: Shape) -> str:
    shape.tasks = whole(option.value, "tasks")
    return "nproc"


def tasks_per_gpu(option: Option, given: Mapping[str, Option], shape: Shape) -> str:
    shape.tasks = whole(option.value, "tasks") * max(1, shape.accelerators)
    return "nproc"


def gpus(option: Option, given: Mapping[str, Option], shape: Shape) -> str:
    """Converts `8` or `h100:8`, per job, node or task."""
    kind, _, count = option.value.rpartition(":")
    number = whole(count, "GPUs")
    if option.name == "gpus":
        if number % shape.nodes:
            told = f"does not come out even on {shape.nodes} nodes: each gets {math.ceil(number / shape.nodes)}."
            shape.notes.append(Message(option.line, option.written, told))
        number = math.ceil(number / shape.nodes)
    elif option.name == "gpus-per-task":
        number *= shape.tasks
    return _accelerators(kind, number, shape)


def gres(option: Option, given: Mapping[str, Option], shape: Shape) -> str:
    parts = [part for part in option.value.split(",") if part and part.lower() != "none"]
    became = []
    if not all(re.fullmatch(r"[A-Za-z][\w.:/()-]*", part) for part in parts):
        raise Unconvertible("is no list of resources: write `resources.accelerators` or `slurm.gres` yourself.")
    for part in parts:
        name, *rest = re.sub(r"\(.*?\)", "", part).removeprefix("gres/").removeprefix("gres:").split(":")
        count = rest[-1] if rest and rest[-1].isdigit() else "1"
        kind = rest[0] if rest and not rest[0].isdigit() else ""
        if name == "gpu":
            became.append(_accelerators(kind, whole(count, "GPUs"), shape))
        else:
            shape.slurm["gres"] = option.value  # the option's whole value, GPUs included
            became.append("slurm.gres")
    return ", ".join(dict.fromkeys(became)) or "no accelerators"


def _accelerators(kind: str, number: int, shape: Shape) -> str:
    if kind and not re.fullmatch(r"[A-Za-z][A-Za-z0-9._-]{0,63}", kind):
        raise Unconvertible(
            f"names a kind of GPU that a job file can't ({kind!r}): write `resources.accelerators` yourself."
        )
    shape.accelerators = number
    shape.fields.setdefault("resources", {})["accelerators"] = f"{kind.upper()}:{number}" if kind else number
    return "resources.accelerators"


def cpus(option: Option, given: Mapping[str, Option], shape: Shape) -> str:
    each = whole(option.value, "CPUs")
    many = shape.accelerators if option.name == "cpus-per-gpu" else shape.tasks
    shape.fields.setdefault("resources", {})["cpus"] = each * max(1, many)
    return "resources.cpus"


def memory(option: Option, given: Mapping[str, Option], shape: Shape) -> str:
    size = megabytes(option.value)
    if size is None:
        raise Unconvertible(
            "asks for all memory of the node: write how much it needs as `resources.memory`, or `slurm.exclusive`."
        )
    cpus = shape.fields.get("resources", {}).get("cpus", shape.tasks)
    many = {"mem": 1, "mem-per-cpu": cpus, "mem-per-gpu": max(1, shape.accelerators)}[option.name]
    shape.fields.setdefault("resources", {})["memory"] = f"{size * many}MiB"
    return "resources.memory"


def time(option: Option, given: Mapping[str, Option], shape: Shape) -> str:
    limit = seconds(option.value)
    if limit is None:
        return "no max_duration, which is no limit"
    shape.fields["max_duration"] = f"{limit:g}s"
    return "max_duration"


def partition(option: Option, given: Mapping[str, Option], shape: Shape) -> str:
    first, comma, others = option.value.partition(",")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", first):
        raise Unconvertible("is no name that a pool can have: set `pool` to the one that stands for this partition.")
    shape.fields["pool"] = first
    if comma:
        told = f"names several: `pool` is the first. Leave `pool` out to let policy choose among all ({others} too)."
        shape.notes.append(Message(option.line, option.written, told))
    return "pool"


def signal(option: Option, given: Mapping[str, Option], shape: Shape) -> str:
    found = re.fullmatch(r"(?:[RB]+:)?([A-Za-z0-9]+)(?:@(\d+))?", option.value)
    if not found or int(found[2] or 0) > 86_400:
        raise Unconvertible("is no signal and time: write `slurm.signal`, as in `slurm: {signal: 2m}`.")
    shape.slurm["signal"] = f"{found[2] or 60}s"
    told = f"was {found[1]}: a program that uses Muster is told to save, any other gets SIGTERM, in every rank."
    shape.notes.append(Message(option.line, option.written, told))
    return "slurm.signal"


def export(option: Option, given: Mapping[str, Option], shape: Shape) -> str:
    became = []
    for part in option.value.split(","):
        name, equals, value = part.partition("=")
        if equals and re.fullmatch(r"(?!MUSTER_)[A-Za-z_]\w*", name) and name not in RANK_NAMES:
            shape.fields.setdefault("envs", {})[name] = value
            became.append(f"envs.{name}")
        elif equals:
            told = f"sets {name}, which is Muster's to set on every rank, or no name that a variable can have."
            shape.notes.append(Message(option.line, option.written, told))
        elif name.upper() not in ("ALL", "NONE", "NIL"):
            told = (
                f"takes {name} from the shell that submits: give it as `envs`, or `muster submit -o envs.{name}=...`."
            )
            shape.notes.append(Message(option.line, option.written, told))
    if not became:
        raise Unconvertible(
            "is about the submitting shell's environment, which ranks don't get: name what they need in `envs`."
        )
    return ", ".join(became)


def array(option: Option, given: Mapping[str, Option], shape: Shape) -> str:
    if not _is_array(option.value):
        raise Unconvertible("is no list of indexes: write `array`, as in `array: 1-20`.")
    shape.fields["array"] = option.value
    return "array"


def _is_array(text: str) -> bool:
    """Whether a job file may have these indexes: each once, from 0 to 999,999, and at most 100,000 of them."""
    body, percent, most = text.partition("%")
    found: set[int] = set()
    for part in body.split(","):
        match = re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6})(?::([0-9]{1,6}))?)?", part, re.ASCII)
        first, last, step = (int(match[1]), int(match[2] or match[1]), int(match[3] or 1)) if match else (1, 0, 1)
        if first > last or not step or not found.isdisjoint(range(first, last + 1, step)):
            return False
        found.update(range(first, last + 1, step))
    return len(found) <= 100_000 and (not percent or (re.fullmatch(r"[0-9]{1,6}", most) is not None and int(most) > 0))


def dependency(option: Option, given: Mapping[str, Option], shape: Shape) -> str:
    needs: dict[str, str] = {}
    for part in option.value.split(","):
        kind, *jobs = part.split(":")
        needs |= {job: _OUTCOMES.get(kind, "") for job in jobs or [""]}
    if all(outcome and re.fullmatch(r"[a-z][a-z0-9-]*", job) for job, outcome in needs.items()):
        shape.fields["needs"] = needs
        return "needs"
    became = into_section("dependency")(option, given, shape)
    told = "is about jobs of Slurm. For one that is submitted to Muster write its name: `needs: [prepare]`."
    shape.notes.append(Message(option.line, option.written, told))
    return became


def into_section(name: str) -> Reader:
    def read(option: Option, given: Mapping[str, Option], shape: Shape) -> str:
        if not re.fullmatch(r"[^\s-]\S*", option.value):
            raise Unconvertible(f"has no plain value: write `slurm.{name}` yourself.")
        shape.slurm[name] = option.value
        return f"slurm.{name}"

    return read


def into_field(name: str) -> Reader:
    def read(option: Option, given: Mapping[str, Option], shape: Shape) -> str:
        shape.fields[name] = option.value
        return name

    return read


def exclusive(option: Option, given: Mapping[str, Option], shape: Shape) -> str:
    if option.value:
        return for_slurm(option, given, shape)
    shape.slurm["exclusive"] = True
    return "slurm.exclusive"


def requeue(option: Option, given: Mapping[str, Option], shape: Shape) -> str:
    shape.slurm["requeue"] = option.name == "requeue"
    return "slurm.requeue"


def nice(option: Option, given: Mapping[str, Option], shape: Shape) -> str:
    if not re.fullmatch(r"-?\d{0,9}", option.value):
        raise Unconvertible("is no whole number: write `slurm.nice` yourself.")
    shape.slurm["nice"] = option.value or "100"
    return "slurm.nice"


def chdir(option: Option, given: Mapping[str, Option], shape: Shape) -> str:
    if "%" in option.value or not option.value:
        raise Unconvertible("has a pattern of Slurm's in it: write `workdir` yourself.")
    shape.fields["workdir"] = option.value
    return "workdir"


_OUTCOMES: Final = {"afterok": "succeeded", "afterany": "ended", "afternotok": "failed"}
