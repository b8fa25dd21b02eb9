"""Renames Slurm's environment variables in a script to those of a Muster job."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from muster.foreign.sbatch_shape import Message, Shape
from muster.foreign.shell import line_of

_NODES: Final = "((WORLD_SIZE / LOCAL_WORLD_SIZE))"
_SAME: Final = {
    "SLURM_JOB_ID": "MUSTER_JOB",
    "SLURM_JOBID": "MUSTER_JOB",
    "SLURM_ARRAY_JOB_ID": "MUSTER_JOB",
    "SLURMD_NODENAME": "MUSTER_NODE",
    "SLURM_TOPOLOGY_ADDR": "MUSTER_NODE",
    "SLURM_NODEID": "NODE_RANK",
    "SLURM_NNODES": _NODES,
    "SLURM_JOB_NUM_NODES": _NODES,
    "SLURM_RESTART_COUNT": "((MUSTER_ATTEMPT - 1))",
    "SLURM_SUBMIT_DIR": "PWD",
    "SLURM_JOB_USER": "USER",
    "SLURM_TMPDIR": "TMPDIR",
}
_BY_RANK: Final = {
    "SLURM_PROCID": "RANK",
    "SLURM_LOCALID": "LOCAL_RANK",
    "SLURM_NTASKS": "WORLD_SIZE",
    "SLURM_NPROCS": "WORLD_SIZE",
    "SLURM_NTASKS_PER_NODE": "LOCAL_WORLD_SIZE",
    "SLURM_STEP_NUM_TASKS": "WORLD_SIZE",
}
# Where torchrun started the ranks, a Slurm task was a node.
_BY_NODE: Final = {"SLURM_PROCID": "NODE_RANK", "SLURM_NTASKS": _NODES, "SLURM_NPROCS": _NODES}
_NONE: Final = {
    "SLURM_JOB_NODELIST": "no rank knows the list of nodes; the first of them is $MASTER_ADDR",
    "SLURM_NODELIST": "no rank knows the list of nodes; the first of them is $MASTER_ADDR",
    "SLURM_STEP_NODELIST": "no rank knows the list of nodes; the first of them is $MASTER_ADDR",
    "SLURM_LAUNCH_NODE_IPADDR": "the first node is $MASTER_ADDR",
    "SLURM_TASKS_PER_NODE": "the ranks of a node are $LOCAL_WORLD_SIZE",
    "SLURM_JOB_END_TIME": "a program that uses Muster is told when to save",
}
# Tasks of an array find these as in Slurm.
_OF_ARRAYS: Final = frozenset(
    f"SLURM_ARRAY_{name}" for name in ("JOB_ID", "TASK_ID", "TASK_COUNT", "TASK_MIN", "TASK_MAX")
)
_USED: Final = re.compile(r"\bSLURMD?_[A-Z0-9_]+")


def rename(text: str, original: str, shape: Shape, by_node: bool) -> tuple[str, list[Message]]:
    """`text` with Muster's names, and a message for each change. Line numbers are those of `original`."""
    told: list[Message] = []
    names = {**_SAME, **_BY_RANK, **(_BY_NODE if by_node else {}), **_known(shape)}
    for name in sorted(set(_USED.findall(text))):
        if name in shape.fields.get("envs", {}) or ("array" in shape.fields and name in _OF_ARRAYS):
            continue
        at = re.search(rf"\b{name}\b", original)
        line = line_of(original, at.start()) if at else 0
        text, became = _renamed(text, name, names.get(name, ""))
        if became:
            told.append(Message(line, f"${name}", f"is now {became}."))
        if re.search(rf"\b{name}\b", text):
            told.append(Message(line, name, _left(name, names)))
    return text, told


def _known(shape: Shape) -> Mapping[str, str]:
    """Values of Slurm's variables that the options determine. A leading `=` marks a value, in contrast to a name."""
    asked = shape.fields.get("resources", {})
    known = {"SLURM_JOB_NAME": shape.fields.get("name"), "SLURM_JOB_PARTITION": shape.fields.get("pool")}
    if "cpus-per-task" in shape.named and "cpus" in asked:
        known["SLURM_CPUS_PER_TASK"] = str(asked["cpus"] // max(1, shape.tasks))
        known["SLURM_CPUS_ON_NODE"] = str(asked["cpus"])
    if shape.accelerators:
        known |= dict.fromkeys(("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"), str(shape.accelerators))
    return {name: f"={value}" for name, value in known.items() if value}


def _renamed(text: str, name: str, new: str) -> tuple[str, str]:
    """Replaces `$NAME` and `${NAME}`, and `${NAME:-x}` only if the new text is a name too.

    Returns the text and the replacement, "" if nothing changed.
    """
    if not new:
        return text, ""
    if new.startswith("="):
        shown, plain, inside = new[1:], new[1:], None
    elif new.startswith("(("):
        shown, plain, inside = f"${new}", f"${new}", None
    else:
        shown, plain, inside = f"${new}", f"${new}", f"${{{new}"
    # A default is for a variable that may be unset; a number or an arithmetic expansion is always set.
    braced = rf"\$\{{{name}\}}" if inside else rf"\$\{{{name}(:?-[^{{}}$]*)?\}}"
    made = re.sub(braced, lambda _: f"${{{new}}}" if inside else plain, text)
    made = re.sub(rf"\${name}\b", lambda _: plain, made)
    if inside:
        made = re.sub(rf"\$\{{{name}(?=[:%#/^,+=?-])", lambda _: inside, made)
        made = re.sub(rf"(?<=\$\(\()([^()]*)\b{name}\b", lambda found: f"{found[1]}{new}", made)
    return made, shown if made != text else ""


def _left(name: str, names: Mapping[str, str]) -> str:
    if name in _NONE:
        return f"is Slurm's, and another engine does not set it: {_NONE[name]}."
    new = names.get(name, "")
    if new.startswith("="):
        return f"is Slurm's, and another engine does not set it: it is {new[1:]} here."
    if new:
        return f"is Slurm's: it is ${new} here, and could not be changed where it stands."
    return "is Slurm's, and another engine does not set it."
