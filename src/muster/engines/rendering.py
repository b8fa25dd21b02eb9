"""Rendering: turns a job into the documents of another system, without that system and without a server.

A renderer is a pure function `render(request) -> Rendered`. `RENDERERS` lists them by the value of `--engine`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

from muster.core.array import parse_array
from muster.core.errors import Invalid
from muster.core.spec import JobSpec, ask, ranks_per_node, section
from muster.core.suggest import did_you_mean
from muster.engines.base import GangLaunch, Seat
from muster.wire import ARRAY, SLURM_ARRAY


@dataclass(frozen=True, slots=True)
class RenderRequest:
    """The input of a renderer: the job, and the gang of its first attempt, without a token."""

    spec: JobSpec
    gang: GangLaunch
    form: str = ""  # one of the renderer's forms; "": the job file's choice, or else the renderer's default
    settings: Mapping[str, Any] = field(default_factory=dict)  # the engine's settings, if the server's config has them


@dataclass(frozen=True, slots=True)
class Rendered:
    """The output of a renderer: the documents in the order in which to apply them, and notes for the user."""

    documents: Sequence[Mapping[str, Any]]
    about: str  # one line: what this is, and whether it was ever run
    lost: Sequence[str] = ()  # what the job asks for and the documents can't express, a sentence each
    notes: Sequence[str] = field(default=())  # what must exist before the documents work, a sentence each
    run: bool = True  # False: rendered from the published reference only, and never run by us


Render = Callable[[RenderRequest], Rendered]
# `--engine` value → "module:function", loaded on demand.
RENDERERS: Final[dict[str, str]] = {
    "kubernetes": "muster.engines.kubernetes.render_job:render",
    "sagemaker": "muster.engines.managed.sagemaker:render",
    "vertex": "muster.engines.managed.vertex:render",
    "azureml": "muster.engines.managed.azureml:render",
}


def render_job(
    spec: JobSpec, engine: str, form: str = "", settings: Mapping[str, Any] = MappingProxyType({})
) -> Rendered:
    """Renders the job for a kind of engine. Raises MusterError for a job that can't be rendered."""
    if not spec.num_nodes:
        raise Invalid(f"{spec.name} has no nodes, so there is nothing to render.", "Render the jobs that it submits.")
    made = renderer(engine)(RenderRequest(spec, gang_of(spec, engine), form, settings))
    lost = _unexpressed(spec)
    return replace(made, lost=[*made.lost, *lost]) if lost else made


def _unexpressed(spec: JobSpec) -> list[str]:
    """What Muster's server does before a job is handed to any engine, and no document can say."""
    lost = []
    if spec.needs:
        lost.append(f"`needs`: Muster waits for {', '.join(spec.needs)}; what is rendered starts when it is applied.")
    if spec.start_from is not None:
        lost.append(
            f"`start_from`: Muster gives it the checkpoint of {spec.start_from}; what is rendered begins without one, "
            "unless its program loads it by itself."
        )
    if spec.array is not None:
        indexes = parse_array(spec.array).indexes
        lost.append(f"`array`: Muster makes {len(indexes)} tasks; what is rendered is the one of index {indexes[0]}.")
    return lost


def renderer(engine: str) -> Render:
    if engine not in RENDERERS:
        hint = did_you_mean(engine, RENDERERS, quote="'")
        raise Invalid(f"Nothing is rendered for an engine {engine!r}.", hint)
    module, _, name = RENDERERS[engine].partition(":")
    found: Render = getattr(import_module(module), name)
    return found


def _array_envs(spec: JobSpec) -> dict[str, str]:
    """For the first task of an array."""
    if spec.array is None:
        return {}
    indexes = parse_array(spec.array).indexes
    values = (f"{spec.name}-0", indexes[0], len(indexes), indexes[0], indexes[-1])
    return {name: str(value) for names in (ARRAY, SLURM_ARRAY) for name, value in zip(names, values, strict=True)}


def gang_of(spec: JobSpec, engine: str) -> GangLaunch:
    """The gang of the job's first attempt, as the controller would pass it to this kind of engine.

    What only a server knows is left open: the number in the job's id is 0, no worker has a node, and the token is
    empty, so that printed output never holds one.
    """
    every = spec.checkpoint.every
    return GangLaunch(
        job=f"{spec.name}-0",
        attempt=1,
        seats=tuple(Seat("") for _ in range(spec.num_nodes)),
        nproc=ranks_per_node(spec),
        run=spec.run,
        workdir=spec.workdir or "",
        envs={**_array_envs(spec), **spec.envs},
        secrets=tuple(spec.secrets),
        token="",
        checkpoint_keep=spec.checkpoint.keep,
        checkpoint_every=every if isinstance(every, float) else None,
        max_duration=spec.max_duration,
        memory=spec.resources.memory,
        stop_grace=spec.stop_grace,
        name=spec.name,
        project=spec.project,
        pool=spec.pool or "",
        priority=spec.priority,
        ask=ask(spec),
        require=spec.topology.require or "",
        prefer=spec.topology.prefer or "",
        options=section(spec, engine),
        image=spec.image or "",
        log_limit=spec.log_limit,
    )
