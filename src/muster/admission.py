"""What admission plug-ins see and answer: a plain view of a job, `Warn` and `Refuse`. Standard library only.

A company's own check is a function of a package that is installed beside the server:

    from muster.admission import Job, Refuse

    def cost_centre(job: Job) -> Refuse | None:
        if job.tags.get("cost-centre", "").startswith("R"):
            return None
        return Refuse("it has no cost centre", "Add `tags: {cost-centre: R123}`.")

    # pyproject.toml:  [project.entry-points."muster.admission"]
    #                  cost-centre = "our_package:cost_centre"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

GROUP: Final = "muster.admission"  # of entry points


@dataclass(frozen=True, slots=True)
class Job:
    """One submitted job. Mappings can't be changed. Names of variables and secrets are here, values never are."""

    name: str
    kind: str
    user: str
    project: str
    queue: str
    pool: str | None
    priority: int
    run: str  # the command as it was written
    workdir: str | None
    image: str | None
    num_nodes: int
    min_nodes: int | None
    ranks_per_node: int
    resources: Mapping[str, Any]  # of each node: accelerator, accelerators, cpus, memory (bytes)
    env_names: tuple[str, ...]
    secret_names: tuple[str, ...]
    data: tuple[str, ...]
    tags: Mapping[str, str]
    purpose: str | None
    use_spot: bool
    max_duration: float | None  # seconds
    budget: str | None
    array_tasks: int  # 1 unless it is an array
    start_from: str | None
    administrator: bool  # whether an administrator of the server submits it


@dataclass(frozen=True, slots=True)
class Warn:
    """The job is accepted, and whoever submits it is told."""

    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The job is not accepted. `message` says why, `hint` what to do about it."""

    message: str
    hint: str = ""


Answer = Warn | Refuse | None
Plugin = Callable[[Job], Answer]
