"""Every route that changes something leaves one event with its actor, and holds to the roles: derived from OpenAPI.

A new route needs a case here, or a reason in `QUIET` why it leaves none.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from events_kit import AUDIT
from live import LiveServer, until
from role_kit import study_of

PROJECT = "ledger"
SECRET = "a-value-that-nobody-may-read-in-the-log"
MUTATING = ("post", "put", "patch", "delete")

# Routes that leave no event, and why.
QUIET = {
    "POST /v1/preflight/plan": "asks, and changes nothing",
    "POST /v1/preflight/certificates": "leaves an event when the jobs have passed: see tests/preflight",
    "POST /v1/runs/search": "asks, and changes nothing",
    "POST /v1/compare": "asks, and changes nothing",
    "POST /v1/compare/curves": "asks, and changes nothing",
    "POST /v1/alerts/{number}/acknowledge": "leaves an event if the alert fires: see tests/web/test_alerts_page.py",
    "POST /v1/alerts/test": "asks, and changes nothing",
    "POST /v1/rules/replay": "asks, and changes nothing",
    "POST /v1/schema/job": "changes a text that was sent, and nothing here",
    "POST /v1/environments/check": "asks, and changes nothing",
    "POST /v1/blobs/missing": "asks, and changes nothing",
    "PUT /v1/blobs/{digest}": "bytes without a name, which go unless a run names them; naming them leaves the event",
    "POST /v1/blobs/bundle": "as PUT /v1/blobs/{digest}",
    "POST /v1/ingest": "what a gang reports about itself: data, by an attempt and not by a person",
    "PUT /v1/ingest/blobs/{digest}": "as /v1/ingest",
    "POST /v1/ingest/meet": "a worker waits for the others of its gang; nothing is stored",
    "POST /v1/ingest/code/bundle": "a worker reads its job's code",
    "POST /v1/runs/external/beat": "a script says that it lives; opening its run left the event",
    "POST /v1/jobs/{ref}/exec": "leaves two events, the second at the end of the session: see tests/exec",
    "DELETE /v1/jobs/{ref}/exec/{ident}": "as POST /v1/jobs/{ref}/exec",
    "POST /v1/jobs/{ref}/exec/{ident}/input": "bytes of a session whose opening left the event",
    "POST /v1/ingest/exec/{ident}/output": "bytes of a session whose opening left the event",
    "POST /v1/ingest/exec/{ident}/end": "leaves the event of the session's end",
    "POST /v1/jobs/{ref}/save": "leaves an event if the program looks for requests to save: see tests/stacks",
    "POST /v1/jobs/{ref}/stacks": "leaves an event if the job runs: see tests/stacks",
    "PUT /v1/projects/{project}/optuna/{name}/snapshot": "what logs add up to, which are there already",
    "POST /v1/session/links": "a link that nobody has used yet; the session that begins with it leaves the event",
    "DELETE /v1/provider-accounts/{user}": "leaves an event if an account is bound to the user: see test_oidc.py",
    "DELETE /v1/session": "leaves an event if the request has a session: see test_web_sessions.py",
    "POST /v1/studies/{ref}/report": "leaves an event when the trial has passed a level: see tests/studies",
    "POST /v1/runs/{ref}/import": "the data of an import that POST /v1/runs/import began, with its event",
}


@dataclass
class ServerSetup:
    """One project with people in it, and what the cases are made of, under a name of its own for each."""

    server: LiveServer
    root: httpx.Client
    name: str = field(default_factory=lambda: f"x{uuid.uuid4().hex[:10]}")

    def post(self, path: str, body: Any) -> Any:
        answer = self.root.post(path, json=body)
        assert answer.status_code < 300, answer.text
        return answer.json()

    def run(self) -> str:
        return str(self.post("/v1/runs", {"project": PROJECT, "name": self.name})["id"])

    def model(self, versions: int = 0) -> str:
        name = f"m-{uuid.uuid4().hex[:10]}"
        self.post("/v1/models", {"name": name, "project": PROJECT})
        for _ in range(versions):
            self.post(f"/v1/models/{name}/versions", {"source": "s3://elsewhere/x"})
        return name

    def spec(self, run: str = "true") -> dict[str, Any]:
        return {"name": self.name, "run": run, "project": PROJECT, "workdir": str(self.server.home)}

    def job(self) -> str:
        return str(self.post("/v1/jobs", {"spec": self.spec("sleep 600")})["id"])

    def stopped_job(self) -> str:
        job = self.job()
        self.post(f"/v1/jobs/{job}/stop", {"force": True})
        self.server.wait(job, "stopped")
        return job

    def artifact(self) -> str:
        run = self.run()
        assert self.root.put(f"/v1/runs/{run}/artifacts/a/b.txt", content=b"x").status_code == 201
        return run

    def budget(self) -> str:
        path = f"/v1/cost/budgets/{self.name}"
        assert self.root.put(path, json={"amount": "5", "project": PROJECT}).status_code == 200
        return self.name

    def secret(self) -> str:
        self.root.put(f"/v1/projects/{PROJECT}/secrets/OLD", json={"value": SECRET})
        return "OLD"

    def member(self) -> str:
        self.root.put(f"/v1/projects/{PROJECT}/members/{self.name}", json={"role": "viewer"})
        return self.name


Made = tuple[str, dict[str, Any]]  # the address and what is sent


@dataclass(frozen=True)
class Case:
    """`outsider` and `viewer`: how a member of another project and a viewer of this one are answered."""

    kind: str
    make: Callable[[ServerSetup], Made]
    who: str = "member"
    viewer: int = 403
    outsider: int = 404


def sent(url: str, **body: Any) -> Made:
    return url, {"json": body}


def own_token(setup: ServerSetup, who: str) -> Made:
    return f"/v1/tokens/{setup.post('/v1/tokens', {'user': who, 'role': 'viewer'})['id']}", {}


def token_of(setup: ServerSetup, user: str) -> str:
    return str(setup.post("/v1/tokens", {"user": user, "role": "viewer"})["token"])


def opening(setup: ServerSetup) -> dict[str, Any]:
    return {"id": f"{setup.name}-script", "key": uuid.uuid4().hex, "project": PROJECT}


def importing(setup: ServerSetup) -> dict[str, Any]:
    told = {"tool": "csv", "key": setup.name, "project": PROJECT, "created_at": time.time()}
    return {**told, "fingerprint": hashlib.sha256(setup.name.encode()).hexdigest()}


def hidden_run(setup: ServerSetup) -> str:
    run = setup.run()
    assert setup.root.delete(f"/v1/runs/{run}").status_code == 200
    return run


def aliased(setup: ServerSetup) -> str:
    model = setup.model(1)
    setup.root.put(f"/v1/models/{model}/aliases/best", json={"version": 1})
    return model


def saved(setup: ServerSetup) -> str:
    setup.root.put(f"/v1/queries/{setup.name}", json={"query": "", "project": PROJECT})
    return f"{PROJECT}/{setup.name}"


def journal(setup: ServerSetup) -> str:
    setup.post(f"/v1/projects/{PROJECT}/optuna/{setup.name}/logs", {"key": "a" * 32, "logs": [SECRET]})
    return setup.name


SUPERUSER = {"who": "superuser", "outsider": 403}
ADMIN = {"who": "admin"}
CASES = {
    "POST /v1/preflight/waivers": Case(
        "preflight.waived", lambda w: ("/v1/preflight/waivers", {"json": waived(w)}), "admin"
    ),
    "POST /v1/preflight/certificates/{certificate}/revoke": Case(
        "preflight.revoked", lambda w: sent(f"/v1/preflight/certificates/{certificate(w)}/revoke", why="x"), "admin"
    ),
    "POST /v1/artifacts/collect": Case("content.collected", lambda w: ("/v1/artifacts/collect", {}), **SUPERUSER),
    "POST /v1/jobs": Case("job.submitted", lambda w: sent("/v1/jobs", spec=w.spec())),
    "POST /v1/jobs/batch": Case(
        "job.submitted", lambda w: sent("/v1/jobs/batch", jobs=[{"spec": w.spec()}]), viewer=200, outsider=200
    ),
    "POST /v1/jobs/{ref}/stop": Case("job.stopping", lambda w: sent(f"/v1/jobs/{running(w)}/stop", force=True)),
    "POST /v1/jobs/{ref}/priority": Case(
        "job.priority", lambda w: sent(f"/v1/jobs/{running(w)}/priority", priority=20)
    ),
    "POST /v1/jobs/{ref}/resume": Case("job.resumed", lambda w: (f"/v1/jobs/{w.stopped_job()}/resume", {})),
    "POST /v1/projects/{project}/optuna/{name}/logs": Case(  # the first log of a journal: later ones leave none
        "optuna.created", lambda w: sent(f"/v1/projects/{PROJECT}/optuna/{w.name}/logs", key="a" * 32, logs=[SECRET])
    ),
    "DELETE /v1/projects/{project}/optuna/{name}": Case(
        "optuna.deleted", lambda w: (f"/v1/projects/{PROJECT}/optuna/{journal(w)}", {}), **ADMIN
    ),
    "POST /v1/models": Case("model.created", lambda w: sent("/v1/models", name=f"m-{w.name}", project=PROJECT)),
    "PATCH /v1/models/{name}": Case(
        "model.changed",
        lambda w: sent(f"/v1/models/{w.model()}", description=SECRET, tags={"a": SECRET}, name=f"n-{w.name}"),
    ),
    "DELETE /v1/models/{name}": Case("model.deleted", lambda w: (f"/v1/models/{w.model(1)}", {}), **ADMIN),
    "POST /v1/models/{name}/versions": Case(
        "version.created", lambda w: sent(f"/v1/models/{w.model()}/versions", source="s3://elsewhere/x")
    ),
    "PATCH /v1/models/{name}/versions/{version}": Case(
        "version.changed", lambda w: sent(f"/v1/models/{w.model(1)}/versions/1", description=SECRET, tags={"a": "b"})
    ),
    "DELETE /v1/models/{name}/versions/{version}": Case(
        "version.deleted", lambda w: (f"/v1/models/{w.model(1)}/versions/1", {}), **ADMIN
    ),
    "POST /v1/models/{name}/versions/{version}/stage": Case(
        "version.staged", lambda w: sent(f"/v1/models/{w.model(1)}/versions/1/stage", stage="staging", why=SECRET)
    ),
    "PUT /v1/models/{name}/aliases/{alias}": Case(
        "alias.set", lambda w: sent(f"/v1/models/{w.model(1)}/aliases/best", version=1)
    ),
    "DELETE /v1/models/{name}/aliases/{alias}": Case(
        "alias.removed", lambda w: (f"/v1/models/{aliased(w)}/aliases/best", {})
    ),
    "POST /v1/models/{name}/rollback": Case(
        "version.staged", lambda w: sent(f"/v1/models/{staged(w)}/rollback", stage="staging", why=SECRET)
    ),
    "POST /v1/runs/{ref}/promotion": Case(
        "job.submitted and run.promoted", lambda w: sent(f"/v1/runs/{finished(w)}/promotion", to="next")
    ),
    "POST /v1/runs/{ref}/promotion/ask": Case(
        "run.review_asked", lambda w: sent(f"/v1/runs/{finished(w)}/promotion/ask", to="reviewed", why=SECRET)
    ),
    "POST /v1/runs/{ref}/promotion/approve": Case(
        "run.approved", lambda w: sent(f"/v1/runs/{finished(w)}/promotion/approve", to="next", why=SECRET)
    ),
    "POST /v1/keys/rotate": Case("signing_key.made", lambda w: ("/v1/keys/rotate", {}), **SUPERUSER),
    "POST /v1/nodes/{name}/health": Case(
        "node.health", lambda w: sent("/v1/nodes/local-1/health", health="healthy"), **SUPERUSER
    ),
    "POST /v1/nodes/{name}/check": Case("node.checked", lambda w: sent("/v1/nodes/local-1/check"), **SUPERUSER),
    "POST /v1/projects": Case("project.set", lambda w: sent("/v1/projects", name=w.name), **SUPERUSER),
    "PUT /v1/projects/{project}/members/{user}": Case(
        "project.member", lambda w: sent(f"/v1/projects/{PROJECT}/members/{w.name}", role="viewer"), **ADMIN
    ),
    "DELETE /v1/projects/{project}/members/{user}": Case(
        "project.member", lambda w: (f"/v1/projects/{PROJECT}/members/{w.member()}", {}), **ADMIN
    ),
    "POST /v1/projects/{project}/notes": Case(
        "note.added", lambda w: sent(f"/v1/projects/{PROJECT}/notes", text=SECRET)
    ),
    "PUT /v1/projects/{project}/secrets/{name}": Case(
        "secret.set", lambda w: sent(f"/v1/projects/{PROJECT}/secrets/NEW", value=SECRET), **ADMIN
    ),
    "DELETE /v1/projects/{project}/secrets/{name}": Case(
        "secret.removed", lambda w: (f"/v1/projects/{PROJECT}/secrets/{w.secret()}", {}), **ADMIN
    ),
    "PUT /v1/queries/{name}": Case(
        "query.saved", lambda w: sent(f"/v1/queries/{w.name}", query=f"name = '{SECRET}'", project=PROJECT)
    ),
    "DELETE /v1/queries/{name}": Case("query.removed", lambda w: (f"/v1/queries/{saved(w)}", {})),
    "POST /v1/queues": Case("queue.set", lambda w: sent("/v1/queues", name=w.name, project=PROJECT), **ADMIN),
    "PUT /v1/rules": Case(
        "rules.set", lambda w: sent("/v1/rules", text=f"depth: {1 + uuid.uuid4().int % 90_000}"), **SUPERUSER
    ),
    "PUT /v1/cost/budgets/{name}": Case(
        "budget.set", lambda w: sent(f"/v1/cost/budgets/{w.name}", amount="5", project=PROJECT), "admin"
    ),
    "DELETE /v1/cost/budgets/{name}": Case("budget.removed", lambda w: (f"/v1/cost/budgets/{w.budget()}", {}), "admin"),
    "POST /v1/cost/budgets/{name}/grants": Case(
        "budget.granted", lambda w: sent(f"/v1/cost/budgets/{w.budget()}/grants", amount="5", reason="x"), "admin"
    ),
    "PUT /v1/cost/prices": Case(
        "prices.set", lambda w: sent("/v1/cost/prices", text="pools: {a: {accelerator: 1}}"), **SUPERUSER
    ),
    "PUT /v1/alerts/rules": Case(
        "alert.rules_set", lambda w: sent("/v1/alerts/rules", text="groups: {wait: 1s}"), **SUPERUSER
    ),
    "POST /v1/silences": Case("silence.set", lambda w: sent("/v1/silences", why="x", seconds=60, project=PROJECT)),
    "DELETE /v1/silences/{ident}": Case("silence.ended", lambda w: (f"/v1/silences/{silenced(w)}", {})),
    "POST /v1/runs": Case(
        "run.created", lambda w: sent("/v1/runs", project=PROJECT, name=w.name, params={"lr": SECRET}, purpose=SECRET)
    ),
    "POST /v1/runs/external": Case("run.created", lambda w: sent("/v1/runs/external", **opening(w))),
    "POST /v1/runs/import": Case("run.created", lambda w: sent("/v1/runs/import", **importing(w))),
    "PATCH /v1/runs/{ref}": Case("run.changed", lambda w: sent(f"/v1/runs/{w.run()}", name="other", purpose=SECRET)),
    "DELETE /v1/runs/{ref}": Case("run.hidden", lambda w: (f"/v1/runs/{w.run()}", {})),
    "POST /v1/runs/{ref}/restore": Case("run.restored", lambda w: (f"/v1/runs/{hidden_run(w)}/restore", {})),
    "PUT /v1/runs/{ref}/artifacts/{path}": Case(
        "artifact.put", lambda w: (f"/v1/runs/{w.run()}/artifacts/a/b.txt", {"content": SECRET.encode()})
    ),
    "DELETE /v1/runs/{ref}/artifacts/{path}": Case(
        "artifact.removed", lambda w: (f"/v1/runs/{w.artifact()}/artifacts/a", {})
    ),
    "POST /v1/runs/{ref}/notes": Case("note.added", lambda w: sent(f"/v1/runs/{w.run()}/notes", text=SECRET)),
    "PUT /v1/runs/{ref}/params": Case(
        "run.params", lambda w: sent(f"/v1/runs/{w.run()}/params", values={f"p{i}": SECRET for i in range(50)})
    ),
    "PUT /v1/runs/{ref}/tags": Case("run.tags", lambda w: sent(f"/v1/runs/{w.run()}/tags", values={"a": SECRET})),
    "POST /v1/studies": Case(
        "job.submitted and study.started", lambda w: sent("/v1/studies", **study_of(w.name, PROJECT))
    ),
    "POST /v1/studies/{ref}/stop": Case("study.stopped", lambda w: (f"/v1/studies/{study(w)}/stop", {})),
    "POST /v1/studies/{ref}/resume": Case(
        "job.resumed and study.changed", lambda w: (f"/v1/studies/{stopped_study(w)}/resume", {})
    ),
    "POST /v1/studies/{ref}/change": Case(
        "study.changed", lambda w: sent(f"/v1/studies/{study(w)}/change", limits={"trials": 7})
    ),
    "POST /v1/studies/{ref}/enqueue": Case(
        "study.enqueued", lambda w: sent(f"/v1/studies/{study(w)}/enqueue", points=[{"lr": 0.5}])
    ),
    "POST /v1/studies/{ref}/ask": Case("trial.started", lambda w: sent(f"/v1/studies/{study(w)}/ask")),
    "POST /v1/studies/{ref}/tell": Case(
        "trial.ended", lambda w: sent(f"/v1/studies/{asked(w)}/tell", number=0, values=[0.5])
    ),
    # Whoever has a token may sign in with it.
    "POST /v1/session": Case(
        "session.began", lambda w: sent("/v1/session", token=token_of(w, "mia-ledger")), viewer=201, outsider=201
    ),
    "POST /v1/session/shares": Case("share.made", lambda w: sent("/v1/session/shares", run=w.run())),
    "DELETE /v1/session/shares/{share}": Case(
        "share.revoked", lambda w: (f"/v1/session/shares/{w.post('/v1/session/shares', {'run': w.run()})['id']}", {})
    ),
    # Everybody makes and revokes tokens of their own; others' are not there.
    "POST /v1/tokens": Case("token.created", lambda w: sent("/v1/tokens", user="otherone"), **SUPERUSER),
    "DELETE /v1/tokens/{token}": Case("token.revoked", lambda w: own_token(w, "mia-ledger"), viewer=404),
}  # fmt: skip


def staged(setup: ServerSetup) -> str:
    name = setup.model(1)
    for stage in ("staging", "none"):
        setup.post(f"/v1/models/{name}/versions/1/stage", {"stage": stage})
    return name


def finished(setup: ServerSetup) -> str:
    """A job that has succeeded, and a stage that asks for no more."""
    setup.root.put("/v1/rules", json={"text": "promotion: {next: {}, reviewed: {reviewer: member}}"})
    job = str(setup.post("/v1/jobs", {"spec": setup.spec("true")})["id"])
    setup.server.wait(job, "succeeded")
    return job


def study(setup: ServerSetup) -> str:
    return str(setup.post("/v1/studies", study_of(setup.name, PROJECT))["id"])


def stopped_study(setup: ServerSetup) -> str:
    made = study(setup)
    setup.post(f"/v1/studies/{made}/stop", {})
    setup.server.wait(made, "stopped")
    return made


def asked(setup: ServerSetup) -> str:
    made = study(setup)
    assert setup.post(f"/v1/studies/{made}/ask", {})["number"] == 0
    return made


def waived(setup: ServerSetup) -> dict[str, Any]:
    spec = {"name": setup.name, "run": "true", "project": PROJECT, "workdir": str(setup.server.home)}
    return {"spec": spec, "code": "ab" * 32, "rungs": ["unit"], "why": "x"}


def certificate(setup: ServerSetup) -> str:
    return str(setup.post("/v1/preflight/waivers", waived(setup))["certificates"][0]["id"])


def silenced(setup: ServerSetup) -> str:
    made = setup.root.post("/v1/silences", json={"why": "x", "seconds": 60, "project": PROJECT})
    return str(made.json()["id"])


def running(setup: ServerSetup) -> str:
    job = setup.job()
    setup.server.wait(job, "starting", "running")
    return job


@pytest.fixture(scope="module")
def people(server: LiveServer) -> Iterator[dict[str, httpx.Client]]:
    with server.http() as root:
        for project in (PROJECT, "elsewhere"):
            root.post("/v1/projects", json={"name": project})
        tokens = {}
        for who, project, role in (
            ("viewer", PROJECT, "viewer"),
            ("member", PROJECT, "member"),
            ("admin", PROJECT, "admin"),
            ("outsider", "elsewhere", "admin"),
        ):
            user = "mia-ledger" if who == "member" else f"{who}-ledger"
            assert root.put(f"/v1/projects/{project}/members/{user}", json={"role": role}).status_code == 200
            tokens[who] = root.post("/v1/tokens", json={"user": user}).json()["token"]
        tokens["superuser"] = root.post("/v1/tokens", json={"user": "sue-ledger", "superuser": True}).json()["token"]
    clients = {who: server.http(token) for who, token in tokens.items()}
    yield clients
    for client in clients.values():
        client.close()
    # Other files share the server, and its seats.
    for job in server.get("/v1/jobs", project=PROJECT, phase=["queued", "starting", "running"])["jobs"]:
        server.post(f"/v1/jobs/{job['id']}/stop", {"force": True})


def routes(server: LiveServer) -> set[str]:
    paths = server.get("/openapi.json")["paths"]
    return {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods if method in MUTATING}


def events(server: LiveServer, user: str, after: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.get("/v1/events", actor=user, after=after, limit=1000)["events"]
    return found


def newest(server: LiveServer) -> int:
    return int(server.get("/v1/events", last=True, limit=1)["next"])


def test_every_route_that_changes_something_has_a_case_or_a_reason(server: LiveServer) -> None:
    assert routes(server) == set(CASES) | set(QUIET)
    assert not set(CASES) & set(QUIET)
    assert all(QUIET.values())


@pytest.mark.parametrize("route", sorted(CASES))
def test_it_leaves_one_event_with_its_actor_and_holds_to_the_roles(
    server: LiveServer, people: dict[str, httpx.Client], route: str
) -> None:
    case, method = CASES[route], route.partition(" ")[0]
    with server.http() as root:
        url, given = case.make(ServerSetup(server, root))
        for who, status in (("viewer", case.viewer), ("outsider", case.outsider)):
            refused = people[who].request(method, url, **given)
            assert refused.status_code == status, (who, route, refused.text)
            if status == 200:  # a batch
                assert all("error" in one for one in refused.json()["jobs"])
        user, before = people[case.who].get("/v1/whoami").json()["user"], newest(server)
        done = people[case.who].request(method, url, **given)
    assert done.status_code < 300, (route, done.text)
    found = events(server, user, before)
    assert " and ".join(event["kind"] for event in found) == case.kind, route
    assert found[0]["project"] in (PROJECT, "") or found[0]["project"] == done.json()["name"]
    if case.kind in AUDIT - {"content.collected", "session.began"}:
        assert found[0]["project"] == PROJECT
        assert found[0]["job"] or found[0]["data"] or "projects" in route
    assert SECRET not in json.dumps(found)
    for who in ("viewer", "outsider"):
        seen = people[who].get("/v1/events", params={"actor": user, "after": before}).json()["events"]
        assert len(seen) == (len(found) if who == "viewer" and found[0]["project"] == PROJECT else 0), who


def test_a_failed_write_leaves_no_event(server: LiveServer, people: dict[str, httpx.Client]) -> None:
    with server.http() as root:
        setup = ServerSetup(server, root)
        taken, model = setup.model(), setup.model()
    before = newest(server)
    refused = people["member"].patch(f"/v1/models/{model}", json={"name": taken, "description": "x"})
    assert refused.status_code == 409
    assert people["member"].get(f"/v1/models/{model}").json()["description"] == ""
    assert events(server, "mia-ledger", before) == []


def test_failed_sign_ins_are_counted_by_address_and_shown_to_administrators_only(
    server: LiveServer, people: dict[str, httpx.Client]
) -> None:
    made = server.post("/v1/tokens", {"user": "gone-ledger"})
    with server.http() as root:
        root.delete(f"/v1/tokens/{made['id']}")
    before = newest(server)
    for path in ("/v1/jobs", "/mlflow/api/2.0/mlflow/runs/get?run_id=x", "/v1/ingest/secrets") * 10:
        with server.http(made["token"]) as http:
            assert http.get(path).status_code == 401
    with server.http() as root:
        root.headers.pop("Authorization")
        assert root.get("/v1/jobs").status_code == 401  # nobody tried to sign in

    def failures() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = server.get("/v1/events", kind="auth.failed", limit=10_000)["events"]
        return [event["data"] for event in found]

    found = until(failures, "a failed sign-in in the log")
    assert found[-1]["address"] == "127.0.0.1"
    assert len(server.get("/v1/events", kind="auth.failed", after=before, limit=100)["events"]) <= 3
    secret = made["token"].rpartition("_")[2]
    assert secret not in json.dumps(found)
    for who in ("viewer", "admin", "outsider"):
        assert people[who].get("/v1/events", params={"kind": "auth.failed"}).json()["events"] == []
