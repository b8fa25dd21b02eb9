"""Converts the options of an sbatch script into fields of a job file. Options without a field get a message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from muster.foreign import sbatch_readers as readers
from muster.foreign.sbatch import Option, Script
from muster.foreign.sbatch_readers import Reader
from muster.foreign.sbatch_shape import Message, Shape, Unconvertible


def read_options(script: Script) -> Shape:
    shape = Shape(named=set(script.last))
    for option in script.options:
        if not option.name:
            shape.lost.append(Message(option.line, option.written, "is no option of sbatch that is known: look it up."))
        elif script.last[option.name] is not option:
            shape.lost.append(Message(option.line, option.written, "is given again below, and that counts."))
    given = script.last
    # Nodes first, then the counts per node.
    for name in sorted(given, key=lambda name: _ORDER.get(name, 9)):
        _read(given[name], given, shape)
    for option in script.late:
        shape.lost.append(Message(option.line, option.written, "stands after the first command: Slurm ignores it too."))
    for number, component in enumerate(script.others, start=2):
        words = " ".join(option.written for option in component)
        line = component[0].line if component else 0
        became = (
            "is another kind of node in the same job: write a job file for each, with one `group`, and submit both."
        )
        shape.lost.append(Message(line, f"component {number} ({words})", became))
    return shape


def _read(option: Option, given: Mapping[str, Option], shape: Shape) -> None:
    try:
        became = _READERS.get(option.name, _unknown)(option, given, shape)
    except Unconvertible as odd:
        shape.lost.append(Message(option.line, option.written, str(odd)))
        return
    if became:
        shape.carried.append(Message(option.line, option.written, became))


def _unknown(option: Option, given: Mapping[str, Option], shape: Shape) -> str:
    if option.name in _NOWHERE:
        raise Unconvertible(_NOWHERE[option.name])
    return readers.for_slurm(option, given, shape)


_ORDER: Final = {
    "nodes": 0, "ntasks-per-node": 1, "ntasks": 2, "gres": 3, "gpus": 3, "gpus-per-node": 3, "gpus-per-task": 3,
    "ntasks-per-gpu": 4, "cpus-per-task": 5, "cpus-per-gpu": 5,
}  # fmt: skip
_READERS: Final[dict[str, Reader]] = {
    "nodes": readers.nodes,
    "ntasks": readers.ntasks,
    "ntasks-per-node": readers.tasks_per_node,
    "ntasks-per-gpu": readers.tasks_per_gpu,
    "gpus": readers.gpus,
    "gpus-per-node": readers.gpus,
    "gpus-per-task": readers.gpus,
    "gres": readers.gres,
    "cpus-per-task": readers.cpus,
    "cpus-per-gpu": readers.cpus,
    "mem": readers.memory,
    "mem-per-cpu": readers.memory,
    "mem-per-gpu": readers.memory,
    "time": readers.time,
    "partition": readers.partition,
    "signal": readers.signal,
    "export": readers.export,
    "array": readers.array,
    "dependency": readers.dependency,
    "exclusive": readers.exclusive,
    "requeue": readers.requeue,
    "no-requeue": readers.requeue,
    "nice": readers.nice,
    "chdir": readers.chdir,
    "job-name": readers.into_field("name"),
    "comment": readers.into_field("purpose"),
    "wrap": readers.into_field("run"),
    **{name: readers.into_section(name) for name in ("account", "constraint", "exclude", "nodelist", "qos")},
    "reservation": readers.into_section("reservation"),
}
_LOGS: Final = "has no place: Muster keeps what every rank writes. Read it with `muster logs JOB`."
_MAIL: Final = "has no place: Muster sends no mail. Wait with `muster submit --watch`, or follow `muster events`."
_ONLY_SBATCH: Final = "is for the call of sbatch alone."
_NOWHERE: Final = {
    "output": _LOGS,
    "error": _LOGS,
    "open-mode": _LOGS,
    "input": "has no place: write `< FILE` behind the command in `run`.",
    "mail-type": _MAIL,
    "mail-user": _MAIL,
    "hold": "has no place: submit it when it may start.",
    "begin": "has no place: submit it then, or set `off_peak: true`.",
    "container": "names a bundle on the nodes: name an image as `image`.",
    "clusters": "has no place: `pool` says where it runs.",
    "export-file": "has no place: write the variables as `envs`.",
    "get-user-env": "has no place: write the variables as `envs`, or source your profile in `run`.",
    "nodefile": "has no place: write the nodes as `slurm.nodelist`.",
    "gpus-per-socket": "has no place: write `resources.accelerators` for each node.",
    "uid": "has no place: jobs run as whom the engine's settings say.",
    "gid": "has no place: jobs run as whom the engine's settings say.",
    "x11": "has no place: a job has no screen.",
    "no-kill": "has no place: a gang that loses a node starts again whole, from its checkpoint.",
    **dict.fromkeys(
        ("parsable", "quiet", "verbose", "version", "wait", "test-only", "help", "usage", "ignore-pbs"), _ONLY_SBATCH
    ),
}
