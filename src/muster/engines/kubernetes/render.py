"""Renders a gang as Kubernetes objects: a pure function of the gang and of the engine's settings."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from dataclasses import asdict
from typing import Final

from muster.engines.base import GangLaunch
from muster.engines.kubernetes.render_forms import Parts, documents, metadata
from muster.engines.kubernetes.render_options import options_of
from muster.engines.kubernetes.render_pod import Doc, pod_template
from muster.engines.kubernetes.settings import (
    ATTEMPT,
    GANG_FILE,
    INSTALLATION,
    JOB,
    MANAGED_BY,
    MANAGER,
    PACKAGE_FILE,
    SCRATCH_FOLDER,
    KubeSettings,
)
from muster.wire import Launch

# The longest name derived from it is a JobSet's pod, `NAME-node-0-9999-abcde`, and may have 63 characters.
NAME_MAX: Final = 45
# The prefix of the gangs' Secrets. The pattern also matches the names that older versions used.
SECRET_PREFIX: Final = "muster-gang-"  # noqa: S105  (a name, no value)
_SECRETS: Final = re.compile(rf"{SECRET_PREFIX}.*|muster-(.*-)?[0-9]+-[0-9a-f]{{8}}\Z", re.DOTALL)
_LABEL: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z")


def manifests(
    gang: GangLaunch, settings: KubeSettings, launch_json: str | None, package: str | bytes | None = None
) -> list[Doc]:
    """The gang's objects in the order in which to create them; the one that starts the pods is the last.

    `launch_json` is the text of gang.json (see `gang_json`), which is stored in a Secret; None leaves the Secret out.
    `package` is the name of the ConfigMap with the launcher's package, or the package's bytes to create it as well;
    None means the name in the settings. Raises Invalid for a gang that no cluster would take.
    """
    options = options_of(gang, settings)
    name = object_name(settings.installation, gang.job, gang.attempt)
    labels = gang_labels(settings.installation, gang.job, gang.attempt)
    held = package_name(settings, package) if isinstance(package, bytes) else package or settings.package
    secret = secret_name(settings.key, gang.job, gang.attempt)
    parts = Parts(
        name=name,
        count=len(gang.seats),
        options=options,
        labels=labels,
        annotations=_annotations(gang),
        template=lambda env: pod_template(gang, settings, options, name, secret, held, labels, env),
    )
    made = [package_map(settings, package, options.namespace)] if isinstance(package, bytes) else []
    if launch_json is not None:
        made.append(_secret(parts, secret, launch_json))
    if settings.network_policy:
        made.append(_network(parts))
    return made + documents(parts)


def gang_json(launch: Launch, port: int) -> str:
    """What the pods read: the launch of worker 0, and what is common to all workers.
    Each pod adds its own worker number."""
    return json.dumps({"launch": asdict(launch), "scratch": SCRATCH_FOLDER, "port": port})


def object_name(installation: str, job: str, attempt: int) -> str:
    """`muster-JOB-ATTEMPT-DIGEST`: a DNS label, unique to this attempt among all Musters."""
    digest = hashlib.sha256(f"{installation}\0{job}\0{attempt}".encode()).hexdigest()[:8]
    tail = f"-{attempt}-{digest}"
    slug = re.sub(r"[^a-z0-9]+", "-", job.lower()).strip("-")[: NAME_MAX - len("muster-") - len(tail)].strip("-")
    return f"muster-{slug}{tail}" if slug else f"muster{tail}"


def secret_name(key: bytes, job: str, attempt: int) -> str:
    """The name of the Secret with the attempt's token. It is deterministic, but can't be guessed without the key.

    It is not derived from the gang's own name, which other pods in the cluster can learn from DNS.
    """
    digest = hmac.new(key, f"kubernetes secret\0{job}\0{attempt}".encode(), hashlib.sha256).digest()
    return SECRET_PREFIX + base64.b32encode(digest).decode().lower()[:26]  # 130 bits


def is_gang_secret(name: str) -> bool:
    """Whether a Secret of that name may belong to a gang."""
    return _SECRETS.match(name) is not None


def gang_labels(installation: str, job: str, attempt: int) -> dict[str, str]:
    """The labels of every object and pod of the gang. An annotation of the same name holds the unmodified job id."""
    marks = {MANAGED_BY: MANAGER, JOB: label_value(job), ATTEMPT: str(attempt)}
    return {**marks, INSTALLATION: installation} if installation else marks


def label_value(text: str) -> str:
    """The text itself if it is a valid label value; otherwise a similar, unique one."""
    if _LABEL.match(text):
        return text
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("._-")[:50].strip("._-")
    return f"{slug or 'x'}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def package_name(settings: KubeSettings, package: bytes) -> str:
    """The package's name, derived from its content, so that different versions of Muster can share a namespace."""
    return f"{settings.package}-{hashlib.sha256(package).hexdigest()[:10]}"


def package_map(settings: KubeSettings, package: bytes, namespace: str) -> Doc:
    """The ConfigMap of the launcher's package."""
    marks = {INSTALLATION: settings.installation} if settings.installation else {}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": package_name(settings, package),
            "namespace": namespace,
            "labels": {MANAGED_BY: MANAGER, **marks},
        },
        "immutable": True,
        "binaryData": {PACKAGE_FILE: base64.b64encode(package).decode()},
    }


def namespace_of(gang: GangLaunch, settings: KubeSettings) -> str:
    return options_of(gang, settings).namespace


def _secret(parts: Parts, name: str, launch_json: str) -> Doc:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {**metadata(parts), "name": name},
        "type": "Opaque",  # not immutable: a server whose address changed during a hand-over rewrites it
        "data": {GANG_FILE: base64.b64encode(launch_json.encode()).decode()},
    }


def _network(parts: Parts) -> Doc:
    """Allows the gang's pods to talk to each other on any port; other policies of the namespace may allow more."""
    own = [{"podSelector": {"matchLabels": dict(parts.labels)}}]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(parts),
        "spec": {
            "podSelector": {"matchLabels": dict(parts.labels)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": own}],
            "egress": [{"to": own}],
        },
    }


def _annotations(gang: GangLaunch) -> dict[str, str]:
    annotations = {
        JOB: gang.job,
        "muster.dev/name": gang.name,
        "muster.dev/project": gang.project,
        "muster.dev/user": gang.user,
    }
    return {key: value for key, value in annotations.items() if value}
