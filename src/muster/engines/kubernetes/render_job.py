"""`muster render --engine kubernetes`: a job's objects as the engine would apply them, without what a server adds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from muster.core.errors import SpecError
from muster.core.spec import JobSpec
from muster.core.units import ANY_ACCELERATOR
from muster.engines.base import GangLaunch
from muster.engines.describe import Home
from muster.engines.kubernetes.config import read_config
from muster.engines.kubernetes.render import SECRET_PREFIX, manifests
from muster.engines.kubernetes.render_allowed import refusals
from muster.engines.kubernetes.render_check import check
from muster.engines.kubernetes.render_options import KAI, Options, options_of, pool_of
from muster.engines.kubernetes.settings import KubeSettings
from muster.engines.rendering import Rendered, RenderRequest

_NEEDS: Final = {
    "job": "",
    "jobset": "JobSet (jobset.x-k8s.io/v1alpha2) must be installed in the cluster.",
    "trainjob": "Kubeflow Trainer 2 (trainer.kubeflow.org/v1alpha1) and JobSet must be installed in the cluster.",
    "pytorchjob": "The Kubeflow training operator 1.x (kubeflow.org/v1) must be installed in the cluster.",
}


def render(request: RenderRequest) -> Rendered:
    """Renders a job. Raises MusterError for a job that can't be rendered,
    and for objects that a cluster would refuse."""
    settings, gang = _settings(request), request.gang
    if request.form:
        gang = replace(gang, options={**gang.options, "form": request.form})
    options = options_of(gang, settings)
    documents = manifests(gang, settings, None)
    if problems := check(documents):
        raise SpecError(problems, "What was rendered", "Mend each and render it again.")
    return Rendered(
        documents=documents,
        about=f"{request.spec.name} as {options.form} for Kubernetes: what Muster applies, but for the Secret",
        lost=tuple(_lost(request.spec, gang, settings, options)),
        notes=(*_notes(gang, settings, options), *_refused(gang, settings)),
    )


def _refused(gang: GangLaunch, settings: KubeSettings) -> list[str]:
    return [f"An engine with these settings refuses it. {problem}" for problem in refusals(gang, settings)]


def _settings(request: RenderRequest) -> KubeSettings:
    """The engine's settings without an installation id, which is derived from a server's key."""
    given = read_config("kubernetes", request.settings, Home(Path(), "", tuple))
    return replace(given.settings, namespace=given.namespace or given.settings.namespace)


def _lost(spec: JobSpec, gang: GangLaunch, settings: KubeSettings, options: Options) -> list[str]:
    said = []
    kind = gang.ask.accelerator
    if kind and kind != ANY_ACCELERATOR and pool_of(gang, settings).accelerator != kind and not options.node_selector:
        said.append(
            f"Any node with {options.resource} will do: no pool says which nodes have {kind}. Name their label in "
            "kubernetes.node_selector."
        )
    if gang.ask.accelerator_memory:
        said.append("accelerator_memory is looked at by Muster's own scheduler alone.")
    for level, label in ((gang.require, options.topology), (gang.prefer, options.near)):
        if level and not label:
            said.append(f"topology {level!r} has no label here: name it in `topology` of the engine's settings.")
    if spec.min_nodes and spec.min_nodes != spec.num_nodes:
        said.append(f"Rendered for {spec.num_nodes} nodes; Muster would start it on {spec.min_nodes} or more.")
    if options.scheduler == KAI and options.form == "job" and len(gang.seats) > 1:
        said.append("KAI makes a group of each pod of a plain Job, so the gang is not all or nothing: use jobset.")
    return said


def _notes(gang: GangLaunch, settings: KubeSettings, options: Options) -> list[str]:
    said = [
        f"Secret {SECRET_PREFIX}... (the command, the environment and the attempt's token) and ConfigMap "
        f"{settings.package} (the launcher) are made by the server when it launches the job; its key gives the Secret "
        "another name than the one that stands here.",
        "The 0 in the job's id stands for the number that the server gives it.",
    ]
    if needed := _NEEDS[options.form]:
        said.append(needed)
    if options.kueue:
        said.append(f"It is suspended until Kueue admits it from LocalQueue {options.queue}.")
    elif not options.scheduler and len(gang.seats) > 1:
        said.append(
            "Without a Kueue queue (kubernetes.queue) or a scheduler for gangs (kubernetes.scheduler), Kubernetes may "
            "start some of the pods and leave the others waiting."
        )
    if not settings.checkpoints:
        said.append("Checkpoints stay in the pod and are lost with it, unless the engine's settings name a place.")
    return said
