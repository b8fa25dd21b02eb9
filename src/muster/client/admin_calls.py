"""Administrative calls: queues, nodes, engines, projects, secrets, tokens and the server itself."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from muster.client.connection import Anyone, part
from muster.core.lines import ByteLines

if TYPE_CHECKING:
    from muster.api.access import ProjectView, SecretSet, TokenCreated, TokenView, Whoami
    from muster.api.capacity import CapacityView
    from muster.api.cluster import NodeCheckView, NodeRecordView, NodeView, QueueView
    from muster.api.engines import EngineView, FindingView, Reconciliation, UsageList
    from muster.api.failures import FailuresView
    from muster.api.health import Readiness, ServerHealth, ServerView
    from muster.api.history import HistoryView, ServiceLevels
    from muster.api.report import ReportView
    from muster.api.rules import RulesSet, RulesView
    from muster.api.session import ProviderAccountView, SessionLink, ShareLink, ShareRevoked
    from muster.api.why import Calibration, ForecastList

DIAGNOSIS: Final = 120.0  # seconds that one finding may take
CHECK_SECONDS: Final = 120.0  # seconds that the check of a node may take, with the wait for a place there


async def queues(to: Anyone, /) -> list[QueueView]:
    return (await to._get("/v1/queues"))["queues"]


async def create_queue(to: Anyone, /, name: str, project: str = "default", **settings: Any) -> QueueView:
    """`settings`: min_priority, max_priority."""
    given = {key: value for key, value in settings.items() if value is not None}
    return await to._send("POST", "/v1/queues", {"name": name, "project": project, **given})


async def forecasts(to: Anyone, /, queue: str | None = None, limit: int | None = None) -> ForecastList:
    """When the next jobs of one queue, or of all, will start: {"now", "jobs"}."""
    return await to._get("/v1/forecast", queue=queue, limit=limit)


async def calibration(to: Anyone, /, queue: str | None = None, since: float | None = None) -> Calibration:
    """How accurate forecasts of starts were: "all", "queues" and "sizes"; `since` is in seconds back from now."""
    return await to._get("/v1/forecast/calibration", queue=queue, since=since)


async def rules(to: Anyone, /) -> RulesView:
    """The rules in force: "rules" as data, "text" as a policy file, "described" in plain language."""
    return await to._get("/v1/rules")


async def set_rules(
    to: Anyone, /, text: str, dry_run: bool = False, source: str = "The policy", create: str | None = None
) -> RulesSet:
    """Puts a policy file in force, or only checks it; "changes" describes what changes in plain language.

    `create`: a project in which queues are created that the policy names and that are missing ("created").
    Raises SpecError with all mistakes; the rules then stay as they are. `source` is the name of the file in the
    error.
    """
    body: dict[str, Any] = {"text": text, "dry_run": dry_run, "source": source}
    return await to._send("PUT", "/v1/rules", body if create is None else {**body, "create": create})


async def nodes(to: Anyone, /) -> list[NodeView]:
    return (await to._get("/v1/nodes"))["nodes"]


async def capacity(to: Anyone, /) -> list[CapacityView]:
    """What there is by pool and accelerator: used, free, out of service, and free but stranded."""
    return (await to._get("/v1/capacity"))["pools"]


async def set_health(to: Anyone, /, node: str, health: str, reason: str = "") -> NodeView:
    """`health`: healthy, draining, quarantined or suspect."""
    return await to._send("POST", f"/v1/nodes/{part(node)}/health", {"health": health, "reason": reason})


async def check_node(to: Anyone, /, node: str) -> NodeCheckView:
    """Checks a node now: "findings", each with "check", "status" (ok, failed, unknown) and "detail". With "later", it
    is checked before the next start there instead. On Slurm and Kubernetes it may wait a minute for a place there."""
    path = f"/v1/nodes/{part(node)}/check"
    found: NodeCheckView = await to._transport.call("POST", path, body={}, work=CHECK_SECONDS)
    return found


async def node_record(to: Anyone, /, node: str, limit: int | None = None, before: int | None = None) -> NodeRecordView:
    """What happened to a node, oldest first: "entries", and "failures" by reason. For older ones, pass "next" as
    `before`."""
    return await to._get(f"/v1/nodes/{part(node)}/history", limit=limit, before=before)


async def engines(to: Anyone, /) -> list[EngineView]:
    """The engines, their state and what they can do."""
    return (await to._get("/v1/engines"))["engines"]


async def engine(to: Anyone, /, name: str) -> EngineView:
    return await to._get(f"/v1/engines/{part(name)}")


async def diagnose(to: Anyone, /, engine: str) -> AsyncGenerator[FindingView, None]:
    """Findings of a diagnosis of an engine, as they arrive: "status", "name", "detail" and "hint"."""
    lines = ByteLines()
    async with (
        to._transport.open(f"/v1/engines/{part(engine)}/doctor", {}, DIAGNOSIS) as response,
        aclosing(to._transport.blocks(response)) as blocks,
    ):
        async for block in blocks:
            for line in lines.feed(block):
                if line.strip():
                    yield json.loads(line)


async def engine_usage(to: Anyone, /, engine: str, since: float | None = None) -> UsageList:
    """What attempts used according to the engine's accounting; `since` is in seconds back from now."""
    return await to._get(f"/v1/engines/{part(engine)}/usage", since=since)


async def reconcile_engine(to: Anyone, /, engine: str, since: float | None = None) -> Reconciliation:
    """Where the engine's accounting and Muster's differ: "differences", of so many "attempts" and "records"."""
    return await to._get(f"/v1/engines/{part(engine)}/reconcile", since=since)


async def projects(to: Anyone, /) -> list[ProjectView]:
    return (await to._get("/v1/projects"))["projects"]


async def create_project(to: Anyone, /, name: str, description: str = "") -> ProjectView:
    return await to._send("POST", "/v1/projects", {"name": name, "description": description})


async def set_member(to: Anyone, /, project: str, user: str, role: str) -> ProjectView:
    return await to._send("PUT", f"/v1/projects/{part(project)}/members/{part(user)}", {"role": role})


async def remove_member(to: Anyone, /, project: str, user: str) -> None:
    await to._send("DELETE", f"/v1/projects/{part(project)}/members/{part(user)}")


async def secrets(to: Anyone, /, project: str) -> list[str]:
    """Names only; a value can't be read back."""
    return (await to._get(f"/v1/projects/{part(project)}/secrets"))["names"]


async def set_secret(to: Anyone, /, project: str, name: str, value: str) -> SecretSet:
    return await to._send("PUT", f"/v1/projects/{part(project)}/secrets/{part(name)}", {"value": value})


async def remove_secret(to: Anyone, /, project: str, name: str) -> None:
    await to._send("DELETE", f"/v1/projects/{part(project)}/secrets/{part(name)}")


async def tokens(to: Anyone, /) -> list[TokenView]:
    return (await to._get("/v1/tokens"))["tokens"]


async def create_token(
    to: Anyone,
    /,
    name: str,
    user: str,
    role: str = "member",
    superuser: bool = False,
    expires_in: float | None = None,
    finance: bool = False,
) -> TokenCreated:
    """The token is in "token"; it is shown only once. `expires_in` is in seconds. "notes": why it allows less.

    `finance`: it may read the costs of all projects, and nothing else.
    """
    body = {"name": name, "user": user, "role": role, "superuser": superuser, "expires_in": expires_in}
    if finance:
        body["finance"] = True
    return await to._send("POST", "/v1/tokens", body)


async def revoke_token(to: Anyone, /, token: str) -> TokenView:
    """Revokes a token by its id, or by a name that only one valid token has."""
    return await to._send("DELETE", f"/v1/tokens/{part(token)}")


async def session_link(to: Anyone, /, page: str = "/") -> SessionLink:
    """A link that signs a browser in as the caller: "url", once, until "expires_at". `page`: where it leads."""
    return await to._send("POST", "/v1/session/links", {"page": page})


async def share_run(to: Anyone, /, run: str, page: str | None = None, days: float = 7) -> ShareLink:
    """A link that shows one run to whoever has it, and nothing else: "url", until "expires_at".

    It also ends with the token that made it. `page`: where it leads; the run's page if None.
    """
    body = {"run": run, "page": page, "days": days}
    return await to._send("POST", "/v1/session/shares", body)


async def revoke_share(to: Anyone, /, share: str) -> ShareRevoked:
    """Makes the link of a share worthless, by its "id", and ends every session that began with it."""
    return await to._send("DELETE", f"/v1/session/shares/{part(share)}")


async def provider_accounts(to: Anyone, /) -> list[ProviderAccountView]:
    """The accounts at the identity provider that have signed in, and as which users; for administrators."""
    return (await to._get("/v1/provider-accounts"))["accounts"]


async def release_provider_account(to: Anyone, /, user: str) -> list[ProviderAccountView]:
    """Ends the sessions of the account that signs in as this user, and lets another be bound to the user. The account
    that was released; none if there was none."""
    return (await to._send("DELETE", f"/v1/provider-accounts/{part(user)}"))["accounts"]


async def node_history(
    to: Anyone, /, pool: str | None = None, since: float | None = None, every: int | None = None
) -> HistoryView:
    """Use, queue depth and waits of pools; `since`: seconds back from now, `every`: bucket length in seconds."""
    return await to._get("/v1/nodes/history", pool=pool, since=since, every=every)


async def service_levels(to: Anyone, /, queue: str | None = None, since: float | None = None) -> ServiceLevels:
    """How many jobs waited longer than their targets; `since` is in seconds back from now."""
    return await to._get("/v1/slo", queue=queue, since=since)


async def failures(to: Anyone, /, since: float | None = None, project: str | None = None) -> FailuresView:
    """Failed attempts by cause, node and code, and the time between failures; `since`: seconds back from now."""
    return await to._get("/v1/failures", since=since, project=project)


async def report(
    to: Anyone,
    /,
    month: str | None = None,
    *,
    week: str | None = None,
    since: float | None = None,
    project: str | None = None,
    zone: str | None = None,
) -> ReportView:
    """Figures of a month ("2026-10"), an ISO week ("2026-W43") or the last days, against targets and periods before.

    The current month so far unless given; `since`: seconds back from now; `zone`: a time zone, UTC unless given.
    """
    return await to._get("/v1/report", month=month, week=week, since=since, project=project, zone=zone)


async def ready(to: Anyone, /) -> Readiness:
    """The response of /readyz: {"ready", "leader", "holder", "urls"}."""
    return await to._transport.ready()


async def clock(to: Anyone, /) -> float:
    """The server's time, in whole seconds since the epoch."""
    return await to._transport.clock()


async def health(to: Anyone, /) -> ServerHealth:
    """How far the server's followers of the log are and, for an administrator, what was set aside."""
    return await to._get("/v1/health")


async def server(to: Anyone, /) -> ServerView:
    return await to._get("/v1/server")


async def whoami(to: Anyone, /) -> Whoami:
    return await to._get("/v1/whoami")


async def close(to: Anyone, /) -> None:
    """Closes the connections. Calls that are under way fail."""
    await to._transport.close()
