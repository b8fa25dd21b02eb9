"""Handing a gang to a cluster: its objects, made in order; what is left half done is taken up again, or cleared."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from muster.core.errors import EngineError, Invalid
from muster.engines.base import GangLaunch
from muster.engines.describe import Home, launch_of
from muster.engines.kubernetes.client import Client, KubeError, Resource
from muster.engines.kubernetes.gangs import WORKERS
from muster.engines.kubernetes.render import gang_json, manifests, object_name, package_map, package_name, secret_name
from muster.engines.kubernetes.settings import GANG_FOLDER, KubeSettings, checkpoint_dir
from muster.engines.package import worker_package

CA_FILE: Final = "ca.pem"
_SECRETS: Final = Resource("v1", "secrets")
_SERVICES: Final = Resource("v1", "services")
_POLICIES: Final = Resource("networking.k8s.io/v1", "networkpolicies")
Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of it: there when nothing is said."""

    refused: str = ""  # never
    held: str = ""  # not yet, by a rule of the cluster
    error: EngineError | None = None  # not now


def hand_over(client: Client, gang: GangLaunch, settings: KubeSettings, home: Home) -> Answer:
    made: list[Object] = []
    try:
        *parts, main = _objects(gang, settings, home)
        for part in parts:
            made.append(client.apply(part))
        _own(client, _make(client, main), made)
        return Answer()
    except KubeError as error:
        if error.passing:  # what is there already is taken up the next time
            return Answer(held=error.message) if error.status == 403 else Answer(error=error)
        refused = error.message
    except Invalid as error:
        refused = str(error)
    except EngineError as error:
        return Answer(error=error)
    for part in made:
        client.delete(path_of(client, part))
    return Answer(refused=refused)


def ship_package(client: Client, namespace: str, settings: KubeSettings) -> None:
    client.apply(package_map(settings, worker_package().as_zip(), namespace))


def clear(client: Client, settings: KubeSettings, namespace: str, job: str, attempt: int) -> None:
    """Parts of a gang that nobody owns, because its server was killed before it could say who does."""
    name = object_name(settings.installation, job, attempt)
    client.delete(_SECRETS.path(namespace, secret_name(settings.key, job, attempt)))
    for resource in (_SERVICES, _POLICIES) if settings.network_policy else (_SERVICES,):
        client.delete(resource.path(namespace, name))


def path_of(client: Client, item: Object) -> str:
    about = item["metadata"]
    return client.resource(item["apiVersion"], item["kind"]).path(about.get("namespace", ""), about["name"])


def _objects(gang: GangLaunch, settings: KubeSettings, home: Home) -> list[Object]:
    """The last of them starts the pods."""
    launch = launch_of(gang, 0, "", home, checkpoint_dir(settings, gang.job))
    authority = home.ca_file
    if authority:
        launch = replace(launch, ca_file=f"{GANG_FOLDER}/{CA_FILE}")
    package = package_name(settings, worker_package().as_zip())
    objects = manifests(gang, settings, gang_json(launch, settings.port), package)
    for made in objects:
        if made["kind"] == "Secret" and authority:
            made["data"][CA_FILE] = base64.b64encode(Path(authority).read_bytes()).decode()
    objects[-1]["metadata"].setdefault("annotations", {})[WORKERS] = str(len(gang.seats))
    return objects


def _make(client: Client, main: Object) -> Object:
    """What starts the pods. Where it is there already it is left as it is: Kueue may have let it go meanwhile."""
    try:
        return client.apply(main, force=False)
    except KubeError as error:
        if error.status not in (409, 422):
            raise
        try:
            return client.get(path_of(client, main))
        except KubeError:
            raise error from None


def _own(client: Client, main: Object, parts: Iterable[Object]) -> None:
    """What the gang's pods need goes when it goes."""
    about = main["metadata"]
    owner = {"apiVersion": main["apiVersion"], "kind": main["kind"], "name": about["name"], "uid": about["uid"]}
    for part in parts:
        owners = part["metadata"].get("ownerReferences") or []
        if not any(one["uid"] == owner["uid"] for one in owners):
            client.merge(path_of(client, part), {"metadata": {"ownerReferences": [owner]}})
