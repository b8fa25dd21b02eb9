"""The options of a gang's objects: the job file's section merged with the settings of the engine and the pool."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from muster.core.errors import Invalid
from muster.core.resources import WHOLE
from muster.core.spec_engines import KubernetesForm as Form
from muster.core.suggest import did_you_mean
from muster.core.units import ANY_ACCELERATOR, by_priority
from muster.engines.base import GangLaunch
from muster.engines.kubernetes.settings import FORMS, KubeSettings, PoolSettings
from muster.engines.kubernetes.toleration import toleration

VOLCANO: Final = "volcano"
KAI: Final = "kai-scheduler"
DEFAULT_SCHEDULER: Final = "default-scheduler"
KEYS: Final = (
    "form", "namespace", "queue", "scheduler", "service_account", "node_selector", "tolerations", "priority_class",
    "shared_memory", "volumes", "pull_secrets", "topology", "labels", "annotations", "pod",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Options:
    """The final options: nothing after this reads the job file or the settings again for these."""

    form: Form
    namespace: str
    image: str
    resource: str  # the resource that counts accelerators
    queue: str = ""
    scheduler: str = ""  # "": the cluster's own
    service_account: str = ""
    priority_class: str = ""
    shared_memory: str = ""
    topology: str = ""  # label whose value the nodes of all workers must share
    near: str = ""  # label whose value they should share, if possible
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Mapping[str, str]] = ()
    volumes: Mapping[str, str] = field(default_factory=dict)
    pull_secrets: Sequence[str] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    pod: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kueue(self) -> bool:
        """Whether Kueue admits the gang; Volcano and KAI have queues of their own."""
        return bool(self.queue) and self.scheduler not in (VOLCANO, KAI)


def options_of(gang: GangLaunch, settings: KubeSettings) -> Options:
    """Merges the options. Raises Invalid for options that no cluster would take."""
    given = gang.options
    _known(given)
    pool = pool_of(gang, settings)
    scheduler = str(given.get("scheduler") or settings.scheduler)
    scheduler = "" if scheduler == DEFAULT_SCHEDULER else scheduler
    if gang.ask.accelerators and gang.ask.share < WHOLE and scheduler != KAI:
        raise Invalid(
            f"{gang.name or gang.job} asks for {gang.ask.share / WHOLE:g} of an accelerator, and Kubernetes gives "
            "whole ones.",
            "Ask for a whole one, or set kubernetes.scheduler to kai-scheduler, which shares them.",
        )
    tolerations = dict.fromkeys([*pool.tolerations, *_texts(given.get("tolerations"))])
    return Options(
        form=_form(given.get("form"), settings, gang, scheduler),
        namespace=str(given.get("namespace") or settings.namespaces_of(gang.project)[0]),
        image=gang.image or settings.image,
        resource=pool.resource,
        queue=str(given.get("queue") or pool.queue or settings.queue),
        scheduler=scheduler,
        service_account=str(given.get("service_account") or settings.service_account),
        priority_class=str(given.get("priority_class") or by_priority(settings.priority_classes, gang.priority)),
        shared_memory=quantity(given.get("shared_memory") or settings.shared_memory),
        topology=str(given.get("topology") or settings.topology.get(gang.require, "")),
        near=settings.topology.get(gang.prefer, ""),
        node_selector={**pool.selector, **_mapping(given, "node_selector")},
        tolerations=tuple(toleration(text) for text in tolerations),
        volumes=_mapping(given, "volumes"),
        pull_secrets=tuple(dict.fromkeys([*settings.pull_secrets, *_texts(given.get("pull_secrets"))])),
        labels={**settings.labels, **_mapping(given, "labels")},
        annotations={**settings.annotations, **_mapping(given, "annotations")},
        pod=dict(given.get("pod") or {}),
    )


def pool_of(gang: GangLaunch, settings: KubeSettings) -> PoolSettings:
    """The gang's pool; without one, the first pool with the accelerators that it asks for."""
    if gang.pool in settings.pools:
        return settings.pools[gang.pool]
    kind = gang.ask.accelerator
    if kind and kind != ANY_ACCELERATOR:
        return next((pool for pool in settings.pools.values() if pool.accelerator == kind), PoolSettings())
    return PoolSettings()


def quantity(value: object) -> str:
    """A size as Kubernetes writes it: a number of bytes or a quantity, both unchanged."""
    return str(value) if value else ""


def _form(given: object, settings: KubeSettings, gang: GangLaunch, scheduler: str) -> Form:
    form: Any = given or settings.form
    if form not in FORMS:
        hint = did_you_mean(str(form), FORMS, quote="'")
        raise Invalid(f"There is no form {form!r} of a gang in Kubernetes.", hint)
    # KAI makes one group per pod of a plain Job, but one group of a whole JobSet.
    alone = len(gang.seats) == 1
    chosen: Form = "jobset" if form == "job" and not given and scheduler == KAI and not alone else form
    return chosen


def _known(given: Mapping[str, Any]) -> None:
    for key in given:
        if key not in KEYS:
            hint = did_you_mean(str(key), KEYS, quote="'")
            raise Invalid(f"kubernetes: there is no option {key!r}.", hint)


def _mapping(given: Mapping[str, Any], key: str) -> dict[str, str]:
    return {str(name): str(value) for name, value in (given.get(key) or {}).items()}


def _texts(given: Iterable[object] | None) -> list[str]:
    return [str(one) for one in given or ()]
