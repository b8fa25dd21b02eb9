"""Checks rendered objects for what the API server, or the controllers behind it, would refuse, without a cluster.

The published schemas cover structure and types; these are the rules beyond them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from muster.core.errors import Problem

_DNS_LABEL: Final = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?\Z")
_DNS_NAME: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*\Z")
_PART: Final = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_KEY: Final = re.compile(rf"((?P<prefix>[^/]+)/)?{_PART}\Z")
_VALUE: Final = re.compile(rf"({_PART})?\Z")
_QUANTITY: Final = re.compile(r"(?P<number>[0-9]+(\.[0-9]+)?)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][0-9]+)?\Z")
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_ANNOTATIONS_MAX: Final = 256 << 10  # bytes of all annotations of an object together


def check(documents: Sequence[Mapping[str, Any]]) -> list[Problem]:
    """Everything that is wrong with the documents; empty if nothing is."""
    return [problem for document in documents for problem in _document(document)]


def templates(document: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """The pod templates of an object, each with its path in the object."""
    spec = document.get("spec") or {}
    kind = document.get("kind")
    if kind == "Job":
        return [("spec.template", spec["template"])]
    if kind in ("JobSet", "TrainingRuntime"):
        inner, at = (spec, "spec") if kind == "JobSet" else (spec["template"]["spec"], "spec.template.spec")
        return [
            (f"{at}.replicatedJobs[{i}].template.spec.template", job["template"]["spec"]["template"])
            for i, job in enumerate(inner["replicatedJobs"])
        ]
    if kind == "PyTorchJob":
        return [
            (f"spec.pytorchReplicaSpecs.{role}.template", replica["template"])
            for role, replica in spec["pytorchReplicaSpecs"].items()
        ]
    return []


def _document(document: Mapping[str, Any]) -> Iterator[Problem]:
    at = f"{document['kind']} {document['metadata'].get('name', '')}"
    yield from _metadata(at, document["metadata"], named=True)
    spec = document.get("spec") or {}
    jobs = [spec] if document["kind"] == "Job" else []
    inner = spec if document["kind"] == "JobSet" else (spec.get("template") or {}).get("spec") or {}
    jobs += [job["template"]["spec"] for job in inner.get("replicatedJobs") or ()]
    for job in jobs:
        if job.get("completionMode") != "Indexed" or job.get("completions") != job.get("parallelism"):
            yield _bad(f"{at}.spec", job.get("completionMode"), "Indexed, with as many completions as pods at once")
        if job.get("backoffLimit") != 0:
            yield _bad(f"{at}.spec.backoffLimit", job.get("backoffLimit"), "0: a restart is a new attempt")
    for where, template in templates(document):
        yield from _metadata(f"{at}.{where}", template.get("metadata") or {}, named=False)
        yield from _pod(f"{at}.{where}.spec", template["spec"])


def _metadata(at: str, metadata: Mapping[str, Any], named: bool) -> Iterator[Problem]:
    if named and not _DNS_LABEL.match(str(metadata.get("name", ""))):
        yield _bad(f"{at}: metadata.name", metadata.get("name"), "a DNS label: a letter, then letters, digits and `-`")
    if named and "namespace" in metadata and not _DNS_LABEL.match(str(metadata["namespace"])):
        yield _bad(f"{at}: metadata.namespace", metadata["namespace"], "a DNS label")
    labels = metadata.get("labels") or {}
    yield from _labels(f"{at}: metadata.labels", labels)
    annotations = metadata.get("annotations") or {}
    yield from (
        _bad(f"{at}: metadata.annotations", key, "a key such as `team` or `example.com/team`")
        for key in annotations
        if not _is_key(key)
    )
    if sum(len(f"{key}{value}".encode()) for key, value in annotations.items()) > _ANNOTATIONS_MAX:
        yield _bad(f"{at}: metadata.annotations", "more than 256 KiB", "at most 256 KiB in all")


def _labels(at: str, labels: Mapping[str, Any]) -> Iterator[Problem]:
    for key, value in labels.items():
        if not _is_key(key):
            yield _bad(at, key, "a key such as `team` or `example.com/team`")
        if not isinstance(value, str) or not _VALUE.match(value):
            yield _bad(f"{at}.{key}", value, "at most 63 letters, digits, `-`, `_` and `.`")


def _pod(at: str, pod: Mapping[str, Any]) -> Iterator[Problem]:
    if pod.get("restartPolicy") != "Never":
        yield _bad(f"{at}.restartPolicy", pod.get("restartPolicy"), "Never: a restart is a new attempt")
    yield from _labels(f"{at}.nodeSelector", pod.get("nodeSelector") or {})
    for key in ("serviceAccountName", "priorityClassName", "schedulerName"):
        if key in pod and not _DNS_NAME.match(str(pod[key])):
            yield _bad(f"{at}.{key}", pod[key], "a DNS name")
    for i, one in enumerate(pod.get("tolerations") or ()):
        if one.get("effect", _EFFECTS[0]) not in _EFFECTS or not _is_key(one.get("key", "any")):
            yield _bad(f"{at}.tolerations[{i}]", one, f"a taint's key, and one of {', '.join(_EFFECTS)}")
    volumes = [volume["name"] for volume in pod.get("volumes") or ()]
    yield from _twice(f"{at}.volumes", volumes)
    yield from _sources(at, pod)
    for container in [*(pod.get("initContainers") or ()), *pod["containers"]]:
        yield from _container(f"{at}.containers.{container.get('name')}", container, volumes)


def _sources(at: str, pod: Mapping[str, Any]) -> Iterator[Problem]:
    for volume in pod.get("volumes") or ():
        names = [
            (volume.get("secret") or {}).get("secretName"),
            (volume.get("configMap") or {}).get("name"),
            (volume.get("persistentVolumeClaim") or {}).get("claimName"),
        ]
        for name in names:
            if name is not None and not _DNS_NAME.match(str(name)):
                yield _bad(f"{at}.volumes.{volume['name']}", name, "a DNS name")
        limit = (volume.get("emptyDir") or {}).get("sizeLimit")
        if limit is not None and not _is_quantity(limit):
            yield _bad(f"{at}.volumes.{volume['name']}.sizeLimit", limit, "a quantity such as `8Gi`, as text")


def _container(at: str, container: Mapping[str, Any], volumes: Sequence[str]) -> Iterator[Problem]:
    if not _DNS_LABEL.match(str(container.get("name", ""))):
        yield _bad(f"{at}.name", container.get("name"), "a DNS label")
    image = container.get("image")
    if not image or re.search(r"\s", str(image)):
        yield _bad(f"{at}.image", image, "an image such as `registry/name:tag`")
    mounts = container.get("volumeMounts") or ()
    yield from _twice(f"{at}.volumeMounts", [mount["mountPath"] for mount in mounts])
    for mount in mounts:
        if mount["name"] not in volumes:
            yield _bad(f"{at}.volumeMounts", mount["name"], f"one of the volumes {', '.join(volumes)}")
        if not mount["mountPath"].startswith("/") or ":" in mount["mountPath"]:
            yield _bad(f"{at}.volumeMounts", mount["mountPath"], "an absolute path without a colon")
    yield from _twice(f"{at}.env", [one["name"] for one in container.get("env") or ()])
    yield from _resources(f"{at}.resources", container.get("resources") or {})


def _resources(at: str, wants: Mapping[str, Any]) -> Iterator[Problem]:
    requests, limits = wants.get("requests") or {}, wants.get("limits") or {}
    for name, value in [*requests.items(), *limits.items()]:
        if not _is_quantity(value):
            yield _bad(f"{at}.{name}", value, "a quantity such as `500m` or `64Gi`, as text")
    for name in {**requests, **limits}:
        if "/" not in name:
            continue
        if requests.get(name, limits.get(name)) != limits.get(name):
            yield _bad(f"{at}.{name}", requests.get(name), f"the same as its limit, {limits.get(name)}")
        if not str(limits.get(name)).isdigit():
            yield _bad(f"{at}.{name}", limits.get(name), "a whole number: accelerators are not split")


def _twice(at: str, names: Sequence[str]) -> Iterator[Problem]:
    yield from (_bad(at, name, "each of them once") for name, count in Counter(names).items() if count > 1)


def _is_key(key: object) -> bool:
    found = _KEY.match(key) if isinstance(key, str) else None
    return found is not None and (found["prefix"] is None or _DNS_NAME.match(found["prefix"]) is not None)


def _is_quantity(value: object) -> bool:
    return isinstance(value, str) and _QUANTITY.match(value) is not None


def _bad(where: str, given: object, expected: str) -> Problem:
    return Problem(where, repr(given), expected, "Mend what it came from in the job file or the engine's settings.")
