"""A gang as the objects of Kubernetes that run it: a pure function of the gang and of the engine's settings."""

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

# The longest name that comes of one is a JobSet's pod, `NAME-node-0-9999-abcde`, and may have 63 characters.
NAME_MAX: Final = 45
# How the Secrets of gangs begin; and the names that they had before they had one of their own.
SECRET_PREFIX: Final = "muster-gang-"  # noqa: S105  (a name, no value)
_SECRETS: Final = re.compile(rf"{SECRET_PREFIX}.*|muster-(.*-)?[0-9]+-[0-9a-f]{{8}}\Z", re.DOTALL)
_LABEL: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z")


def manifests(
    gang: GangLaunch, settings: KubeSettings, launch_json: str | None, package: str | bytes | None = None
) -> list[Doc]:
    """The gang's objects in the order in which they are to be made; the one that starts the pods is the last.

    `launch_json` is the text of gang.json (see `gang_json`), which is kept in a Secret; None leaves the Secret out.
    `package` is the name of the ConfigMap that holds the launcher's package, or its bytes to have it made as well; None
    is the name in the settings. Raises Invalid for what no cluster would take.
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
    """What the pods read: the launch of worker 0, and what holds for all. Every pod fills in its own place."""
    return json.dumps({"launch": asdict(launch), "scratch": SCRATCH_FOLDER, "port": port})


def object_name(installation: str, job: str, attempt: int) -> str:
    """`muster-JOB-ATTEMPT-DIGEST`: a DNS label that no other attempt of any Muster has."""
    digest = hashlib.sha256(f"{installation}\0{job}\0{attempt}".encode()).hexdigest()[:8]
    tail = f"-{attempt}-{digest}"
    slug = re.sub(r"[^a-z0-9]+", "-", job.lower()).strip("-")[: NAME_MAX - len("muster-") - len(tail)].strip("-")
    return f"muster-{slug}{tail}" if slug else f"muster{tail}"


def secret_name(key: bytes, job: str, attempt: int) -> str:
    """Of the Secret with the attempt's token: always the same for those who have the key, and nobody else can tell.

    It is not derived from the gang's own name, which neighbours in the cluster learn from its DNS.
    """
    digest = hmac.new(key, f"kubernetes secret\0{job}\0{attempt}".encode(), hashlib.sha256).digest()
    return SECRET_PREFIX + base64.b32encode(digest).decode().lower()[:26]  # 130 bits


def is_gang_secret(name: str) -> bool:
    """Whether a Secret of that name may be some gang's."""
    return _SECRETS.match(name) is not None


def gang_labels(installation: str, job: str, attempt: int) -> dict[str, str]:
    """What every object and pod of the gang bears. The job's id stands unchanged in an annotation of the same name."""
    marks = {MANAGED_BY: MANAGER, JOB: label_value(job), ATTEMPT: str(attempt)}
    return {**marks, INSTALLATION: installation} if installation else marks


def label_value(text: str) -> str:
    """The text where it can be a label's value; else something like it that nothing else becomes."""
    if _LABEL.match(text):
        return text
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("._-")[:50].strip("._-")
    return f"{slug or 'x'}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def package_name(settings: KubeSettings, package: bytes) -> str:
    """By its content, so that another version of Muster in the same namespace is not in the way."""
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
        "type": "Opaque",  # not immutable: a server that moved before it had handed everything over writes it anew
        "data": {GANG_FILE: base64.b64encode(launch_json.encode()).decode()},
    }


def _network(parts: Parts) -> Doc:
    """The gang's pods talk to each other on any port; who else may is said by other policies of the namespace."""
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
    told = {
        JOB: gang.job,
        "muster.dev/name": gang.name,
        "muster.dev/project": gang.project,
        "muster.dev/user": gang.user,
    }
    return {key: value for key, value in told.items() if value}
