"""The answers of a company's own checks about one job: asked before the commit, read by the admission within it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

from muster.admission import Job
from muster.control.admission.inspected import NOTHING, Inspected
from muster.core.array import parse_array
from muster.core.reasons import Reason
from muster.core.spec import JobSpec, ask, ranks_per_node


@dataclass(frozen=True, slots=True)
class Verdict:
    """What all of them said together."""

    reasons: tuple[Reason, ...] = ()  # against the job
    warnings: tuple[str, ...] = ()


NO_VERDICT: Final = Verdict()


class Asking(Protocol):
    """Looks into the jobs of one request. It may take seconds: never call it while commits wait."""

    def inspect(self, spec: JobSpec, user: str, tree: str) -> Inspected:
        """`tree`: digest of the snapshot of the job's working directory, or ""."""

    def ask(self, spec: JobSpec, user: str, trusted: bool) -> Verdict: ...

    def take_warnings(self) -> list[str]:
        """The warnings since the last call."""

    def warn(self, warnings: Sequence[str]) -> None: ...


class _Nobody:
    def inspect(self, spec: JobSpec, user: str, tree: str) -> Inspected:
        return NOTHING

    def warn(self, warnings: Sequence[str]) -> None:
        pass

    def ask(self, spec: JobSpec, user: str, trusted: bool) -> Verdict:
        return NO_VERDICT

    def take_warnings(self) -> list[str]:
        return []


NOBODY: Final = _Nobody()


def plain_view(spec: JobSpec, user: str, trusted: bool) -> Job:
    """What the checks may see of the job: no values of variables, and none of secrets."""
    wants = ask(spec)
    resources = {
        "accelerator": wants.accelerator, "accelerators": wants.accelerators * wants.share / 1000,
        "cpus": wants.milli_cpus / 1000, "memory": wants.memory,
    }  # fmt: skip
    return Job(
        name=spec.name, kind=spec.kind, user=user, project=spec.project, queue=spec.queue, pool=spec.pool,
        priority=spec.priority, run=spec.run, workdir=spec.workdir, image=spec.image, num_nodes=spec.num_nodes,
        min_nodes=spec.min_nodes, ranks_per_node=ranks_per_node(spec), resources=MappingProxyType(resources),
        env_names=tuple(spec.envs), secret_names=tuple(spec.secrets), data=tuple(spec.data),
        tags=MappingProxyType(dict(spec.tags)), purpose=spec.purpose, use_spot=spec.use_spot,
        max_duration=spec.max_duration, budget=spec.budget,
        array_tasks=len(parse_array(spec.array).indexes) if spec.array is not None else 1,
        start_from=spec.start_from, administrator=trusted,
    )  # fmt: skip


def plain_doc(job: Job) -> dict[str, object]:
    """The view as JSON."""
    found: dict[str, object] = {}
    for name in Job.__dataclass_fields__:
        value = getattr(job, name)
        found[name] = dict(value) if isinstance(value, Mapping) else list(value) if isinstance(value, tuple) else value
    return found
