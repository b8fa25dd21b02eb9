"""Links that show one run: what they show, that they show nothing else, and how they end."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from live import LiveServer
from session_kit import CSRF, SESSION, browser, cookie_of, new_user, signed_in
from shape_kit import all_routes

PROJECT = "gallery"
SHARES = f"{SESSION}/shares"


@pytest.fixture(scope="module")
def member(server: LiveServer) -> Iterator[httpx.Client]:
    """A member of the project, with a token of their own."""
    with server.http(new_user(server, "mona", **{PROJECT: "member"})["token"]) as made:
        yield made


def new_run(client: httpx.Client, name: str = "shown") -> str:
    return str(client.post("/v1/runs", json={"project": PROJECT, "name": name}).json()["id"])


def new_share(client: httpx.Client, run: str, **given: object) -> tuple[str, str]:
    """Its id, and what the link says."""
    made = client.post(SHARES, json={"run": run, **given})
    assert made.status_code == 201, made.text
    return made.json()["id"], made.json()["url"].partition("#share=")[2]


def test_it_shows_one_run_to_everybody_who_has_it(server: LiveServer, member: httpx.Client) -> None:
    run = new_run(member)
    member.put(f"/v1/runs/{run}/artifacts/a/b.txt", content=b"hello")
    _, link = new_share(member, run)
    for _ in range(2):
        with browser(server) as client:
            began = client.post(SESSION, json={"share": link}).json()
            assert (began["run"], began["page"], began["role"]) == (run, f"/runs/{run}", "viewer")
            assert (began["superuser"], began["projects"]) == (False, {PROJECT: "viewer"})
            client.headers[CSRF] = began["csrf"]
            assert client.get(f"/v1/runs/{run}").json()["id"] == run
            for part in ("page", "artifacts", "notes", "logbook", "changes", "attempts", "metrics"):
                assert client.get(f"/v1/runs/{run}/{part}").status_code == 200, part
            assert client.get(f"/v1/runs/{run}/artifacts/a/b.txt").text == "hello"


def test_it_shows_a_job_and_its_stream(server: LiveServer, member: httpx.Client) -> None:
    spec = {"name": "told", "run": "echo hi", "project": PROJECT, "workdir": str(server.home)}
    job = member.post("/v1/jobs", json={"spec": spec}).json()["id"]
    server.wait(job)
    with signed_in(server, share=new_share(member, job)[1]) as client:
        assert client.get(f"/v1/jobs/{job}").json()["id"] == job
        with client.stream("GET", f"/v1/jobs/{job}/stream") as stream:
            assert next(stream.iter_lines()) == ": muster"
        number = client.get(f"/v1/jobs/{job}").json()["number"]
        assert client.get(f"/v1/jobs/{number}").status_code == 403, "by its id alone"


def test_it_shows_nothing_else(server: LiveServer, member: httpx.Client) -> None:
    run, other = new_run(member), new_run(member, "other")
    with signed_in(server, share=new_share(member, run)[1]) as client:
        for path in (
            "/v1/runs", "/v1/jobs", "/v1/events", "/v1/events/stream", f"/v1/events/stream?job={run}", "/v1/whoami",
            "/v1/projects", "/v1/tokens", "/v1/nodes", "/v1/server", "/v1/models", "/v1/studies", "/v1/alerts",
            f"/v1/runs/{other}", f"/v1/runs/{other}/artifacts", f"/v1/runs/{run}x", f"/v1/runs/{run[:-1]}",
            "/v1/runs/shown", "/v1/runs/other", f"/v1/projects/{PROJECT}/secrets", f"/v1/blobs/{'0' * 64}?run={run}",
            f"/v1/runs/{run}/promotion", f"/v1/jobs/{run}/why", f"/v1/jobs/{run}/exec/{'0' * 32}/output",
            f"/v1/lineage?of={run}", f"/v1/runs/{run}/%2e%2e/{other}", f"/v1/runs/{run}%2f..%2f{other}/notes",
            f"/v1/runs/{run}%2fartifacts%2f..%2f..%2f{other}", f"/v1//runs/{run}", f"/v1/Runs/{run}",
            f"/v1/runs//{run}",
        ):  # fmt: skip
            refused = client.get(path)
            assert refused.status_code == 403, path
            assert refused.json()["error"]["message"] == f"This link shows the run {run}, and nothing else."


def test_it_changes_nothing(server: LiveServer, member: httpx.Client) -> None:
    run = new_run(member)
    with signed_in(server, share=new_share(member, run)[1]) as client:
        for method, path in (
            ("PATCH", f"/v1/runs/{run}"),
            ("DELETE", f"/v1/runs/{run}"),
            ("POST", f"/v1/runs/{run}/notes"),
            ("PUT", f"/v1/runs/{run}/tags"),
            ("PUT", f"/v1/runs/{run}/artifacts/x"),
            ("POST", f"/v1/jobs/{run}/stop"),
            ("POST", f"/v1/jobs/{run}/stacks"),
            ("POST", f"/v1/jobs/{run}/save"),
            ("POST", "/v1/jobs"),
            ("POST", f"{SESSION}/links"),
            ("POST", SHARES),
            ("POST", "/v1/tokens"),
        ):
            assert client.request(method, path, json={"run": run}).status_code == 403, (method, path)
    assert member.get(f"/v1/runs/{run}").json()["name"] == "shown"


def test_every_reading_route_of_a_run_is_shown_or_left_out_on_purpose() -> None:
    """What a new route would show to whoever has a link is to be thought about."""
    from muster.server.web.credentials import _SHARED  # noqa: PLC0415

    begin = ("/v1/jobs/{ref}", "/v1/runs/{ref}")
    reading = {route.path_format for route in all_routes() if "GET" in (route.methods or ())}
    hidden = {path for path in reading if path.startswith(begin) and not _SHARED.fullmatch(path)}
    assert hidden == {
        "/v1/jobs/{ref}/why", "/v1/jobs/{ref}/forecast", "/v1/jobs/{ref}/exec/{ident}/output",
        "/v1/runs/{ref}/promotion", "/v1/runs/{ref}/environment/check",
    }  # fmt: skip
    assert {path for path in reading if _SHARED.fullmatch(path)} <= {path for path in reading if path.startswith(begin)}


def test_a_long_page_fits_into_the_link(server: LiveServer, member: httpx.Client) -> None:
    run = new_run(member)
    page = "/" + "x" * 999
    with browser(server) as client:
        assert client.post(SESSION, json={"share": new_share(member, run, page=page)[1]}).json()["page"] == page


def test_only_a_member_makes_one(server: LiveServer, member: httpx.Client) -> None:
    run = new_run(member)
    for user, roles, status in (("vito2", {PROJECT: "viewer"}, 403), ("otto2", {"elsewhere": "admin"}, 404)):
        with server.http(new_user(server, user, **roles)["token"]) as http:
            assert http.post(SHARES, json={"run": run}).status_code == status
    assert member.post(SHARES, json={"run": run, "days": 91}).status_code == 400
    assert member.post(SHARES, json={"run": run, "page": "//evil.example"}).status_code == 400
    assert member.post(SHARES, json={"run": "no-such-run"}).status_code == 404


def test_it_ends_with_its_token_and_lasts_no_longer(server: LiveServer, member: httpx.Client) -> None:
    made = member.post("/v1/tokens", json={"expires_in": 3600.0}).json()
    with server.http(made["token"]) as http:
        run = new_run(http)
        answer = http.post(SHARES, json={"run": run}).json()
    assert answer["expires_at"] == made["expires_at"]
    link = answer["url"].partition("#share=")[2]
    with signed_in(server, share=link) as client:
        assert client.get(f"/v1/runs/{run}").status_code == 200
        member.delete(f"/v1/tokens/{made['id']}")
        assert client.get(f"/v1/runs/{run}").status_code == 401
    with browser(server) as client:
        assert client.post(SESSION, json={"share": link}).status_code == 401


def test_it_ends_when_it_is_revoked_and_so_do_its_sessions(server: LiveServer, member: httpx.Client) -> None:
    run = new_run(member)
    share, link = new_share(member, run)
    with signed_in(server, share=link) as client:
        with server.http(new_user(server, "otto3", elsewhere="admin")["token"]) as http:
            assert http.delete(f"{SHARES}/{share}").status_code == 404
        assert member.delete(f"{SHARES}/{share}").json() == {"id": share, "run": run}
        assert client.get(f"/v1/runs/{run}").status_code == 401
        assert client.post(SESSION, json={"share": link}).status_code == 401
    assert member.delete(f"{SHARES}/{'0' * 32}").status_code == 404
    events = member.get("/v1/events", params={"project": PROJECT, "last": True, "limit": 10}).json()["events"]
    kinds = [one["kind"] for one in events if one["job"] == run]
    assert kinds == ["run.created", "share.made", "session.began", "share.revoked"]


def test_who_has_left_the_project_shows_nothing_of_it_any_more(server: LiveServer) -> None:
    token = new_user(server, "lea", **{PROJECT: "member"})["token"]
    with server.http(token) as http:
        run = new_run(http)
        _, link = new_share(http, run)
    with signed_in(server, share=link) as client:
        with server.http() as root:
            assert root.delete(f"/v1/projects/{PROJECT}/members/lea").status_code == 200
        assert client.get(f"/v1/runs/{run}").status_code == 404
        assert client.post(SESSION, json={"share": link}).status_code == 401


def test_one_reader_who_signs_out_leaves_the_others_in(server: LiveServer, member: httpx.Client) -> None:
    run = new_run(member)
    _, link = new_share(member, run)
    with signed_in(server, share=link) as one, signed_in(server, share=link) as other:
        raw = cookie_of(one)
        assert one.delete(SESSION).status_code == 200
        assert one.get(SESSION, headers={"Cookie": raw}).status_code == 401
        assert other.get(f"/v1/runs/{run}").status_code == 200


def test_the_link_is_no_cookie_and_the_cookie_no_link(server: LiveServer, member: httpx.Client) -> None:
    run = new_run(member)
    _, link = new_share(member, run)
    with signed_in(server, share=link) as client:
        name, _, value = cookie_of(client).partition("=")
    with browser(server) as client:
        assert client.get(f"/v1/runs/{run}", headers={"Cookie": f"{name}={link}"}).status_code == 401
        assert client.post(SESSION, json={"share": value}).status_code == 401
        assert client.post(SESSION, json={"token": link}).status_code == 401
        assert client.post(SESSION, json={"code": link[:90]}, headers={CSRF: "x"}).status_code == 401
