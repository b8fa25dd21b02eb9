"""For the test of roles: a project with people of every role, and a request for every route of the API."""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

from live import LiveServer, until
from muster.wire import Batch, Piece, doc_record, row_struct, shape_record

PROJECT, OTHER = "alpha", "beta"
CONTENT = b"weights of a small model"
DIGEST = hashlib.sha256(CONTENT).hexdigest()
# Who asks: the role in the project. `outsider` is a member of another project, `auditor` a superuser whose token allows
# a viewer's part alone, `finance` has a token for costs, `attempt` an attempt's token.
PEOPLE = ("nobody", "outsider", "viewer", "auditor", "finance", "member", "admin", "superuser", "attempt")


@dataclass
class ServerSetup:
    """What the requests are about, made once; and clients by who asks."""

    server: LiveServer
    root: httpx.Client
    people: dict[str, httpx.Client]
    job: str  # queued; its run has the same id
    run: str  # of a script, with the metric `loss` and the file `a/b.txt`
    token: str  # of the run's attempt
    open_study: str = ""  # whose trials nobody runs as jobs; one has begun

    def post(self, path: str, body: Any) -> Any:
        answer = self.root.post(path, json=body)
        assert answer.status_code < 300, answer.text
        return answer.json()

    def put(self, path: str, body: Any) -> None:
        assert self.root.put(path, json=body).status_code < 300, path

    def study(self) -> str:
        return str(self.post("/v1/studies", study_of(f"s-{uuid.uuid4().hex[:10]}"))["id"])

    def model(self) -> str:
        name = f"m-{uuid.uuid4().hex[:10]}"
        self.post("/v1/models", {"name": name, "project": PROJECT})
        self.post(f"/v1/models/{name}/versions", {"source": "s3://elsewhere/x"})
        self.put(f"/v1/models/{name}/aliases/best", {"version": 1})
        return name


def make_setup(server: LiveServer) -> ServerSetup:
    root = server.http()
    root.post("/v1/nodes/local-0/health", json={"health": "quarantined"})  # nothing that is submitted here runs
    for project in (PROJECT, OTHER):
        assert root.post("/v1/projects", json={"name": project}).status_code == 201
    tokens: dict[str, str] = {}
    for who, project, role in (
        ("outsider", OTHER, "member"),
        ("viewer", PROJECT, "viewer"),
        ("member", PROJECT, "member"),
        ("admin", PROJECT, "admin"),
    ):
        assert root.put(f"/v1/projects/{project}/members/{who}", json={"role": role}).status_code == 200
        tokens[who] = root.post("/v1/tokens", json={"user": who}).json()["token"]
    for who, allowed in (("superuser", "admin"), ("auditor", "viewer")):
        given = {"user": who, "superuser": True, "role": allowed}
        tokens[who] = root.post("/v1/tokens", json=given).json()["token"]
    tokens["finance"] = root.post("/v1/tokens", json={"user": "finance", "finance": True}).json()["token"]
    people = {who: server.http(token) for who, token in tokens.items()}
    people["nobody"] = server.http("none")
    del people["nobody"].headers["Authorization"]
    spec = {"name": "job", "run": "true", "project": PROJECT, "workdir": str(server.home)}
    job = root.post("/v1/jobs", json={"spec": spec}).json()["id"]
    opened = root.post("/v1/runs/external", json=_opening()).json()
    people["attempt"] = server.http(opened["token"])
    setup = ServerSetup(server, root, people, job, opened["id"], opened["token"])
    layout = row_struct(1)
    assert people["attempt"].put(f"/v1/ingest/blobs/{DIGEST}", content=CONTENT).status_code == 204
    picture = {"type": "media", "kind": "image", "name": "m", "step": 1, "digest": DIGEST, "id": "1", "time": 1.0}
    spool = shape_record(0, ("loss",)) + layout.pack(1, 0, layout.size, 1, time.time(), 0.5) + doc_record(picture)
    sent = Batch(0, "running", pieces=(Piece(0, "spool", 0, spool),)).encode()
    assert people["attempt"].post("/v1/ingest", content=sent).status_code == 200
    for run in (job, opened["id"]):
        assert root.put(f"/v1/runs/{run}/artifacts/a/b.txt", content=CONTENT).status_code == 201
    setup.post("/v1/queues", {"name": "of-alpha", "project": PROJECT})
    setup.put(f"/v1/projects/{PROJECT}/secrets/KEY", {"value": "x"})
    setup.open_study = setup.study()
    setup.post(f"/v1/studies/{setup.open_study}/ask", {})
    return setup


Request = tuple[str, dict[str, Any]]  # the path, and what is sent
Make = Callable[[ServerSetup, str], Request]  # for the setup and who asks


def sent(path: str, **body: Any) -> Make:
    return lambda setup, who: (_filled(setup, path), {"json": body})


def plain(path: str, **given: Any) -> Make:
    return lambda setup, who: (_filled(setup, path), given)


def _filled(setup: ServerSetup, path: str) -> str:
    return (
        path.replace("JOB", setup.job)
        .replace("STUDY", setup.open_study)
        .replace("RUN", setup.run)
        .replace("PROJECT", PROJECT)
        .replace("SHA", DIGEST)
    )


def study_of(name: str, project: str = PROJECT) -> dict[str, Any]:
    """A study whose trials nobody runs as jobs."""
    text = f"study: {name}\nspace: {{lr: {{float: [0, 1]}}}}\nobjective: {{minimize: loss}}\nsearch: random\n"
    return {"text": f"{text}budget: {{trials: 1000}}\n", "project": project}


def _opening() -> dict[str, Any]:
    mark = uuid.uuid4().hex
    # The letter at the end: a name that ends in a number alone is kept for jobs.
    return {"id": f"script-{mark[:8]}x", "key": mark, "project": PROJECT}


def _importing() -> dict[str, Any]:
    fingerprint = hashlib.sha256(b"x").hexdigest()
    return {"tool": "csv", "key": "x", "project": PROJECT, "created_at": 1.0, "fingerprint": fingerprint}


def _import(setup: ServerSetup, who: str) -> Request:
    begun = setup.post("/v1/runs/import", _importing())
    path = f"/v1/runs/{begun['id']}/import"
    return path, {"params": {"attempt": begun["attempt"]}, "content": Batch(0, "running").encode()}


def _member(setup: ServerSetup, who: str) -> Request:
    setup.put(f"/v1/projects/{PROJECT}/members/guest", {"role": "viewer"})
    return f"/v1/projects/{PROJECT}/members/guest", {}


def _secret(setup: ServerSetup, who: str) -> Request:
    setup.put(f"/v1/projects/{PROJECT}/secrets/OLD", {"value": "x"})
    return f"/v1/projects/{PROJECT}/secrets/OLD", {}


def _artifact(setup: ServerSetup, who: str) -> Request:
    assert setup.root.put(f"/v1/runs/{setup.run}/artifacts/old/x", content=b"x").status_code == 201
    return f"/v1/runs/{setup.run}/artifacts/old", {}


def _picture(setup: ServerSetup, who: str) -> Request:
    path = f"/v1/runs/{setup.run}/media"
    return f"{path}/{setup.root.get(path).json()['media'][0]['id']}", {}


def _own_token(setup: ServerSetup, who: str) -> Request:
    made = setup.people[who].post("/v1/tokens", json={"role": "viewer"})
    return f"/v1/tokens/{made.json()['id'] if made.status_code == 201 else '0'}", {}


def _own_query(setup: ServerSetup, who: str) -> Request:
    setup.people[who].put("/v1/queries/mine", json={"query": ""})
    return "/v1/queries/mine", {}


def _alert(setup: ServerSetup, who: str) -> Request:
    """An alert of the project: its job waits."""
    waits = {"signal": "queue_wait", "above": "0s", "owner": "me", "runbook": "job-waits",
             "scope": {"projects": [PROJECT]}, "examples": {"fires": "1s", "quiet": "0s"}}  # fmt: skip
    setup.put("/v1/alerts/rules", {"text": json.dumps({"rules": {"waits": waits}})})

    def number() -> int:
        alerts = setup.root.get("/v1/alerts").json()["alerts"]
        return next((one["number"] for one in alerts if one["rule"] == "waits"), 0)

    return f"/v1/alerts/{until(number, 'the alert')}", {}


def _budget(rest: str = "", **body: Any) -> Make:
    def make(setup: ServerSetup, who: str) -> Request:
        setup.put("/v1/cost/budgets/of-alpha", {"amount": "5", "project": PROJECT})
        return f"/v1/cost/budgets/of-alpha{rest}", {"json": body} if body else {}

    return make


def _journal(rest: str, **given: Any) -> Make:
    """Of a journal of Optuna's with one log."""

    def make(setup: ServerSetup, who: str) -> Request:
        name = f"j-{uuid.uuid4().hex[:10]}"
        setup.post(f"/v1/projects/{PROJECT}/optuna/{name}/logs", _append())
        return f"/v1/projects/{PROJECT}/optuna/{name}{rest}", given

    return make


def _append() -> dict[str, Any]:
    return {"key": uuid.uuid4().hex, "logs": ["{}"]}


def _silence(setup: ServerSetup, who: str) -> Request:
    made = setup.post("/v1/silences", {"why": "x", "seconds": 60, "project": PROJECT})
    return f"/v1/silences/{made['id']}", {}


def _of_model(rest: str = "", **body: Any) -> Make:
    return lambda setup, who: (f"/v1/models/{setup.model()}{rest}", {"json": body} if body else {})


def _signed(rest: str) -> Make:
    """Of a run with a model whose statement is made."""

    def make(setup: ServerSetup, who: str) -> Request:
        path, put = f"/v1/runs/{setup.run}", {"kind": "model"}
        assert setup.root.put(f"{path}/artifacts/m/x.pt", content=CONTENT, params=put).status_code == 201
        until(lambda: setup.root.get(f"{path}/statements/m").status_code == 200, "the statement")
        name = setup.model()
        setup.post(f"/v1/models/{name}/versions", {"source": f"artifact:{setup.run}/m"})
        signed = f"/v1/models/{name}/versions/2/statement"
        until(lambda: setup.root.get(signed).status_code == 200, "the model's statement")
        return signed if not rest else f"{path}{rest}", {}

    return make


def _stage(setup: ServerSetup) -> None:
    """A stage that nobody reaches and anybody may ask for."""
    setup.put("/v1/rules", {"text": "promotion: {large: {reviewer: member}}"})


def _promotion(setup: ServerSetup, who: str) -> Request:
    _stage(setup)
    return f"/v1/runs/{setup.job}/promotion", {"params": {"to": "large"}}


def _promote(**body: Any) -> Make:
    def make(setup: ServerSetup, who: str) -> Request:
        _stage(setup)
        return f"/v1/runs/{setup.job}/promotion", {"json": {"to": "large", **body}}

    return make


def _review(setup: ServerSetup, who: str) -> Request:
    """Of a run that has not ended: refused, but not because of who asks."""
    _stage(setup)
    return f"/v1/runs/{setup.job}/promotion/ask", {"json": {"to": "large", "why": "x"}}


def _approval(setup: ServerSetup, who: str) -> Request:
    """Of somebody else's run."""
    _stage(setup)
    author = setup.people["member" if who in ("admin", "superuser") else "admin"]
    job = author.post("/v1/jobs", json={"spec": _spec(setup)}).json()["id"]
    return f"/v1/runs/{job}/promotion/approve", {"json": {"to": "large", "why": "x"}}


def _rolled_back(setup: ServerSetup, who: str) -> Request:
    name = setup.model()
    for stage in ("staging", "none"):
        setup.post(f"/v1/models/{name}/versions/1/stage", {"stage": stage})
    return f"/v1/models/{name}/rollback", {"json": {"stage": "staging", "why": "x"}}


def _spec(setup: ServerSetup) -> dict[str, Any]:
    return {"name": "own", "run": "true", "project": PROJECT, "workdir": str(setup.server.home)}


def _waived(setup: ServerSetup, who: str) -> Request:
    body = {"spec": _spec(setup), "code": DIGEST, "rungs": ["unit"], "why": "x"}
    made = setup.post("/v1/preflight/waivers", body)
    return f"/v1/preflight/certificates/{made['certificates'][0]['id']}/revoke", {"json": {"why": "x"}}


# Routes whose path or body needs more than `{ref}` and the like replaced.
def _data(w: ServerSetup, who: str) -> Request:
    """Of a run of its own: that of the setup is deleted by another request."""
    name = f"d-{uuid.uuid4().hex[:10]}"
    spec = {"name": "reads", "run": "true", "project": PROJECT, "workdir": str(w.server.home), "data": [f"{name}@v1"]}
    w.post("/v1/jobs", {"spec": spec})
    return f"/v1/data/{name}", {}


REQUESTS: dict[str, Make] = {
    "POST /v1/preflight/plan": lambda w, who: ("/v1/preflight/plan", {"json": {"spec": _spec(w)}}),
    "POST /v1/preflight/certificates": lambda w, who: (
        "/v1/preflight/certificates",
        {"json": {"spec": _spec(w), "code": DIGEST, "rung": "unit", "jobs": [w.job]}},
    ),
    "POST /v1/preflight/waivers": lambda w, who: (
        "/v1/preflight/waivers",
        {"json": {"spec": _spec(w), "code": DIGEST, "rungs": ["unit"], "why": "x"}},
    ),
    "POST /v1/preflight/certificates/{certificate}/revoke": _waived,
    "POST /v1/jobs": lambda w, who: ("/v1/jobs", {"json": {"spec": _spec(w)}}),
    "POST /v1/jobs/batch": lambda w, who: ("/v1/jobs/batch", {"json": {"jobs": [{"spec": _spec(w)}]}}),
    "POST /v1/jobs/{ref}/stop": sent("/v1/jobs/JOB/stop"),
    "POST /v1/jobs/{ref}/priority": sent("/v1/jobs/JOB/priority", priority=20),
    "POST /v1/jobs/{ref}/exec": sent("/v1/jobs/JOB/exec", command=["true"]),
    "GET /v1/jobs/{ref}/stacks/{ident}": plain("/v1/jobs/JOB/stacks/last"),
    "GET /v1/jobs/{ref}/logs/search": plain("/v1/jobs/JOB/logs/search", params={"text": "x"}),
    "GET /v1/runs/{ref}/metrics/{name}": plain("/v1/runs/RUN/metrics/loss"),
    "GET /v1/runs/{ref}/media/{ident}": _picture,
    "GET /v1/runs/{ref}/points/{name}": plain("/v1/runs/RUN/points/loss"),
    "POST /v1/schema/job": sent("/v1/schema/job", yaml="run: x"),
    "POST /v1/queues": sent("/v1/queues", name="of-alpha", project=PROJECT),
    "POST /v1/nodes/{name}/health": sent("/v1/nodes/local-0/health", health="quarantined"),
    "POST /v1/nodes/{name}/check": sent("/v1/nodes/local-0/check"),
    "GET /v1/nodes/{name}/history": plain("/v1/nodes/local-0/history"),
    "PUT /v1/cost/budgets/{name}": sent("/v1/cost/budgets/of-alpha", amount="5", project=PROJECT),
    "DELETE /v1/cost/budgets/{name}": _budget(),
    "POST /v1/cost/budgets/{name}/grants": _budget("/grants", amount="5", reason="x"),
    "GET /v1/cost/explain": plain("/v1/cost/explain", params={"pool": "local"}),
    "PUT /v1/rules": sent("/v1/rules", text="", dry_run=True),
    "POST /v1/environments/check": sent("/v1/environments/check", packages={}),
    "POST /v1/rules/replay": sent("/v1/rules/replay", text="{}", since=0),
    "DELETE /v1/provider-accounts/{user}": plain("/v1/provider-accounts/member"),
    "POST /v1/session": lambda w, who: ("/v1/session", {"json": {"token": w.server.token}}),
    "POST /v1/session/shares": lambda w, who: ("/v1/session/shares", {"json": {"run": w.run}}),
    "DELETE /v1/session/shares/{share}": lambda w, who: (
        f"/v1/session/shares/{w.post('/v1/session/shares', {'run': w.run})['id']}",
        {},
    ),
    "PUT /v1/cost/prices": sent("/v1/cost/prices", text="pools: {}", dry_run=True),
    "PUT /v1/alerts/rules": sent("/v1/alerts/rules", text="", dry_run=True),
    "GET /v1/alerts/{number}": _alert,
    "POST /v1/alerts/{number}/acknowledge": lambda w, who: (f"{_alert(w, who)[0]}/acknowledge", {"json": {}}),
    "GET /v1/data/{name}": _data,
    "POST /v1/alerts/test": sent("/v1/alerts/test", since=60),
    "POST /v1/silences": sent("/v1/silences", why="x", seconds=60, project=PROJECT),
    "DELETE /v1/silences/{ident}": _silence,
    "POST /v1/projects": sent("/v1/projects", name=OTHER),
    "PUT /v1/projects/{project}/members/{user}": sent("/v1/projects/PROJECT/members/guest", role="viewer"),
    "DELETE /v1/projects/{project}/members/{user}": _member,
    "PUT /v1/projects/{project}/secrets/{name}": sent("/v1/projects/PROJECT/secrets/KEY", value="x"),
    "DELETE /v1/projects/{project}/secrets/{name}": _secret,
    "POST /v1/tokens": sent("/v1/tokens", role="viewer"),
    "DELETE /v1/tokens/{token}": _own_token,
    "POST /v1/studies": lambda w, who: ("/v1/studies", {"json": study_of("own-study")}),
    **{
        f"GET /v1/studies/{{ref}}{rest}": plain(f"/v1/studies/STUDY{rest}")
        for rest in ("", "/report", "/trials", "/file")
    },
    "POST /v1/studies/{ref}/stop": lambda w, who: (f"/v1/studies/{w.study()}/stop", {}),
    "POST /v1/studies/{ref}/resume": plain("/v1/studies/STUDY/resume"),
    "POST /v1/studies/{ref}/change": sent("/v1/studies/STUDY/change", limits={"trials": 7}, dry_run=True),
    "POST /v1/studies/{ref}/enqueue": sent("/v1/studies/STUDY/enqueue", points=[{"lr": 0.5}]),
    "POST /v1/studies/{ref}/ask": sent("/v1/studies/STUDY/ask"),
    "POST /v1/studies/{ref}/report": sent("/v1/studies/STUDY/report", number=0, points={"loss": [[1, 0.5]]}),
    "POST /v1/studies/{ref}/tell": sent("/v1/studies/STUDY/tell", number=0, values=[0.5]),
    "POST /v1/runs/search": sent("/v1/runs/search"),
    "PUT /v1/queries/{name}": sent("/v1/queries/mine", query=""),
    "DELETE /v1/queries/{name}": _own_query,
    "POST /v1/compare": lambda w, who: ("/v1/compare", {"json": {"runs": [w.job, w.run]}}),
    "POST /v1/compare/curves": lambda w, who: ("/v1/compare/curves", {"json": {"runs": [w.run], "metric": "loss"}}),
    "POST /v1/runs": sent("/v1/runs", project=PROJECT),
    "POST /v1/runs/external": lambda w, who: ("/v1/runs/external", {"json": _opening()}),
    "POST /v1/runs/import": lambda w, who: ("/v1/runs/import", {"json": _importing()}),
    "POST /v1/runs/{ref}/import": _import,
    "PATCH /v1/runs/{ref}": sent("/v1/runs/RUN", purpose="why"),
    "PUT /v1/runs/{ref}/params": sent("/v1/runs/RUN/params", values={"lr": 1}),
    "PUT /v1/runs/{ref}/tags": sent("/v1/runs/RUN/tags", values={"a": "b"}),
    "POST /v1/runs/{ref}/notes": sent("/v1/runs/RUN/notes", text="seen"),
    "POST /v1/projects/{project}/notes": sent("/v1/projects/PROJECT/notes", text="seen"),
    "PUT /v1/runs/{ref}/artifacts/{path}": plain("/v1/runs/RUN/artifacts/new.txt", content=b"x"),
    "DELETE /v1/runs/{ref}/artifacts/{path}": _artifact,
    "POST /v1/artifacts/collect": plain("/v1/artifacts/collect", params={"dry_run": True}),
    "POST /v1/blobs/missing": sent("/v1/blobs/missing", digests=[DIGEST]),
    "POST /v1/blobs/bundle": plain("/v1/blobs/bundle", content=b""),
    "PUT /v1/blobs/{digest}": plain("/v1/blobs/SHA", content=CONTENT),
    "GET /v1/projects/{project}/optuna/{name}/logs": _journal("/logs"),
    "POST /v1/projects/{project}/optuna/{name}/logs": lambda w, who: (
        f"/v1/projects/{PROJECT}/optuna/studies/logs",
        {"json": _append()},
    ),
    "GET /v1/projects/{project}/optuna/{name}/snapshot": _journal("/snapshot", params={"format": "optuna-5"}),
    "PUT /v1/projects/{project}/optuna/{name}/snapshot": _journal(
        "/snapshot", params={"format": "optuna-5", "logs": 1}, content=b"x"
    ),
    "DELETE /v1/projects/{project}/optuna/{name}": _journal(""),
    "POST /v1/models": lambda w, who: ("/v1/models", {"json": {"name": f"n-{uuid.uuid4().hex}", "project": PROJECT}}),
    "GET /v1/models/{name}": _of_model(),
    "PATCH /v1/models/{name}": _of_model(description="better"),
    "DELETE /v1/models/{name}": _of_model(),
    "POST /v1/models/{name}/versions": _of_model("/versions", source="s3://elsewhere/y"),
    "GET /v1/models/{name}/versions/{version}": _of_model("/versions/1"),
    "PATCH /v1/models/{name}/versions/{version}": _of_model("/versions/1", description="better"),
    "DELETE /v1/models/{name}/versions/{version}": _of_model("/versions/1"),
    "POST /v1/models/{name}/versions/{version}/stage": _of_model("/versions/1/stage", stage="staging"),
    "GET /v1/runs/{ref}/promotion": _promotion,
    "POST /v1/runs/{ref}/promotion": _promote(dry_run=True),
    "POST /v1/runs/{ref}/promotion/approve": _approval,
    "POST /v1/runs/{ref}/promotion/ask": _review,
    "POST /v1/models/{name}/rollback": _rolled_back,
    "GET /v1/models/{name}/versions/{version}/statement": _signed(""),
    "GET /v1/models/{name}/versions/{version}/files": _of_model("/versions/1/files"),
    "GET /v1/runs/{ref}/statements/{path}": _signed("/statements/m/x.pt"),
    "PUT /v1/models/{name}/aliases/{alias}": _of_model("/aliases/new", version=1),
    "DELETE /v1/models/{name}/aliases/{alias}": _of_model("/aliases/best"),
    "POST /v1/ingest": plain("/v1/ingest", content=Batch(0, "running").encode()),
    "POST /v1/ingest/code/bundle": sent("/v1/ingest/code/bundle"),
    "PUT /v1/ingest/blobs/{digest}": plain("/v1/ingest/blobs/SHA", content=CONTENT),
}
_VALUES = {
    "{ref}": "JOB", "{project}": "PROJECT", "{digest}": "SHA", "{path}": "a/b.txt", "{ident}": "0" * 32,
    "/queues/{name}": "/queues/of-alpha", "/engines/{name}": "/engines/local", "/metrics/{name}": "/metrics/loss",
}  # fmt: skip


def request_of(route: str, setup: ServerSetup, who: str) -> Request:
    """A request that nothing but a role can refuse."""
    if route in REQUESTS:
        return REQUESTS[route](setup, who)
    path = route.partition(" ")[2]
    for name, value in _VALUES.items():
        path = path.replace(name, value)
    assert "{" not in path, f"{route}: say in tests/role_kit.py what a request looks like"
    return _filled(setup, path), {}
