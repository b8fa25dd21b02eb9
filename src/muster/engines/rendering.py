"""Rendering: a job as the documents that some other system takes, without that system and without a server.

A renderer is a pure function `render(asked: Asked) -> Rendered`; `RENDERERS` names it by the word `--engine` takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

from muster.core.errors import Invalid
from muster.core.spec import JobSpec, ask, ranks_per_node, section
from muster.engines.base import GangLaunch, Seat


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be rendered: the job, and the same as the gang of its first attempt, without a token."""

    spec: JobSpec
    gang: GangLaunch
    form: str = ""  # which of the renderer's forms; "" leaves it to the job file, and then to the renderer
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the engine, where the server's name it


@dataclass(frozen=True, slots=True)
class Rendered:
    """The documents in the order in which they are to be applied, and what people should know of them."""

    documents: Sequence[Mapping[str, Any]]
    about: str  # one line: what this is, and whether it was ever run
    lost: Sequence[str] = ()  # what the job says and these documents can't carry, a sentence each
    notes: Sequence[str] = field(default=())  # what has to be there before they work, a sentence each
    run: bool = True  # False: rendered by the published reference, and never run by us


Render = Callable[[Asked], Rendered]
# Word → "module:function", loaded when it is asked for.
RENDERERS: Final[dict[str, str]] = {
    "kubernetes": "muster.engines.kubernetes.render_job:render",
    "sagemaker": "muster.engines.managed.sagemaker:render",
    "vertex": "muster.engines.managed.vertex:render",
    "azureml": "muster.engines.managed.azureml:render",
}


def render_job(
    spec: JobSpec, engine: str, form: str = "", settings: Mapping[str, Any] = MappingProxyType({})
) -> Rendered:
    """The job's documents for a kind of engine. Raises MusterError for one that can't be rendered."""
    return renderer(engine)(Asked(spec, gang_of(spec, engine), form, settings))


def renderer(engine: str) -> Render:
    if engine not in RENDERERS:
        near = get_close_matches(engine, RENDERERS, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(RENDERERS)}."
        raise Invalid(f"Nothing is rendered for an engine {engine!r}.", hint)
    module, _, name = RENDERERS[engine].partition(":")
    found: Render = getattr(import_module(module), name)
    return found


def gang_of(spec: JobSpec, engine: str) -> GangLaunch:
    """The gang of the job's first attempt, as the controller would hand it to this kind of engine.

    What only a server knows is left open: the number in the job's id is 0, nobody has a seat on a node, and the token
    is empty, so that what is printed never holds one.
    """
    every = spec.checkpoint.every
    return GangLaunch(
        job=f"{spec.name}-0",
        attempt=1,
        seats=tuple(Seat("") for _ in range(spec.num_nodes)),
        nproc=ranks_per_node(spec),
        run=spec.run,
        workdir=spec.workdir or "",
        envs=dict(spec.envs),
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
