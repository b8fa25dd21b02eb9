"""The administrative part of the client: queues, nodes, engines, projects, secrets and tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from muster.core.lines import byte_lines

if TYPE_CHECKING:
    from muster.client.http import Transport

DIAGNOSIS: Final = 120.0  # seconds that one finding may take
Doc = dict[str, Any]  # JSON as the API documents it


class Admin:
    """Queues, nodes, projects, secrets and tokens; `Client` adds the jobs."""

    _transport: Transport

    def queues(self) -> list[Doc]:
        return list(self._get("/v1/queues")["queues"])

    def create_queue(self, name: str, project: str = "default", **settings: Any) -> Doc:
        """`settings`: min_priority, max_priority."""
        given = {key: value for key, value in settings.items() if value is not None}
        return self._send("POST", "/v1/queues", {"name": name, "project": project, **given})

    def forecasts(self, queue: str | None = None, limit: int | None = None) -> Doc:
        """When the next jobs of one queue, or of all, will start: {"now", "jobs"}."""
        return self._get("/v1/forecast", queue=queue, limit=limit)

    def calibration(self, queue: str | None = None, since: float | None = None) -> Doc:
        """How accurate forecasts of starts were: "all", "queues" and "sizes"; `since` is in seconds back from now."""
        return self._get("/v1/forecast/calibration", queue=queue, since=since)

    def rules(self) -> Doc:
        """The rules in force: "rules" as data, "text" as a policy file, "described" in plain language."""
        return self._get("/v1/rules")

    def set_rules(self, text: str, dry_run: bool = False, source: str = "The policy") -> Doc:
        """Puts a policy file in force, or only checks it; "changes" describes what changes in plain language.

        Raises SpecError with all mistakes; the rules then stay as they are. `source` is the name of the file in the
        error.
        """
        return self._send("PUT", "/v1/rules", {"text": text, "dry_run": dry_run, "source": source})

    def nodes(self) -> list[Doc]:
        return list(self._get("/v1/nodes")["nodes"])

    def set_health(self, node: str, health: str, reason: str = "") -> Doc:
        """`health`: healthy, draining, quarantined or suspect."""
        return self._send("POST", f"/v1/nodes/{part(node)}/health", {"health": health, "reason": reason})

    def engines(self) -> list[Doc]:
        """The engines, their state and what they can do."""
        return list(self._get("/v1/engines")["engines"])

    def engine(self, name: str) -> Doc:
        return self._get(f"/v1/engines/{part(name)}")

    def diagnose(self, engine: str) -> Iterator[Doc]:
        """Findings of a diagnosis of an engine, as they arrive: "status", "name", "detail" and "hint"."""
        path = f"/v1/engines/{part(engine)}/doctor"
        with self._transport.open(path, {}, {}, DIAGNOSIS) as response:
            for line in byte_lines(response.iter_bytes()):
                if line.strip():
                    yield json.loads(line)

    def engine_usage(self, engine: str, since: float | None = None) -> Doc:
        """What attempts used according to the engine's accounting; `since` is in seconds back from now."""
        return self._get(f"/v1/engines/{part(engine)}/usage", since=since)

    def reconcile_engine(self, engine: str, since: float | None = None) -> Doc:
        """Where the engine's accounting and Muster's differ: "differences", of so many "attempts" and "records"."""
        return self._get(f"/v1/engines/{part(engine)}/reconcile", since=since)

    def projects(self) -> list[Doc]:
        return list(self._get("/v1/projects")["projects"])

    def create_project(self, name: str, description: str = "") -> Doc:
        return self._send("POST", "/v1/projects", {"name": name, "description": description})

    def set_member(self, project: str, user: str, role: str) -> Doc:
        return self._send("PUT", f"/v1/projects/{part(project)}/members/{part(user)}", {"role": role})

    def remove_member(self, project: str, user: str) -> None:
        self._send("DELETE", f"/v1/projects/{part(project)}/members/{part(user)}")

    def secrets(self, project: str) -> list[str]:
        """Names only; a value can't be read back."""
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
        """The token is in "token"; it is shown only once. `expires_in` is in seconds."""
        body = {"name": name, "user": user, "role": role, "superuser": superuser, "expires_in": expires_in}
        return self._send("POST", "/v1/tokens", body)

    def revoke_token(self, token_id: str) -> None:
        self._send("DELETE", f"/v1/tokens/{part(token_id)}")

    def node_history(self, pool: str | None = None, since: float | None = None, every: int | None = None) -> Doc:
        """Use, queue depth and waits of pools; `since`: seconds back from now, `every`: bucket length in seconds."""
        return self._get("/v1/nodes/history", pool=pool, since=since, every=every)

    def service_levels(self, queue: str | None = None, since: float | None = None) -> Doc:
        """How many jobs waited longer than their targets; `since` is in seconds back from now."""
        return self._get("/v1/slo", queue=queue, since=since)

    def _get(self, path: str, **params: Any) -> Doc:
        return dict(self._transport.call("GET", path, params=params))

    def _send(self, method: str, path: str, body: Doc | None = None) -> Doc:
        return dict(self._transport.call(method, path, body=body))


def part(text: str) -> str:
    """The text quoted for use in a path."""
    return quote(text, safe="")
