"""Preflight of a job: what each rung proves and depends on, the job that a rung runs, and what makes two jobs alike."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

from muster.api.words import RUNGS, Rung
from muster.core.spec import JobSpec, Preflight
from muster.core.units import NAME_MAX

Part = Literal["code", "configuration", "data", "environment", "scale"]  # of a job: a change of it is told by its name
PARTS: Final[tuple[Part, ...]] = get_args(Part)
PROVES: Final[Mapping[Rung, str]] = {
    "unit": "The program computes what it is meant to: gradients, optimizer, masks, order in time, one batch learned.",
    "resume": "A killed run goes on from its checkpoint as if nothing had happened.",
    "smoke": "The job's own command goes its whole way on a few steps.",
    "failure": "What breaks ends as the job file says: it resumes, retries, or fails with a clear reason.",
    "canary": "With real data and configuration the loss falls, and the full run's time and cost are known.",
}
# What a rung's certificate depends on: when another part changes, it stays.
TOUCHES: Final[Mapping[Rung, tuple[Part, ...]]] = {
    "unit": ("code", "configuration", "environment"),
    "resume": ("code", "configuration", "environment"),
    "smoke": ("code", "configuration", "data", "environment"),
    "failure": ("code", "configuration", "environment"),
    "canary": PARTS,
}
STEPS: Final[Mapping[Rung, int | None]] = {"unit": None, "resume": None, "smoke": 5, "failure": None, "canary": 100}
SAVE_EVERY: Final = 1.0  # seconds, in rungs that need checkpoints
SECONDS: Final[Mapping[Rung, float]] = {
    "unit": 600.0, "resume": 900.0, "smoke": 600.0, "failure": 900.0, "canary": 1800.0,
}  # fmt: skip
SECONDS_MAX: Final = 3600.0  # that a job of a rung may ask for: it is let in without certificates
# Throughput of the whole job, by the names that `muster.train` and others report; the first that a run has.
THROUGHPUT: Final = ("tokens_per_s", "samples_per_s", "images_per_s", "examples_per_s", "items_per_s", "throughput",
                     "tokens_per_second", "samples_per_second")  # fmt: skip
_LASTING: Final = frozenset({"run", "secrets", "kind"})  # what a drill never changes
_CONFIGURATION: Final = frozenset({"run", "secrets", "kind", "start_from"})
_ENVIRONMENT: Final = frozenset({"image", "slurm", "ray", "kubernetes", "sagemaker", "vertex", "azureml"})
_SCALE: Final = frozenset({"num_nodes", "min_nodes", "nproc", "resources", "pool", "placement", "topology"})


# Which Python it is, which the shell that submits gives; the rest of `PATH` says nothing of the program.
_PYTHON: Final = ("VIRTUAL_ENV", "CONDA_PREFIX")


def parts_of(spec: JobSpec, code: str) -> dict[Part, str]:
    """A digest of each part of the job. `code` is the digest of the snapshot of its working directory; "": none."""
    doc = spec.model_dump(mode="json", exclude_defaults=True)
    envs = doc.pop("envs", {})
    python = {name: envs.pop(name) for name in _PYTHON if name in envs}
    envs.pop("PATH", None)

    throughput = throughput_of(spec)
    planned = {"throughput": throughput} if throughput is not None else {}

    def of(names: frozenset[str], **more: Any) -> str:
        return _digest({name: value for name, value in doc.items() if name in names} | more)

    return {
        "code": code, "configuration": of(_CONFIGURATION, envs=envs), "data": _digest(sorted(spec.data)),
        "environment": of(_ENVIRONMENT, python=python), "scale": of(_SCALE, **planned),
    }  # fmt: skip


def changed(rung: Rung, certified: Mapping[str, str], parts: Mapping[Part, str]) -> list[Part]:
    """The parts in which a job differs from the one that was certified, of those that the rung depends on."""
    return [part for part in TOUCHES[rung] if certified.get(part) != parts[part] or not parts["code"]]


def rung_of(spec: JobSpec) -> Rung | None:
    """The rung that the job is; None for a job that is none."""
    return spec.preflight.rung if spec.preflight is not None else None


def throughput_of(spec: JobSpec) -> float | None:
    """What the job is planned to do in a second; None if its file does not say."""
    return spec.preflight.throughput if spec.preflight is not None else None


def rung_job(
    spec: JobSpec, rung: Rung, *, steps: int | None = None, nodes: int | None = None, seconds: float | None = None
) -> JobSpec:
    """The job that a rung runs: the same command, on one node unless `nodes` are given; a canary is as large as it."""
    whole = rung == "canary"  # its certificate is for the scale of the job
    limit = min(SECONDS[rung] if seconds is None else seconds, spec.max_duration or SECONDS_MAX, SECONDS_MAX)
    update: dict[str, Any] = {
        "name": f"{rung}-{spec.name}"[:NAME_MAX].rstrip("-"),
        "purpose": f"preflight: {rung}",
        "preflight": Preflight(
            rung=rung, steps=STEPS[rung] if steps is None else steps, throughput=throughput_of(spec)
        ),
        "num_nodes": spec.num_nodes if whole else nodes or 1, "min_nodes": spec.min_nodes if whole else None,
        "max_duration": limit, "array": None, "needs": {}, "parent": None,
        "tags": {**spec.tags, "preflight": rung}, "off_peak": False, "deadline": None,
    }  # fmt: skip
    if rung in ("resume", "failure"):
        update["checkpoint"] = spec.checkpoint.model_copy(update={"every": SAVE_EVERY})
    if rung in ("unit", "smoke") and spec.nproc is None and spec.resources.accelerators > 1:
        update["resources"] = spec.resources.model_copy(update={"accelerators": 1})
    return spec.model_copy(update=update)


def is_rung_of(job: JobSpec, spec: JobSpec, rung: Rung) -> bool:
    """Whether `job` runs this rung of `spec`: the same in everything that the rung depends on but the code. The code of
    a job is known to the server alone."""
    if rung_of(job) != rung or job.project != spec.project:
        return False
    if rung == "failure":  # its faults are given in the environment
        return all(getattr(job, name) == getattr(spec, name) for name in _LASTING)
    mine, theirs = parts_of(job, ""), parts_of(spec, "")
    return all(mine[part] == theirs[part] for part in TOUCHES[rung] if part != "code")


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


assert set(TOUCHES) == set(RUNGS)
