"""Sessions of browsers: how they begin and end, what they may do, and what must not work."""

from __future__ import annotations

import base64
import json
import ssl
from typing import Any

import httpx
import pytest

from certificate import self_signed
from live import LiveServer, live_server, until
from muster.core.errors import Unauthenticated
from muster.server.web.sessions import LINK_SECONDS, Sessions
from session_kit import CSRF, SESSION, browser, cookie_of, new_link, new_user, signed_in

RUN = {"project": "default"}


def sessions() -> Sessions:
    return Sessions(b"k" * 32, "ab12", 3600.0)


def events(server: LiveServer, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.get("/v1/events", kind=kind, last=True, limit=1000)["events"]
    return found


# How a session begins


def test_a_link_signs_in_once_and_leads_to_its_page(server: LiveServer) -> None:
    code = new_link(server, page="/queue?q=1")
    with browser(server) as client:
        began = client.post(SESSION, json={"code": code})
        assert began.status_code == 201
        assert began.json()["page"] == "/queue?q=1"
        client.headers[CSRF] = began.json()["csrf"]
        told = client.get(SESSION).json()
        assert told["user"] == server.get("/v1/whoami")["user"]
        assert (told["superuser"], told["run"], "csrf" in told) == (True, None, False)
        assert {"record", "studies", "exec"} <= set(told["capabilities"])
        assert "session.began" in [event["kind"] for event in events(server, "session.")]
    with browser(server) as thief:
        again = thief.post(SESSION, json={"code": code})
        assert again.status_code == 401
        assert "used already" in again.json()["error"]["message"]
        assert thief.get(SESSION).status_code == 401


def test_a_link_is_worthless_after_five_minutes_or_when_there_are_many_newer_ones() -> None:
    made = sessions()
    code, expires = made.link("ab12", "/", 100.0)
    assert expires == 100.0 + LINK_SECONDS
    with pytest.raises(Unauthenticated):
        made.use(code, expires)
    first, _ = made.link("ab12", "/", 500.0)
    other, _ = made.link("cd34", "/", 500.0)
    newer = [made.link("ab12", "/", 500.0)[0] for _ in range(20)]
    with pytest.raises(Unauthenticated):
        made.use(first, 501.0)
    assert made.use(other, 501.0).token == "cd34"
    assert all(made.use(code, 501.0).token == "ab12" for code in newer)
    assert len(newer[0]) >= 43  # 256 bits


def test_a_token_signs_in_and_a_wrong_one_is_a_failed_sign_in(server: LiveServer) -> None:
    token = new_user(server, "wanda", looms="member")
    with signed_in(server, token=token["token"]) as client:
        told = client.get(SESSION).json()
    assert (told["user"], told["projects"], told["token"]) == ("wanda", {"looms": "member"}, token["id"])
    with browser(server) as client:
        refused = client.post(SESSION, json={"token": f"mst_{token['id']}_wrong"})
    assert refused.status_code == 401
    assert not refused.cookies
    failed = until(lambda: events(server, "auth.failed"), "the failed sign-in")
    assert {one["data"]["address"] for one in failed} == {"127.0.0.1"}


@pytest.mark.parametrize("body", [{}, {"code": "x", "token": "y"}, {"page": "/"}, [], "x", {"code": 7}])
def test_a_sign_in_that_can_not_be_read_is_refused(server: LiveServer, body: object) -> None:
    with browser(server) as client:
        assert client.post(SESSION, json=body).status_code == 400


@pytest.mark.parametrize(
    "page", ["//evil.example", "/\\evil.example", "https://evil.example", "", "queue", "/a\nb", "/é", "/x" * 501]
)
def test_a_link_leads_to_a_page_of_this_server(server: LiveServer, page: str) -> None:
    with server.http() as http:
        assert http.post(f"{SESSION}/links", json={"page": page}).status_code == 400


def test_a_large_sign_in_is_not_read(server: LiveServer) -> None:
    with browser(server) as client:
        assert client.post(SESSION, json={"code": "x" * 20_000}).status_code == 413


def test_other_sites_can_not_sign_in_their_own_user(server: LiveServer) -> None:
    body = json.dumps({"token": server.token})
    with browser(server) as client:
        for headers in (
            {"Content-Type": "text/plain"},  # what a form of another site can send
            {"Content-Type": "application/x-www-form-urlencoded"},
            {},
            {"Content-Type": "application/json", "Origin": "https://evil.example"},
            {"Content-Type": "application/json", "Origin": "null"},
            {"Content-Type": "application/json", "Sec-Fetch-Site": "cross-site"},
            {"Content-Type": "application/json", "Sec-Fetch-Site": "same-site"},
        ):
            refused = client.post(SESSION, content=body, headers=headers)
            assert refused.status_code in (400, 403), headers
            assert "set-cookie" not in refused.headers


def test_a_session_makes_no_links_to_last_longer_by(server: LiveServer) -> None:
    with signed_in(server) as client:
        assert client.post(f"{SESSION}/links").status_code == 403


def test_a_browser_that_would_drop_the_cookie_is_told_what_to_do(server: LiveServer) -> None:
    body, there = {"code": new_link(server)}, {"Host": "10.1.2.3:6878"}
    with browser(server) as client:
        refused = client.post(SESSION, json=body, headers={**there, "Origin": "http://10.1.2.3:6878"})
        assert refused.status_code == 403
        assert "ssh -L" in refused.json()["error"]["hint"]
        # Behind a proxy that ends TLS; the link was not used up.
        behind = client.post(SESSION, json=body, headers={**there, "Origin": "https://10.1.2.3:6878"})
        assert behind.status_code == 201


# The cookie


def test_the_cookie_is_for_the_api_alone_and_no_script_reads_it(server: LiveServer) -> None:
    with browser(server) as client:
        here = client.post(SESSION, json={"code": new_link(server)}).headers["set-cookie"]
        elsewhere = client.post(
            SESSION, json={"code": new_link(server)}, headers={"Host": "10.1.2.3:6878"}
        ).headers["set-cookie"]  # fmt: skip
    for part in ("HttpOnly", "SameSite=strict", "Path=/v1;", "Max-Age=43200"):
        assert part in here
        assert part in elsewhere
    assert here.startswith("muster_session_")
    assert "Secure" not in here
    assert elsewhere.startswith("__Secure-muster_session_")
    assert "; Secure" in elsewhere


def test_over_tls_the_cookie_is_for_tls_alone(tmp_path) -> None:
    both = str(self_signed(tmp_path))
    with live_server(tmp_path / "home", "--tls-cert", both, "--tls-key", both, ca=both) as server:
        url = server.post(f"{SESSION}/links")["url"]
        assert url.startswith(f"{server.url}/sign-in#")
        trust = ssl.create_default_context(cafile=both)
        with httpx.Client(base_url=server.url, verify=trust, trust_env=False, timeout=60) as client:
            began = client.post(SESSION, json={"code": url.partition("#")[2]}, headers={"Origin": server.url})
            assert began.status_code == 201
            assert "; Secure" in began.headers["set-cookie"]
            name, _, value = cookie_of(client).partition("=")
            assert name.startswith("__Secure-muster_session_")
            client.headers[CSRF] = began.json()["csrf"]
            assert client.get(SESSION).status_code == 200
            plain = server.url.replace("https:", "http:")
            assert client.post("/v1/runs", json=RUN, headers={"Origin": plain}).status_code == 403
            assert client.post("/v1/runs", json=RUN, headers={"Origin": server.url}).status_code == 201
            client.cookies.clear()
            unprefixed = f"{name.removeprefix('__Secure-')}={value}"  # what a page over HTTP could have set
            assert client.get(SESSION, headers={"Cookie": unprefixed}).status_code == 401


def test_a_forged_or_changed_cookie_is_refused(server: LiveServer) -> None:
    with signed_in(server, new_user(server, "fay")["token"]) as client:
        name, _, value = cookie_of(client).partition("=")
        root, csrf = client.get(SESSION).json()["token"], client.headers[CSRF]
    text, _, mac = value.partition(".")
    doc = json.loads(base64.urlsafe_b64decode(text + "=="))
    changed = base64.urlsafe_b64encode(json.dumps({**doc, "token": root, "expires_at": 9e9}).encode()).decode()
    with browser(server) as client:
        client.headers[CSRF] = csrf
        for forged in (f"{changed}.{mac}", f"{text}.{'0' * 64}", f"{text}.", text, "", "é.x", "." * 3000):
            raw = f"{name}={forged}".encode()
            assert client.get(SESSION, headers={b"Cookie": raw}).status_code == 401, forged
        assert client.get(SESSION, headers={"Cookie": f"{name}={value}"}).status_code == 200
        # Another program on this host may set cookies, too: it must not choose as whom the user acts.
        twice = f"{name}={value}; {name}={changed}.{mac}"
        assert client.get(SESSION, headers={"Cookie": twice}).status_code == 401


def test_the_key_of_another_server_or_purpose_signs_nothing_here() -> None:
    mine, other = sessions(), Sessions(b"o" * 32, "ab12", 3600.0)
    session = mine.begin("ab12", 100.0, None)
    assert mine.read(mine.signed(session), 101.0) == session
    for signed in (other.signed(session), mine.signed_share(session)):
        with pytest.raises(Unauthenticated):
            mine.read(signed, 101.0)
    with pytest.raises(Unauthenticated):
        mine.read(mine.signed(session), session.expires_at)
    assert mine.begin("ab12", 100.0, 200.0).expires_at == 200.0, "no longer than its token"


def test_attempts_mlflow_and_metrics_take_no_cookie(server: LiveServer) -> None:
    with signed_in(server) as client:
        client.headers["Cookie"] = cookie_of(client)  # whatever its path
        for method, path in (
            ("POST", "/v1/ingest"),
            ("GET", "/v1/ingest/secrets"),
            ("POST", "/v1/runs/external/beat"),
            ("GET", "/mlflow/api/2.0/mlflow/experiments/search"),
            ("GET", "/mlflow/"),
            ("GET", "/metrics"),
        ):
            assert client.request(method, path).status_code == 401, path


def test_a_header_goes_before_a_cookie(server: LiveServer) -> None:
    token = new_user(server, "hedda")["token"]
    with signed_in(server) as client:
        assert client.get("/v1/whoami", headers={"Authorization": f"Bearer {token}"}).json()["user"] == "hedda"
        assert client.get("/v1/whoami", headers={"Authorization": "Bearer mst_ab_wrong"}).status_code == 401
        assert client.get("/v1/whoami", headers={"Authorization": ""}).status_code == 401


# What it may do


def test_it_may_do_what_its_token_may(server: LiveServer) -> None:
    token = new_user(server, "vanja", crew="viewer")["token"]
    with signed_in(server, token) as client:
        assert client.get("/v1/projects").json()["projects"][0]["name"] == "crew"
        assert client.post("/v1/runs", json={"project": "crew"}).status_code == 403
        assert client.post("/v1/projects", json={"name": "more"}).status_code == 403
    with signed_in(server) as client:
        assert client.post("/v1/runs", json=RUN).status_code == 201


def test_the_cookie_alone_opens_nothing_but_files(server: LiveServer) -> None:
    """Browsers send it to every port of the host: who gets it there must not be able to use it."""
    with signed_in(server) as client:
        run = client.post("/v1/runs", json=RUN).json()["id"]
        assert client.put(f"/v1/runs/{run}/artifacts/a.txt", content=b"text").status_code in (200, 201)
        good = client.headers.pop(CSRF)
        for path in (
            SESSION,
            "/v1/whoami",
            "/v1/jobs",
            f"/v1/runs/{run}",
            "/v1/events/stream",
            f"/v1/runs/{run}/artifacts",
        ):
            refused = client.get(path)
            assert refused.status_code == 401, path
            assert CSRF in refused.json()["error"]["message"]
        assert client.get(f"/v1/runs/{run}/artifacts/a.txt").content == b"text", "a link downloads it"
        assert client.get("/v1/whoami", headers={CSRF: good}).status_code == 200


def test_a_change_needs_the_csrf_token_of_the_same_session(server: LiveServer) -> None:
    with signed_in(server) as other:
        wrong = other.headers[CSRF]
    with signed_in(server) as client:
        good = client.headers.pop(CSRF)
        for given in ({}, {CSRF: ""}, {CSRF: wrong}, {CSRF: good[:-1]}, {CSRF: "é"}):
            raw = {name: value.encode() for name, value in given.items()}
            refused = client.post("/v1/runs", json=RUN, headers=raw)
            assert refused.status_code == 403, given
            assert CSRF in refused.json()["error"]["message"]
        assert client.post("/v1/runs", json=RUN, headers={CSRF: good}).status_code == 201


def test_no_other_site_may_send_a_request(server: LiveServer) -> None:
    port = httpx.URL(server.url).port
    with signed_in(server) as client:
        for headers in (
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            {"Origin": f"http://127.0.0.1:{port + 1}"},  # another program on this machine
            {"Origin": f"http://localhost:{port}"},
            {"Origin": f"ftp://127.0.0.1:{port}"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
        ):
            for method, path in (("POST", "/v1/runs"), ("GET", "/v1/whoami"), ("DELETE", SESSION)):
                refused = client.request(method, path, json=RUN if method == "POST" else None, headers=headers)
                assert refused.status_code == 403, (headers, method)
                assert "another site" in refused.json()["error"]["message"]
        own = {"Origin": server.url, "Sec-Fetch-Site": "same-origin"}
        assert client.post("/v1/runs", json=RUN, headers=own).status_code == 201
        assert client.get("/v1/whoami", headers={"Sec-Fetch-Site": "none"}).status_code == 200


def test_a_host_that_is_not_the_servers_is_refused(server: LiveServer) -> None:
    with signed_in(server) as client:
        for path in (SESSION, "/", "/assets/x.js"):
            assert client.get(path, headers={"Host": "evil.example"}).status_code == 421


# How it ends


def test_it_ends_when_its_token_is_revoked(server: LiveServer) -> None:
    token = new_user(server, "rita")
    with signed_in(server, token["token"]) as client:
        code = new_link(server, token["token"])
        with server.http() as root:
            assert root.delete(f"/v1/tokens/{token['id']}").status_code == 200
        assert client.get(SESSION).status_code == 401
        assert client.post(SESSION, json={"code": code}).status_code == 401


def test_signing_out_makes_the_cookie_worthless(server: LiveServer) -> None:
    with signed_in(server) as client:
        raw = cookie_of(client)
        ended = client.delete(SESSION)
        assert (ended.status_code, ended.json()) == (200, {"ended": True})
        assert "Max-Age=0" in ended.headers["set-cookie"]
        assert not client.cookies
        assert client.get(SESSION, headers={"Cookie": raw}).status_code == 401
    assert events(server, "session.ended")
    with server.http() as http:
        refused = http.delete(SESSION)
    assert refused.status_code == 400
    assert "muster token revoke" in refused.json()["error"]["hint"]


@pytest.mark.parametrize("how", ["sign out", "revoke"])
def test_an_open_stream_ends_with_the_session(server: LiveServer, how: str) -> None:
    token = new_user(server, "sten", rivers="viewer")
    with signed_in(server, token["token"]) as client, client.stream("GET", "/v1/events/stream") as stream:
        assert stream.status_code == 200
        lines = stream.iter_lines()
        assert next(lines) == ": muster"
        if how == "sign out":
            assert client.delete(SESSION).status_code == 200
        else:
            with server.http() as root:
                root.delete(f"/v1/tokens/{token['id']}")
        rest = "\n".join(lines)
    assert "event: error" in rest
    assert "unauthenticated" in rest


def test_a_restart_ends_no_session_and_revives_none(tmp_path) -> None:
    with live_server(tmp_path / "home") as server, signed_in(server) as client, signed_in(server) as gone:
        code, raw = new_link(server), cookie_of(gone)
        assert gone.delete(SESSION).status_code == 200
        server.stop()
        server.start()
        client.base_url = gone.base_url = httpx.URL(server.url)
        assert client.get(SESSION).status_code == 200
        assert client.post("/v1/runs", json=RUN).status_code == 201
        assert gone.get(SESSION, headers={"Cookie": raw}).status_code == 401
        assert gone.post(SESSION, json={"code": code}).status_code == 401, "links are gone with the server"


def test_the_log_says_who_signed_in_and_holds_no_secret(server: LiveServer) -> None:
    token = new_user(server, "lotta")
    code = new_link(server, token["token"])
    with signed_in(server, code=code) as client:
        raw = cookie_of(client)
        client.delete(SESSION)
    found = server.get("/v1/events", actor="lotta")["events"]
    assert [one["kind"] for one in found] == ["session.began", "session.ended"]
    assert found[0]["data"]["token"] == token["id"]
    assert (found[0]["data"]["how"], found[0]["data"]["address"]) == ("link", "127.0.0.1")
    told = json.dumps(found)
    assert all(secret not in told for secret in (code, raw.partition("=")[2], token["token"], client.headers[CSRF]))
