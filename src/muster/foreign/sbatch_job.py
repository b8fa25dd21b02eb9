"""Converts an sbatch script into the content of a job file, with a message for every option and line that changes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from muster.foreign.sbatch import Script, parse_script
from muster.foreign.sbatch_body import Body, read_body
from muster.foreign.sbatch_names import rename
from muster.foreign.sbatch_options import read_options
from muster.foreign.sbatch_shape import Message, Shape

# Order of the fields in a job file.
_FIELDS: Final = (
    "name", "pool", "array", "needs", "purpose", "workdir", "run", "num_nodes", "nproc", "resources", "envs",
    "max_duration", "image", "slurm",
)  # fmt: skip
_SHELLS: Final = ("bash", "sh", "dash", "ksh")
_ALL_GPUS: Final = re.compile(
    r"gpu|auto|\$\{?#?(SLURM_)?(GPU|NGPU|NUM_GPU|CUDA|NPROC|nproc|gpu)\w*\}?.*", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Imported:
    """The result. `job` is the content of the job file; the messages are in the order of the script's lines."""

    job: dict[str, Any]
    carried: Sequence[Message]
    lost: Sequence[Message]
    notes: Sequence[Message]


def read_job(text: str, file: str) -> Imported:
    """Converts a script. `file` is its name. Raises ValueError if it has no command."""
    script = parse_script(text)
    shape = read_options(script)
    fields = shape.fields
    if not _is_shell(script):
        return _foreign(script, shape, file)
    wrapped = fields.pop("run", "")
    body = read_body(wrapped or script.body, shape)
    _ranks(body, shape)
    by_node = body.starter == "torchrun" and shape.tasks == 1
    run, renamed = rename(body.text, script.body, shape, by_node)
    if not re.sub(r"(?m)^\s*#.*$", "", run).strip():
        raise ValueError(f"{file} has no command")
    fields["run"] = _profile(script, body, shape) + run
    _place(body, shape)
    shape.carried += body.carried
    shape.lost += body.lost
    shape.notes += [*body.notes, *renamed]
    return _done(shape)


def _is_shell(script: Script) -> bool:
    words = script.interpreter.split()
    program = words[1] if len(words) > 1 and PurePosixPath(words[0]).name == "env" else (words or ["sh"])[0]
    return PurePosixPath(program).name in _SHELLS


def _foreign(script: Script, shape: Shape, file: str) -> Imported:
    """Converts a script in Python or another language: its directives are comments there, so it runs unchanged."""
    shape.fields["run"] = f"{script.interpreter} {_quoted(file)}"
    told = f"is no shell: every rank runs {file} itself, beside the job file."
    shape.notes.append(Message(1, f"#!{script.interpreter}", told))
    if shape.tasks * shape.nodes > 1:
        shape.fields["nproc"] = shape.tasks
    return _done(shape)


def _ranks(body: Body, shape: Shape) -> None:
    """Sets the number of ranks on each node. It depends on what starts them."""
    wanted = shape.tasks if body.starter == "srun" else 1
    if body.starter == "torchrun":
        if body.nproc.isdigit():
            wanted = int(body.nproc)
        else:
            wanted = max(1, shape.accelerators)
            if not _ALL_GPUS.fullmatch(body.nproc) or not shape.accelerators:
                told = f"is {body.nproc}, which is not known here: `nproc` is {wanted}. Set it if that is wrong."
                shape.notes.append(Message(0, "torchrun --nproc-per-node", told))
        _nnodes(body, shape)
    if wanted != max(1, shape.accelerators):
        shape.fields["nproc"] = wanted
    if body.starter == "" and shape.nodes * shape.tasks > 1:
        told = "ran on the first node alone, for lack of an srun: in Muster every rank runs it, one on each node."
        shape.notes.append(Message(0, "the script", told))
    elif body.outside and wanted * shape.nodes > 1:
        told = 'ran once in Slurm and runs in every rank here: guard it with `[ "$RANK" = 0 ] &&` where that matters.'
        starter = "the launcher" if body.starter == "own" else body.starter
        shape.notes.append(Message(0, f"what is not under {starter}", told))
    if body.steps > 1:
        told = "follow one another in each rank, which does not wait for the other ranks between them."
        shape.notes.append(Message(0, f"the {body.steps} steps under srun", told))


def _place(body: Body, shape: Shape) -> None:
    """Sets image and working directory from the options of srun."""
    # The container plug-in writes registry and image as `nvcr.io#nvidia/pytorch:1`.
    image = body.image.removeprefix("docker://").replace("#", "/", 1)
    if image.startswith(("/", ".", "$")) or image.endswith(".sqsh"):
        told = "is a file on the nodes: name the image in a registry as `image`, for engines that run containers."
        shape.lost.append(Message(body.image_line, f"srun --container-image={body.image}", told))
    elif image:
        shape.fields["image"] = image
        shape.carried.append(Message(body.image_line, f"srun --container-image={body.image}", "image"))
    if body.workdir:
        shape.fields.setdefault("workdir", body.workdir)


def _nnodes(body: Body, shape: Shape) -> None:
    least, colon, most = body.nnodes.partition(":")
    if "num_nodes" in shape.fields or not least.isdigit() or (colon and not most.isdigit()):
        return
    if int(most or least) > 1:
        shape.nodes = int(most or least)
        shape.fields["num_nodes"] = {"min": int(least), "max": int(most)} if colon else int(least)
        shape.carried.append(Message(0, f"torchrun --nnodes={body.nnodes}", "num_nodes"))


def _profile(script: Script, body: Body, shape: Shape) -> str:
    """A line that loads the profile, for a login shell and for `module`, which needs a login's setup; else ""."""
    login = bool(re.search(r"\s-\w*l|--login", script.interpreter))
    if not login and not body.modules:
        return ""
    why = "a login shell" if login else "`module`, which a login shell defines"
    shape.notes.append(
        Message(1, "the shell", f"is no login shell in Muster: `run` begins with /etc/profile, for {why}.")
    )
    return ". /etc/profile\n"


def _done(shape: Shape) -> Imported:
    if shape.slurm:
        shape.fields["slurm"] = shape.slurm
    job: dict[str, Any] = {name: shape.fields[name] for name in _FIELDS if name in shape.fields}

    def in_order(told: Sequence[Message]) -> list[Message]:
        return sorted(told, key=lambda one: one.line)

    return Imported(job, in_order(shape.carried), in_order(shape.lost), in_order(shape.notes))


def _quoted(text: str) -> str:
    return text if re.fullmatch(r"[\w./@%+=:,-]+", text) else "'" + text.replace("'", "'\\''") + "'"
