"""The hand-over of a gang to a cluster: creates its objects in order. A partial one is resumed or removed later."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from muster.core.errors import EngineError, Invalid
from muster.engines.base import GangLaunch
from muster.engines.describe import Home, launch_of
from muster.engines.kubernetes.client import (
    CONFIG_MAPS,
    NETWORK_POLICIES,
    SECRETS,
    SERVICES,
    KubeClient,
    KubeError,
    Resource,
)
from muster.engines.kubernetes.faults import examine, fault_of
from muster.engines.kubernetes.gangs import WORKERS
from muster.engines.kubernetes.render import (
    gang_json,
    gang_labels,
    manifests,
    object_name,
    package_map,
    package_name,
    secret_name,
)
from muster.engines.kubernetes.settings import GANG_FOLDER, INSTALLATION, JOB, KubeSettings, checkpoint_dir
from muster.engines.package import worker_archive
from muster.engines.remote import Held

CA_FILE: Final = "ca.pem"
SWEEP_MAX: Final = 1000  # maximum number of jobs in a selector
_STOPPED: Final = Held("Stopped", "it was stopped while it was handed over")
Object = dict[str, Any]


def hand_over(
    client: KubeClient, gang: GangLaunch, settings: KubeSettings, home: Home, wanted: Callable[[], bool]
) -> str | Held | None:
    """Creates a gang's objects. Returns None when all exist. If the cluster refuses one for good, the others are
    removed and its message is returned. Stops creating objects once the gang is no longer `wanted`."""
    try:
        *parts, main = _objects(gang, settings, home)
    except Invalid as error:
        return str(error)
    made: list[Object] = []
    for body in [*parts, main]:
        if not wanted():
            return _STOPPED
        try:
            made.append(client.apply(body) if body is not main else _make(client, main))
        except EngineError as error:
            fault = examine(client, body, error)
            if fault.kind == "away":
                return Held("away", fault.message, error=error)
            if fault.kind == "held":
                return fault.as_held()  # the next hand-over reuses what exists already
            _take_back(client, made)
            return fault.message
    try:
        _own(client, made[-1], made[:-1])
    except KubeError as error:
        return Held("NotOwned", error.message)
    except EngineError as error:
        return Held("away", error.message, error=error)
    return None


def ship_package(client: KubeClient, namespace: str, settings: KubeSettings, there: bool) -> Held | None:
    """Creates the launcher's package for all gangs of a namespace. Returns None when it is there.
    `there`: it was there before, so only check that it still is."""
    package = worker_archive()
    try:
        if not there or not client.touch(CONFIG_MAPS.path(namespace, package_name(settings, package))):
            client.apply(package_map(settings, package, namespace))
    except EngineError as error:
        fault = fault_of(error)
        if fault is not None and fault.kind == "away":
            return Held("away", fault.message, error=error)
        said = fault.as_held() if fault is not None else Held("", error.message)
        return replace(said, code=said.code or "NoPackage", trouble=True)  # not the job's fault, in any case
    return None


def clear(client: KubeClient, settings: KubeSettings, namespace: str, job: str, attempt: int) -> None:
    """Deletes parts of a gang without an owner:
    after a broken hand-over, or after their owner was deleted without them."""
    labels = gang_labels(settings.installation, job, attempt)
    selector = ",".join(f"{name}={value}" for name, value in labels.items())
    for resource in _parts(settings):
        try:
            client.delete_all(resource.path(namespace), selector)
        except KubeError as error:
            if error.status not in (403, 405):
                raise
            own = object_name(settings.installation, job, attempt)
            name = secret_name(settings.key, job, attempt) if resource is SECRETS else own
            client.delete(resource.path(namespace, name))


def sweep(client: KubeClient, settings: KubeSettings, namespace: str, jobs: Iterable[str]) -> None:
    """Deletes the parts of all gangs of this installation except those of `jobs`, which are labels."""
    living, installation = sorted(jobs), settings.installation
    if len(living) > SWEEP_MAX or not installation:
        return
    selector = f"{INSTALLATION}={installation},{JOB}" + (f",{JOB} notin ({','.join(living)})" if living else "")
    for resource in _parts(settings):
        client.delete_all(resource.path(namespace), selector)


def _parts(settings: KubeSettings) -> tuple[Resource, ...]:
    """The kinds of objects that a gang may have besides its main object."""
    return (SECRETS, SERVICES, NETWORK_POLICIES) if settings.network_policy else (SECRETS, SERVICES)


def path_of(client: KubeClient, item: Object) -> str:
    about = item["metadata"]
    return client.resource(item["apiVersion"], item["kind"]).path(about.get("namespace", ""), about["name"])


def _objects(gang: GangLaunch, settings: KubeSettings, home: Home) -> list[Object]:
    """The gang's objects; the last one starts the pods."""
    launch = launch_of(gang, 0, "", home, checkpoint_dir(settings, gang.job))
    authority = home.ca_file
    if authority:
        launch = replace(launch, ca_file=f"{GANG_FOLDER}/{CA_FILE}")
    package = package_name(settings, worker_archive())
    objects = manifests(gang, settings, gang_json(launch, settings.port), package)
    for made in objects:
        if made["kind"] == "Secret" and authority:
            made["data"][CA_FILE] = base64.b64encode(Path(authority).read_bytes()).decode()
    objects[-1]["metadata"].setdefault("annotations", {})[WORKERS] = str(len(gang.seats))
    return objects


def _make(client: KubeClient, main: Object) -> Object:
    """Creates the object that starts the pods.
    An existing one is left unchanged, because Kueue may have admitted it."""
    try:
        return client.apply(main, force=False)
    except KubeError as error:
        if error.status not in (409, 422):
            raise
        try:
            return client.get(path_of(client, main))
        except KubeError:
            raise error from None


def _take_back(client: KubeClient, made: Iterable[Object]) -> None:
    for part in made:
        with suppress(EngineError):  # what remains is swept later
            client.delete(path_of(client, part))


def _own(client: KubeClient, main: Object, parts: Iterable[Object]) -> None:
    """Makes the main object the owner of the others, so that they are deleted with it."""
    about = main["metadata"]
    owner = {"apiVersion": main["apiVersion"], "kind": main["kind"], "name": about["name"], "uid": about["uid"]}
    for part in parts:
        owners = part["metadata"].get("ownerReferences") or []
        if not any(one["uid"] == owner["uid"] for one in owners):
            client.merge(path_of(client, part), {"metadata": {"ownerReferences": [owner]}})
