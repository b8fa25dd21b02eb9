"""A small client of the Kubernetes API: lists in pages, watches, server-side apply, patches and deletions."""

from __future__ import annotations

import ipaddress
import json
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlsplit

import httpx

from muster.core.errors import EngineError
from muster.core.lines import byte_lines
from muster.engines.kubernetes.access import Access

MANAGER: Final = "muster"
PAGE: Final = 500  # objects per call
SECONDS: Final = 30.0  # that a call may take
TRIES: Final = 4  # attempts for a call when the server is busy
BUSY_WAIT: Final = 0.25  # seconds before the second attempt, doubled each time, unless the server gives a time
WATCH_SECONDS: Final = 290  # after which the server ends a watch; it is resumed where it stopped
WATCH_SLACK: Final = 30.0  # further seconds before a watch without any event is given up
BUSY_MOST: Final = 5.0  # upper limit for a busy server's Retry-After, in seconds
GONE: Final = 410
# Requests only an object's metadata, without its content.
METADATA: Final = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"
METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"
# What to do if a cluster lacks an optional kind: API group → hint.
INSTALLS: Final = {
    "jobset.x-k8s.io": "Have JobSet installed in the cluster, or use `form: job`.",
    "trainer.kubeflow.org": "Have Kubeflow Trainer 2 installed in the cluster, or use `form: job`.",
    "kubeflow.org": "Have the Kubeflow training operator installed in the cluster, or use `form: job`.",
    "scheduling.volcano.sh": "Have Volcano installed in the cluster, or use another `scheduler`.",
}
Object = dict[str, Any]


class KubeError(EngineError):
    """An error answer of the API: status code, reason and message."""

    def __init__(self, status: int, reason: str, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.status, self.reason = status, reason


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object, as it appears in API paths."""

    api_version: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str = "", name: str = "") -> str:
        root = f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
        middle = f"/namespaces/{quote(namespace, safe='')}" if self.namespaced and namespace else ""
        return f"{root}{middle}/{self.plural}" + (f"/{quote(name, safe='')}" if name else "")


PODS: Final = Resource("v1", "pods")
NODES: Final = Resource("v1", "nodes", namespaced=False)
EVENTS: Final = Resource("v1", "events")
SECRETS: Final = Resource("v1", "secrets")
SERVICES: Final = Resource("v1", "services")
NETWORK_POLICIES: Final = Resource("networking.k8s.io/v1", "networkpolicies")
CONFIG_MAPS: Final = Resource("v1", "configmaps")
NAMESPACES: Final = Resource("v1", "namespaces", namespaced=False)
REVIEWS: Final = Resource("authorization.k8s.io/v1", "selfsubjectaccessreviews", namespaced=False)


class KubeClient:
    """A client of one API server. Thread-safe; call `close` when it is no longer used."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self._http = httpx.Client(
            base_url=access.server,
            verify=access.verify,
            headers={"User-Agent": "muster", **access.headers},
            auth=access.basic,
            timeout=SECONDS,
            proxy=access.proxy or None,
            trust_env=not access.proxy and not _is_loopback(access.server),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=32),  # every watch holds a connection
        )
        self._kinds: dict[str, dict[str, Resource]] = {}  # apiVersion → kind → resource
        self._lock = threading.Lock()

    def close(self) -> None:
        self._http.close()

    # --- reading -----------------------------------------------------------------------------------------------------
    def get(self, path: str, **params: str) -> Object:
        return self._call("GET", path, params)

    def list(self, path: str, params: Mapping[str, str]) -> tuple[list[Object], str]:
        """Lists all objects, page by page, and returns the resource version from which a watch can continue."""
        items: list[Object] = []
        more: dict[str, str] = {}
        while True:
            page = self._call("GET", path, {**params, "limit": str(PAGE), **more})
            # In a list, objects of built-in kinds lack apiVersion and kind; the list has them.
            what = {"apiVersion": page.get("apiVersion", ""), "kind": str(page.get("kind", "")).removesuffix("List")}
            items.extend({**what, **item} for item in page.get("items") or [])
            about = page.get("metadata", {})
            if not about.get("continue"):
                return items, about.get("resourceVersion", "")
            more = {"continue": about["continue"]}

    def watch(self, path: str, params: Mapping[str, str], version: str, seconds: int = WATCH_SECONDS) -> Watching:
        """Starts a watch. Raises KubeError with status 410 when that version is too old."""
        asked = {
            **params, "watch": "true", "resourceVersion": version,
            "allowWatchBookmarks": "true", "timeoutSeconds": str(seconds),
        }  # fmt: skip
        request = self._request("GET", path, asked, timeout=httpx.Timeout(SECONDS, read=seconds + WATCH_SLACK))
        response = self._send(request, stream=True)
        if response.status_code >= 400:
            response.read()
            raise _refusal(response)
        return Watching(response)

    def groups(self) -> dict[str, str]:
        """Every API group that is served, with the server's preferred version."""
        found = self.get("/apis").get("groups") or []
        return {str(one["name"]): str(one["preferredVersion"]["groupVersion"]) for one in found}

    def served(self, group: str) -> str:
        """The server's preferred version of an API group; "" when the group is not served."""
        try:
            return str(self.get(f"/apis/{group}")["preferredVersion"]["groupVersion"])
        except KubeError as error:
            if error.status == 404:
                return ""
            raise

    def resource(self, api_version: str, kind: str) -> Resource:
        """Raises KubeError with status 404 if the server has no such kind."""
        with self._lock:
            known = self._kinds.get(api_version)
        if known is None:
            listed = self._resources(api_version, kind)
            known = {
                item["kind"]: Resource(api_version, item["name"], item["namespaced"])
                for item in listed
                if "/" not in item["name"]
            }
            with self._lock:
                self._kinds[api_version] = known
        if kind not in known:
            with self._lock:
                self._kinds.pop(api_version, None)  # it may be installed later
            raise _no_kind(api_version, kind)
        return known[kind]

    def is_ready(self) -> bool:
        """Whether the server reports itself ready.
        A server that denies the request counts as ready, because it answers."""
        return self._send(self._request("GET", "/readyz", {})).status_code < 500

    # --- changing ----------------------------------------------------------------------------------------------------
    def apply(self, body: Object, force: bool = True) -> Object:
        """Server-side apply: creates the object, or updates it to match `body`."""
        about = body["metadata"]
        path = self.resource(body["apiVersion"], body["kind"]).path(about.get("namespace", ""), about["name"])
        params = {"fieldManager": MANAGER, "force": "true" if force else "false", "fieldValidation": "Strict"}
        try:
            return self._call("PATCH", path, params, json.dumps(body), "application/apply-patch+yaml")
        except KubeError as error:
            if error.status == 404 and not error.reason:  # the whole kind was removed since it was discovered
                with self._lock:
                    self._kinds.pop(body["apiVersion"], None)
                raise _no_kind(body["apiVersion"], body["kind"]) from None
            raise

    def merge(self, path: str, body: Object) -> Object:
        params = {"fieldManager": MANAGER}
        return self._call("PATCH", path, params, json.dumps(body), "application/merge-patch+json")

    def create(self, path: str, body: Object) -> Object:
        return self._call("POST", path, {"fieldManager": MANAGER}, json.dumps(body), "application/json")

    def create_dry(self, body: Object) -> None:
        """A dry run: raises the error that creating the object would raise, and creates nothing."""
        path = self.resource(body["apiVersion"], body["kind"]).path(body["metadata"].get("namespace", ""))
        params = {"fieldManager": MANAGER, "fieldValidation": "Strict", "dryRun": "All"}
        self._call("POST", path, params, json.dumps(body), "application/json")

    def touch(self, path: str) -> bool:
        """Whether the object exists, by a patch that changes nothing:
        it needs no right to read and returns no content."""
        params = {"fieldManager": MANAGER}
        try:
            self._call("PATCH", path, params, "{}", "application/merge-patch+json", METADATA)
        except KubeError as error:
            if error.status == 404:
                return False
            raise
        return True

    def delete_all(self, path: str, selector: str) -> None:
        """Deletes all objects of a collection with these labels."""
        options = json.dumps({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"})
        self._call("DELETE", path, {"labelSelector": selector}, options, "application/json", METADATA_LIST)

    def delete(self, path: str, propagation: str = "Background", grace: int | None = None, uid: str = "") -> bool:
        """Deletes an object. Returns False if it is gone already, or if another object has its name now."""
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        if uid:
            options["preconditions"] = {"uid": uid}
        try:
            self._call("DELETE", path, {}, json.dumps(options), "application/json")
        except KubeError as error:
            if error.status == 404 or (error.status == 409 and uid):
                return False
            raise
        return True

    # --- requests ----------------------------------------------------------------------------------------------------
    def _resources(self, api_version: str, kind: str) -> Iterable[Object]:
        root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        try:
            return self.get(root).get("resources") or ()
        except KubeError as error:
            if error.status == 404:
                raise _no_kind(api_version, kind) from None
            raise

    def _call(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: str | None = None,
        kind: str = "",
        accept: str = "application/json",
    ) -> Object:
        wait = BUSY_WAIT
        for left in reversed(range(TRIES)):
            response = self._send(self._request(method, path, params, body, kind, accept=accept))
            if response.status_code < 400:
                found: Object = response.json()
                return found
            if response.status_code not in (429, 503) or not left:
                break
            time.sleep(min(float(response.headers.get("Retry-After") or wait), BUSY_MOST))
            wait *= 2
        raise _refusal(response)

    def _request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: str | None = None,
        kind: str = "",
        timeout: httpx.Timeout | None = None,
        accept: str = "application/json",
    ) -> httpx.Request:
        headers = {"Accept": accept, **({"Content-Type": kind} if kind else {})}
        if token := self.access.token():
            headers["Authorization"] = f"Bearer {token}"
        extensions: dict[str, Any] = {"timeout": (timeout or httpx.Timeout(SECONDS)).as_dict()}
        if self.access.server_name:
            extensions["sni_hostname"] = self.access.server_name
        return self._http.build_request(
            method, path, params=dict(params), content=body, headers=headers, extensions=extensions
        )

    def _send(self, request: httpx.Request, stream: bool = False) -> httpx.Response:
        try:
            try:
                return self._http.send(request, stream=stream)
            except (
                httpx.RemoteProtocolError
            ):  # an idle connection was closed just as we took it; every call may be repeated
                return self._http.send(request, stream=stream)
        except (httpx.HTTPError, RuntimeError) as error:  # RuntimeError: the client was closed meanwhile
            raise EngineError(
                f"{self.access.server} does not answer: {error!r}.",
                f"It comes from {self.access.where}; try `kubectl get nodes`.",
            ) from error


class Watching:
    """A watch in progress. Iterate over its events; any thread may call `close`."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response

    def __iter__(self) -> Iterator[Object]:
        try:
            for line in byte_lines(self._response.iter_bytes()):
                if line:
                    yield json.loads(line)
        except (httpx.HTTPError, httpx.StreamError, ValueError) as error:
            raise EngineError(f"A watch broke off: {error!r}.") from error
        finally:
            self._response.close()

    def close(self) -> None:
        stream = self._response.extensions.get("network_stream")
        plug = stream.get_extra_info("socket") if stream is not None else None
        if isinstance(plug, socket.socket):
            try:
                plug.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the connection was closed already


def _no_kind(api_version: str, kind: str) -> KubeError:
    hint = INSTALLS.get(api_version.partition("/")[0], "")
    return KubeError(404, "NotFound", f"The cluster has no {kind} ({api_version}).", hint)


def _refusal(response: httpx.Response) -> KubeError:
    try:
        status = response.json()
        reason, message = str(status.get("reason", "")), str(status.get("message", ""))
    except (ValueError, AttributeError):
        reason, message = "", response.text[:500]
    code = response.status_code
    hint = {
        401: "The credentials are not valid, or no longer: see the kubeconfig.",
        403: "The server's account needs that right: see docs/kubernetes.md.",
    }
    return KubeError(code, reason, f"Kubernetes said {code} {reason}: {message}".strip(), hint.get(code, ""))


def _is_loopback(server: str) -> bool:
    host = urlsplit(server).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
