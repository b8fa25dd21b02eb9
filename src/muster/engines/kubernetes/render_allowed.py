"""Checks whether a job asks for more of the cluster than the engine's settings allow, based on its rendered objects.

The same gang is rendered twice: with all the options of its job, and without them. Each difference was caused by the
job, through whatever field or alias, and is refused unless a rule below allows that place. So fields that no rule
mentions are refused too.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Final

from muster.core.errors import Problem
from muster.engines.base import GangLaunch
from muster.engines.kubernetes.allow import Allow
from muster.engines.kubernetes.render import is_gang_secret, manifests
from muster.engines.kubernetes.render_check import templates
from muster.engines.kubernetes.render_options import DEFAULT_SCHEDULER, Options, options_of
from muster.engines.kubernetes.render_pod import MERGE_KEYS
from muster.engines.kubernetes.settings import KubeSettings

# Options that decide which objects are made and where; checked by name, and equal in both renderings.
_SHAPE: Final = ("form", "namespace", "queue", "scheduler", "topology")
_WORKER: Final = "<worker>"  # in a rule: the container that Muster makes, by whatever name the form gives it
_ONE, _REST = "*", "**"
_MISSING: Final = object()
_TOLERATIONS: Final = ("spec", "tolerations")

Path = tuple[str, ...]
Pairs = dict[tuple[Path, str], Any]


@dataclass(frozen=True, slots=True)
class Rule:
    """A place in a pod's template that a job may set."""

    place: Path
    listed: str = ""  # the list of `Allow` that must have the value; "": no list
    by_key: bool = False  # the list has keys: the last part of the place
    only: object = _MISSING  # the only value that may be chosen
    adding: bool = False  # may add to, but not change, what is there without the job

    def fits(self, path: Path, workers: Collection[str]) -> bool:
        place = self.place[:-1] if self.place[-1] == _REST else self.place
        if len(path) < len(place) or (len(path) > len(place) and place is self.place):
            return False
        return all(_same(pattern, part, workers) for pattern, part in zip(place, path, strict=False))

    def leads(self, path: Path, workers: Collection[str]) -> bool:
        """Whether the rule is about something below this path."""
        beginning = zip(self.place, path, strict=False)
        return len(path) < len(self.place) and all(_same(pattern, part, workers) for pattern, part in beginning)


def _rules(text: str, **said: Any) -> list[Rule]:
    """One rule per word; `{a,b}` at the end stands for several."""
    found = []
    for word in text.split():
        start, _, ends = word.partition("{")
        found += [Rule(tuple(f"{start}{end}".split(".")), **said) for end in ends.rstrip("}").split(",")]
    return found


_POD: Final = "spec."
_C: Final = f"spec.containers.{_WORKER}."
_FREE: Final = f"""
    {_POD}affinity.nodeAffinity.** {_POD}topologySpreadConstraints.** {_POD}hostAliases.** {_POD}dnsConfig.**
    {_POD}{{activeDeadlineSeconds,dnsPolicy,enableServiceLinks}}
    {_POD}securityContext.{{runAsUser,runAsGroup,fsGroup,fsGroupChangePolicy,supplementalGroups.*}}
    {_C}securityContext.{{runAsUser,runAsGroup}} {_C}{{workingDir,imagePullPolicy}}
    {_C}env.*.{{name,value,valueFrom.fieldRef.**,valueFrom.resourceFieldRef.**}}
    {_C}env.*.valueFrom.secretKeyRef.{{key,optional}} {_C}env.*.valueFrom.configMapKeyRef.{{key,optional}}
    {_C}envFrom.*.{{prefix,secretRef.optional,configMapRef.optional}}
    {_C}volumeMounts.*.{{name,mountPath,readOnly,subPath}} {_C}ports.*.{{name,containerPort,protocol}}
    {_C}resources.limits.{{cpu,ephemeral-storage}} {_C}resources.requests.ephemeral-storage
    {_POD}volumes.*.{{name,emptyDir.**,downwardAPI.**,persistentVolumeClaim.readOnly,hostPath.type}}
    {_POD}volumes.*.secret.{{items.**,defaultMode,optional}} {_POD}volumes.*.configMap.{{items.**,defaultMode,optional}}
    {_POD}volumes.*.projected.{{defaultMode,sources.*.downwardAPI.**}}
    {_POD}volumes.*.projected.sources.*.secret.{{items.**,optional}}
    {_POD}volumes.*.projected.sources.*.configMap.{{items.**,optional}}
"""
_LISTED: Final = {
    "secrets": f"""{_C}env.*.valueFrom.secretKeyRef.name {_C}envFrom.*.secretRef.name
        {_POD}volumes.*.secret.secretName {_POD}volumes.*.projected.sources.*.secret.name""",
    "config_maps": f"""{_C}env.*.valueFrom.configMapKeyRef.name {_C}envFrom.*.configMapRef.name
        {_POD}volumes.*.configMap.name {_POD}volumes.*.projected.sources.*.configMap.name""",
    "pull_secrets": f"{_POD}imagePullSecrets.*.name",
    "claims": f"{_POD}volumes.*.persistentVolumeClaim.claimName",
    "host_paths": f"{_POD}volumes.*.hostPath.path",
    "service_accounts": f"{_POD}{{serviceAccountName,serviceAccount}}",
    "priority_classes": f"{_POD}priorityClassName",
    "runtime_classes": f"{_POD}runtimeClassName",
    "schedulers": f"{_POD}schedulerName",
    "tolerations": f"{_POD}tolerations.*",
    "capabilities": f"{_C}securityContext.capabilities.add.*",
    "images": f"{_C}image",
}
RULES: Final = (
    *_rules(_FREE),
    *_rules(f"{_POD}nodeSelector.*", adding=True),
    *_rules(f"{_POD}{{automountServiceAccountToken,hostUsers}}", only=False),
    *_rules(f"{_C}securityContext.allowPrivilegeEscalation", only=False),
    *_rules(f"{_POD}securityContext.runAsNonRoot", only=True),
    *_rules(f"{_C}securityContext.{{runAsNonRoot,readOnlyRootFilesystem}}", only=True),
    *_rules(f"{_POD}tolerations", only=[]),
    *(rule for listed, places in _LISTED.items() for rule in _rules(places, listed=listed)),
    *_rules(f"{_C}resources.requests.* {_C}resources.limits.*", listed="resources", by_key=True),
    *_rules("metadata.labels.*", listed="labels", by_key=True),
    *_rules("metadata.annotations.*", listed="annotations", by_key=True),
)  # fmt: skip


def refusals(gang: GangLaunch, settings: KubeSettings, engine: str = "NAME") -> list[Problem]:
    """Everything that an engine of that name refuses. Raises Invalid for a gang that can't be rendered."""
    allow, options = settings.allowed(gang.project), options_of(gang, settings)
    bare = replace(gang, image="", options={key: gang.options[key] for key in _SHAPE if key in gang.options})
    look = _Look(allow, engine, gang.project)
    found = list(_places(gang, options, settings, look))
    if not allow.any:
        plain = options_of(replace(gang, options={}), settings)
        found += _turns(options, plain, look)
    asked, own = manifests(gang, settings, None), manifests(bare, settings, None)
    for mine, base in zip(asked, own, strict=True):
        found += _object(mine, base, look)
    return list(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class _Look:
    """What is allowed, and the text for refusals."""

    allow: Allow
    engine: str
    project: str

    def unlisted(self, where: str, given: object, listed: str) -> Problem:
        names = ", ".join(f"`{name}`" for name in getattr(self.allow, listed)) or "none"
        hint = f"Leave it out, or have an administrator add it to `{listed}` of [engines.{self.engine}.allow]"
        hint += f" or [engines.{self.engine}.projects.{self.project}]." if self.project else "."
        return Problem(where, _shown(given), f"what `{listed}` of the engine's settings allows: {names}", hint)

    def never(self, where: str, given: object) -> Problem:
        hint = f'Leave it out. An administrator may set `pod_settings = "any"` in [engines.{self.engine}.allow]'
        hint += f" or [engines.{self.engine}.projects.{self.project}]." if self.project else "."
        return Problem(where, _shown(given), "nothing: job files may not set this", hint)


def _places(gang: GangLaunch, options: Options, settings: KubeSettings, look: _Look) -> Iterator[Problem]:
    if settings.unlisted_projects == "refuse" and gang.project not in settings.projects:
        hint = f"Have an administrator write [engines.{look.engine}.projects.{gang.project}], or use another engine."
        yield Problem("project", repr(gang.project), "a project that this engine's settings name", hint)
    there = settings.namespaces_of(gang.project)
    if options.namespace not in there:
        hint = f"Leave it out, or have an administrator add it to `namespaces` of [engines.{look.engine}]."
        yield Problem("kubernetes.namespace", repr(options.namespace), f"one of {', '.join(there)}", hint)


def _turns(options: Options, plain: Options, look: _Look) -> Iterator[Problem]:
    """Checks queues and schedulers, which decide the order and the quota."""
    if options.queue != plain.queue and not look.allow.has("queues", options.queue):
        yield look.unlisted("kubernetes.queue", options.queue, "queues")
    scheduler = options.scheduler or DEFAULT_SCHEDULER
    if options.scheduler != plain.scheduler and not look.allow.has("schedulers", scheduler):
        yield look.unlisted("kubernetes.scheduler", scheduler, "schedulers")


def _object(mine: Mapping[str, Any], base: Mapping[str, Any], look: _Look) -> Iterator[Problem]:
    """Checks one object: its pods by the rules above;
    outside of them, a job may only set labels and a PodGroup's priority."""
    templates_of_base = dict(templates(base))
    for where, template in templates(mine):
        yield from _template(template, templates_of_base[where], look)
    outside = _rules("metadata.labels.*", listed="labels", by_key=True)
    if mine["kind"] == "PodGroup":
        outside += _rules("spec.priorityClassName", listed="priority_classes")
    pairs = [{key: one for key, one in _pairs(document).items() if not _in_pod(key[0])} for document in (mine, base)]
    yield from _differences(pairs[0], pairs[1], outside, (), look)


def _in_pod(path: Path) -> bool:
    """Whether the path is in a pod's template, in any form."""
    return path[:2] == ("spec", "template") or "replicatedJobs" in path or "pytorchReplicaSpecs" in path


def _template(mine: Mapping[str, Any], base: Mapping[str, Any], look: _Look) -> Iterator[Problem]:
    workers = {str(one["name"]) for one in base["spec"]["containers"]}
    rules: Sequence[Rule] = RULES
    account = mine["spec"].get("serviceAccountName") or mine["spec"].get("serviceAccount") or "default"
    if look.allow.has("service_accounts", account):
        rules = [Rule(("spec", "automountServiceAccountToken"), only=True), *RULES]
    yield from _differences(_pairs(mine), _pairs(base), rules, workers, look)


def _differences(
    mine: Pairs, base: Pairs, rules: Sequence[Rule], workers: Collection[str], look: _Look
) -> Iterator[Problem]:
    kept = {path[:end] for path, _ in base for end in range(len(path) + 1)}
    before = {path for path, _ in base}
    for (path, text), value in mine.items():
        if (path, text) in base:
            continue
        if "secret" in ".".join(path).lower() and isinstance(value, str) and is_gang_secret(value):
            yield Problem(_dotted(path), _shown(value), "a Secret of your own", "Those of gangs are Muster's alone.")
        elif not look.allow.any and (problem := _check_value(path, value, path in before, rules, workers, kept, look)):
            yield problem
    if look.allow.any:
        return
    named = {path for path, _ in mine}
    for path, _ in base.keys() - mine.keys():  # removed, or replaced by a value that was checked above
        if path not in named and not any(rule.fits(path, workers) and not rule.adding for rule in rules):
            yield look.never(_dotted(path), None)


def _check_value(
    path: Path,
    value: object,
    there: bool,
    rules: Sequence[Rule],
    workers: Collection[str],
    kept: set[Path],
    look: _Look,
) -> Problem | None:
    """The problem with one value at one place; None if there is none."""
    fitting = [rule for rule in rules if rule.fits(path, workers)]
    for rule in fitting:
        asked = path[-1] if rule.by_key else value
        if rule.listed and look.allow.has(rule.listed, asked):
            return None
        chosen = rule.only is _MISSING or _text(rule.only) == _text(value)
        if not rule.listed and chosen and not (rule.adding and there):
            return None
    listed = next((rule for rule in fitting if rule.listed), None)
    if listed is not None:
        return look.unlisted(_dotted(path), path[-1] if listed.by_key else value, listed.listed)
    steps = (path[:end] for end in range(1, len(path) + 1))
    known = list(takewhile(lambda at: at in kept or any(rule.leads(at, workers) for rule in rules), steps))
    end = min(len(known) + 1, len(path))  # report the path up to its first unknown part
    return look.never(_dotted(path[:end]), value if end == len(path) else _MISSING)


def _pairs(value: Any, at: Path = ()) -> Pairs:
    """Every value of a document by its path. Lists of named items use the names; each toleration is one value."""
    found: Pairs = {}
    if at[:-1] == _TOLERATIONS:
        found[at, at[-1]] = value
    elif isinstance(value, Mapping) and value:
        for key, inner in value.items():
            found |= _pairs(inner, (*at, str(key)))
    elif isinstance(value, (list, tuple)) and value:
        key, taken = MERGE_KEYS.get(at[-1], "") if at else "", set[str]()
        for number, inner in enumerate(value):
            name = str(inner.get(key, number)) if key and isinstance(inner, Mapping) else str(number)
            name = _text(inner) if at == _TOLERATIONS else name
            while name in taken:
                name += "'"  # a second item of that name matches nothing
            taken.add(name)
            found |= _pairs(inner, (*at, name))
    else:
        found[at, _text(value)] = value
    return found


def _text(value: object) -> str:
    """JSON text, which distinguishes `1` and `true`."""
    return json.dumps(value, default=repr)


def _same(pattern: str, part: str, workers: Collection[str]) -> bool:
    return pattern in (_ONE, _REST) or (part in workers if pattern == _WORKER else part == pattern)


def _dotted(path: Path) -> str:
    shown = path[:2] if path[:2] == _TOLERATIONS else path
    return f"pod.{'.'.join(shown)}".replace("pod.spec.", "pod.", 1)


def _shown(value: object) -> str:
    text = "something" if value is _MISSING else "nothing" if value is None else repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
