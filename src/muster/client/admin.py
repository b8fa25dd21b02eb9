"""The part of the client that looks after what jobs run on and who may use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from muster.client.job import Job

if TYPE_CHECKING:
    from muster.client.http import Transport

Doc = dict[str, Any]  # JSON as the API documents it


class Admin:
    """Queues, nodes, projects, secrets and tokens; `Client` adds the jobs."""

    _transport: Transport

    def queues(self) -> list[Doc]:
        return list(self._get("/v1/queues")["queues"])

    def create_queue(self, name: str, project: str = "default", **settings: Any) -> Doc:
        """`settings`: policy, weight, min_priority, max_priority."""
        given = {key: value for key, value in settings.items() if value is not None}
        return self._send("POST", "/v1/queues", {"name": name, "project": project, **given})

    def line(self, queue: str, limit: int | None = None) -> list[Job]:
        """The queue's waiting jobs, in the order in which they would start."""
        return [self._job(view) for view in self._get(f"/v1/queues/{part(queue)}/line", limit=limit)["jobs"]]

    def nodes(self) -> list[Doc]:
        return list(self._get("/v1/nodes")["nodes"])

    def set_health(self, node: str, health: str, reason: str = "") -> Doc:
        """`health`: healthy, draining, quarantined or suspect."""
        return self._send("POST", f"/v1/nodes/{part(node)}/health", {"health": health, "reason": reason})

    def projects(self) -> list[Doc]:
        return list(self._get("/v1/projects")["projects"])

    def create_project(self, name: str, description: str = "") -> Doc:
        return self._send("POST", "/v1/projects", {"name": name, "description": description})

    def set_member(self, project: str, user: str, role: str) -> Doc:
        return self._send("PUT", f"/v1/projects/{part(project)}/members/{part(user)}", {"role": role})

    def remove_member(self, project: str, user: str) -> None:
        self._send("DELETE", f"/v1/projects/{part(project)}/members/{part(user)}")

    def secrets(self, project: str) -> list[str]:
        """Names; a value can't be read back."""
        return list(self._get(f"/v1/projects/{part(project)}/secrets")["names"])

    def set_secret(self, project: str, name: str, value: str) -> Doc:
        return self._send("PUT", f"/v1/projects/{part(project)}/secrets/{part(name)}", {"value": value})

    def remove_secret(self, project: str, name: str) -> None:
        self._send("DELETE", f"/v1/projects/{part(project)}/secrets/{part(name)}")

    def tokens(self) -> list[Doc]:
        return list(self._get("/v1/tokens")["tokens"])

    def create_token(
        self, name: str, user: str, role: str = "member", superuser: bool = False, expires_in: float | None = None
    ) -> Doc:
        """The token is in "token", this once. `expires_in` is in seconds."""
        body = {"name": name, "user": user, "role": role, "superuser": superuser, "expires_in": expires_in}
        return self._send("POST", "/v1/tokens", body)

    def revoke_token(self, token_id: str) -> None:
        self._send("DELETE", f"/v1/tokens/{part(token_id)}")

    def _get(self, path: str, **params: Any) -> Doc:
        return dict(self._transport.call("GET", path, params=params))

    def _send(self, method: str, path: str, body: Doc | None = None) -> Doc:
        return dict(self._transport.call(method, path, body=body))

    def _job(self, view: Doc) -> Job:
        raise NotImplementedError


def part(text: str) -> str:
    """Safe inside of a path, whatever it holds."""
    return quote(text, safe="")
