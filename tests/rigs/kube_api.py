"""A stand-in for the Kubernetes API server over HTTP, for tests: lists, watches, patches and deletions by its rules.

`ApiServer(store).start()` listens on loopback; `url` is where. See `kube_store` for the rules of the objects.
"""

from __future__ import annotations

import base64
import copy
import json
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import yaml

from rigs.kube_admission import Admission
from rigs.kube_schema import check_apply, check_create
from rigs.kube_select import BadSelector, matches_fields, matches_labels
from rigs.kube_store import KINDS, ApiError, Change, Kind, Object, Store

VISIBILITY = "visibility.kueue.x-k8s.io"
BOOKMARK_EVERY = 1.0  # seconds; the real one's is about a minute
VERSION = {"major": "1", "minor": "37", "gitVersion": "v1.37.0", "platform": "linux/amd64"}


class ApiServer:
    def __init__(self, store: Store, token: str = "") -> None:
        self.store, self.token = store, token
        self.calls: list[tuple[str, str]] = []  # method and path of every request
        self.closing = threading.Event()
        self.breaks = threading.Event()  # set: every watch is cut off at once, once
        self.refuses: dict[tuple[str, str], ApiError] = {}  # method, plural → what it answers
        self.admission = Admission()
        self.absent: set[str] = set()  # groups whose kinds are not installed
        self.before_delete: Callable[[], object] = lambda: None  # in the thread of every deletion of a Job
        self.unready = False  # it answers, and says of itself that it is not well
        store.admit.append(lambda item: self.admission.admit(store, item))
        self._http = _Http(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()
        with self.store.changed:
            self.store.changed.notify_all()


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who hangs up in the middle, as a killed server does, is no trouble of ours."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def _handler(server: ApiServer) -> type[BaseHTTPRequestHandler]:
    class Bound(_Handler):
        api = server

    return Bound


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16
    api: ApiServer

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        self._serve()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        self.params = dict(parse_qsl(parts.query))
        length = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(length)
        self.api.calls.append((self.command, parts.path))
        try:
            if parts.path in ("/readyz", "/livez"):
                return self._plain(500 if self.api.unready else 200, "[-]etcd failed" if self.api.unready else "ok")
            if self.api.token and self.headers.get("Authorization") != f"Bearer {self.api.token}":
                raise ApiError(401, "Unauthorized", "Unauthorized")
            self._route([unquote(part) for part in parts.path.split("/") if part])
        except _NoPath:
            self._plain(404, "404 page not found\n")
        except ApiError as error:
            self._answer(error.status(), error.code)
        except BadSelector as error:
            self._answer(ApiError(400, "BadRequest", str(error)).status(), 400)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    # --- where to --------------------------------------------------------------------------------------------------
    def _route(self, parts: list[str]) -> None:
        if parts == ["version"]:
            return self._answer(VERSION)
        if parts == ["apis"]:
            return self._groups()
        if parts[0] == "apis" and len(parts) == 2:
            return self._group(parts[1])
        root = 2 if parts[0] == "api" else 3
        api_version = "/".join(parts[1:root])
        kinds = [kind for kind in KINDS if kind.api_version == api_version]
        if parts[1] in self.api.absent:
            raise _NoPath
        rest = parts[root:]
        if not rest:
            return self._resources(api_version, kinds)
        if rest[-1] == "pendingworkloads":
            return self._pending(rest[1], rest[3])
        if rest[-1] == "selfsubjectaccessreviews":
            return self._review()
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        kind = next((kind for kind in kinds if kind.plural == rest[0]), None)
        if kind is None:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        self.api.admission.authorize(self._verb(len(rest) == 1), kind, namespace, rest[1] if len(rest) > 1 else "")
        if (self.command, kind.plural) in self.api.refuses:
            raise self.api.refuses[self.command, kind.plural]
        if len(rest) == 1:
            return self._collection(kind, namespace)
        return self._object(kind, namespace, rest[1], rest[2] if len(rest) > 2 else "")

    def _pending(self, namespace: str, queue: str) -> None:
        """Kueue's own API of who waits in a queue, in its order."""
        waiting = [w for w in self.api.store.list("Workload", namespace) if w["spec"]["queueName"] == queue]
        waiting = [w for w in waiting if not any(c["type"] == "Admitted" for c in w["status"].get("conditions") or [])]
        waiting.sort(key=lambda w: (w["metadata"]["creationTimestamp"], w["metadata"]["name"]))
        items = [
            {"metadata": {"name": w["metadata"]["name"]}, "positionInLocalQueue": n} for n, w in enumerate(waiting)
        ]
        self._answer({"kind": "PendingWorkloadsSummary", "items": items})

    def _verb(self, whole: bool) -> str:
        if self.command == "GET":
            return ("watch" if self.params.get("watch") in ("true", "1") else "list") if whole else "get"
        if self.command == "DELETE":
            return "deletecollection" if whole else "delete"
        return {"POST": "create", "PUT": "update", "PATCH": "patch"}[self.command]

    def _review(self) -> None:
        """SelfSubjectAccessReview."""
        asked = json.loads(self.body)
        about = asked["spec"]["resourceAttributes"]
        admission = self.api.admission
        denied = (about["verb"], about["resource"]) in admission.denied or about.get("namespace") in admission.strange
        self._answer({**asked, "status": {"allowed": not denied}}, 201)

    def _groups(self) -> None:
        served = sorted({kind.group for kind in KINDS if kind.group} | {VISIBILITY})
        found = [self._versions(group) for group in served if group not in self.api.absent]
        self._answer({"kind": "APIGroupList", "apiVersion": "v1", "groups": found})

    def _group(self, group: str) -> None:
        found = self._versions(group)
        if not found["versions"] or group in self.api.absent:
            raise _NoPath
        self._answer({"kind": "APIGroup", "apiVersion": "v1", **found})

    def _versions(self, group: str) -> Object:
        found = sorted({kind.api_version for kind in KINDS if kind.group == group})
        found += [f"{VISIBILITY}/v1beta1"] if group == VISIBILITY else []
        versions = [{"groupVersion": one, "version": one.split("/")[1]} for one in found]
        return {"name": group, "versions": versions, "preferredVersion": versions[0] if versions else {}}

    def _resources(self, api_version: str, kinds: list[Kind]) -> None:
        if not kinds and api_version != "authorization.k8s.io/v1":
            raise _NoPath
        listed = [{"name": k.plural, "kind": k.kind, "namespaced": k.namespaced, "verbs": []} for k in kinds]
        listed += [
            {"name": f"{k.plural}/status", "kind": k.kind, "namespaced": k.namespaced, "verbs": []} for k in kinds
        ]
        self._answer({"kind": "APIResourceList", "groupVersion": api_version, "resources": listed})

    def _collection(self, kind: Kind, namespace: str) -> None:
        if self.command == "POST":
            item = self._given(kind, namespace)
            if self.params.get("fieldValidation") == "Strict":
                check_create(item)
            return self._answer(self.api.store.create(item, self._manager(), self._dry()), 201)
        if self.command == "DELETE":
            return self._delete_all(kind, namespace)
        if self.params.get("watch") in ("true", "1"):
            return self._watch(kind, namespace)
        self._list(kind, namespace)

    def _object(self, kind: Kind, namespace: str, name: str, subresource: str) -> None:
        store = self.api.store
        if self.command == "GET":
            return self._answer(store.get(kind.kind, namespace, name))
        if self.command == "DELETE":
            if kind.kind == "Job":
                self.api.before_delete()
            options = json.loads(self.body) if self.body else {}
            if "gracePeriodSeconds" in self.params:
                options["gracePeriodSeconds"] = int(self.params["gracePeriodSeconds"])
            options.setdefault("propagationPolicy", self.params.get("propagationPolicy", "Background"))
            return self._answer(store.delete(kind.kind, namespace, name, options, self._dry()))
        if self.command == "POST" and subresource == "eviction":
            return self._answer(evict(store, namespace, name), 201)
        if self.command == "PUT":
            item = self._given(kind, namespace)
            return self._answer(store.update(item, self._manager(), subresource, self._dry()))
        if self.command != "PATCH":
            raise ApiError(405, "MethodNotAllowed", self.command)
        how = self.headers.get("Content-Type", "")
        if how == "application/apply-patch+yaml":
            self._apply(kind, namespace, name)
        elif how in ("application/merge-patch+json", "application/strategic-merge-patch+json"):
            body = json.loads(self.body)
            self._answer(store.patch(kind, namespace, name, body, self._manager(), subresource, self._dry()))
        else:
            raise ApiError(415, "UnsupportedMediaType", f"the body of the request was in an unknown format: {how}")

    def _apply(self, kind: Kind, namespace: str, name: str) -> None:
        body = yaml.safe_load(self.body) if not self.body.startswith(b"{") else json.loads(self.body)
        if "fieldManager" not in self.params:
            raise ApiError(422, "Invalid", "fieldManager: Required value: is required for apply patch")
        if (body.get("kind"), body.get("apiVersion")) != (kind.kind, kind.api_version):
            raise ApiError(400, "BadRequest", "the object's kind is not the request's")
        given = body.get("metadata", {}).get("name")
        if given != name:
            told = f"the name of the object ({given}) does not match the name on the URL ({name})"
            raise ApiError(400, "BadRequest", told)
        check_apply(body, namespace)
        there = self.api.store.find(kind.kind, namespace, name) is not None
        force = self.params.get("force") == "true"
        made = self.api.store.apply(kind, namespace, name, body, self.params["fieldManager"], force, self._dry())
        self._answer(made, 200 if there else 201)

    def _delete_all(self, kind: Kind, namespace: str) -> None:
        """Answers with what it has deleted, as far as the caller wants to see it."""
        store, options = self.api.store, json.loads(self.body) if self.body else {}
        found = store.list(kind.kind, namespace, self.params.get("labelSelector", ""))
        for item in found:
            store.delete(kind.kind, item["metadata"].get("namespace", ""), item["metadata"]["name"], options)
        self._answer({"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": {}, "items": found})

    # --- many at once ------------------------------------------------------------------------------------------------
    def _list(self, kind: Kind, namespace: str) -> None:
        store = self.api.store
        with store.lock:
            items = store.list(
                kind.kind, namespace, self.params.get("labelSelector", ""), self.params.get("fieldSelector", "")
            )
            version = store.version
        about: Object = {"resourceVersion": str(version)}
        if token := self.params.get("continue"):
            version, last = json.loads(base64.b64decode(token))
            if version < store.oldest:
                raise ApiError(410, "Expired", "The provided continue parameter is too old")
            about["resourceVersion"] = str(version)
            items = [item for item in items if _place(item) > last]
        limit = int(self.params.get("limit") or 0)
        if limit and len(items) > limit:
            about["remainingItemCount"] = len(items) - limit
            items = items[:limit]
            about["continue"] = base64.b64encode(json.dumps([version, _place(items[-1])]).encode()).decode()
        if not kind.custom:
            items = [
                {name: value for name, value in item.items() if name not in ("kind", "apiVersion")} for item in items
            ]
        self._answer({"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": about, "items": items})

    def _watch(self, kind: Kind, namespace: str) -> None:
        store, version = self.api.store, int(self.params.get("resourceVersion") or 0)
        ends = time.monotonic() + int(self.params.get("timeoutSeconds") or 1800)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if version == 0:
            version = store.version
        at = 0  # in the list of changes
        while not self.api.closing.is_set() and not self.api.breaks.is_set() and time.monotonic() < ends:
            with store.lock:
                if version + 1 < store.oldest:
                    gone = ApiError(410, "Expired", f"too old resource version: {version} ({store.oldest})")
                    self._event("ERROR", gone.status())
                    break
                at = at if at <= len(store.changes) else 0
                news = [change for change in store.changes[at:] if change.version > version]
                at, present = len(store.changes), store.version
            for change in news:
                self._tell(kind, namespace, change)
            self.wfile.flush()
            version = present
            if store.wait(version, BOOKMARK_EVERY) == version and self.params.get("allowWatchBookmarks") == "true":
                mark = {
                    "kind": kind.kind,
                    "apiVersion": kind.api_version,
                    "metadata": {"resourceVersion": str(version)},
                }
                self._event("BOOKMARK", mark)
                self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()
        self.close_connection = True

    def _tell(self, kind: Kind, namespace: str, change: Change) -> None:
        """With a selector, what begins to match is added and what matches no more is deleted."""
        if change.kind != kind.kind or (namespace and change.item["metadata"].get("namespace") != namespace):
            return
        labels, fields = self.params.get("labelSelector", ""), self.params.get("fieldSelector", "")
        matches = [
            item is not None and matches_labels(item, labels) and matches_fields(item, fields)
            for item in (change.before, change.item)
        ]
        if change.type == "DELETED":
            if any(matches):
                self._event("DELETED", change.item)
        elif matches[1]:
            self._event("MODIFIED" if matches[0] else "ADDED", change.item)
        elif matches[0]:
            self._event("DELETED", change.item)

    # --- small things ------------------------------------------------------------------------------------------------
    def _event(self, type: str, item: Object) -> None:
        line = json.dumps({"type": type, "object": item}, ensure_ascii=False).encode() + b"\n"
        self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")

    def _given(self, kind: Kind, namespace: str) -> Object:
        item: Object = json.loads(self.body)
        item.setdefault("kind", kind.kind)
        item.setdefault("apiVersion", kind.api_version)
        if kind.namespaced:
            item["metadata"].setdefault("namespace", namespace)
        return item

    def _manager(self) -> str:
        return self.params.get("fieldManager") or self.headers.get("User-Agent", "unknown").split("/")[0]

    def _dry(self) -> bool:
        return self.params.get("dryRun") == "All"

    def _plain(self, code: int, text: str) -> None:
        self._send(code, "text/plain; charset=utf-8", text.encode())

    def _answer(self, item: Object, code: int = 200) -> None:
        accept = self.headers.get("Accept", "")
        many = "items" in item and item["kind"] != "APIGroupList"
        if "as=PartialObjectMetadata;" in accept and many:
            told = f"you requested PartialObjectMetadata, but the requested object is a list (*core.{item['kind']})"
            item, code = ApiError(406, "NotAcceptable", told).status(), 406
        elif "as=PartialObjectMetadata" in accept and item.get("kind") != "Status":
            item = _bare_list(item) if many else _bare(item)
        self._send(code, "application/json", json.dumps(item, ensure_ascii=False).encode())

    def _send(self, code: int, kind: str, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()


def evict(store: Store, namespace: str, name: str, reason: str = "EvictionByEvictionAPI", message: str = "") -> Object:
    """Marks a pod with why it goes, and deletes it with its grace."""

    def mark(pod: Object) -> None:
        conditions = copy.deepcopy(pod["status"].get("conditions") or [])
        told = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message or "evicted"}
        pod["status"]["conditions"] = [*conditions, told]

    store.edit("Pod", namespace, name, mark)
    store.delete("Pod", namespace, name)
    return {"kind": "Status", "apiVersion": "v1", "status": "Success"}


class _NoPath(Exception):
    """The answer to a path that nothing serves is no Status, but text."""


def _bare(item: Object) -> Object:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"]}


def _bare_list(item: Object) -> Object:
    kind = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"]}
    return {**kind, "items": [_bare(one) for one in item["items"]]}


def _place(item: Object) -> str:
    return f"{item['metadata'].get('namespace', '')}/{item['metadata']['name']}"
