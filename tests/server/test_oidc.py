"""Sign-in of browsers through a real OpenID Connect provider: who gets in, as whom, and what must not work."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

import muster
from live import LiveServer, live_server, until
from oidc_kit import BEGIN, OidcServer, at_provider, oidc_server, sign_in
from session_kit import CSRF, SESSION, browser

PROVIDER, ACCOUNTS = "/v1/session/provider", "/v1/provider-accounts"


@pytest.fixture(scope="module")
def provider() -> Iterator[OidcServer]:
    with oidc_server() as made:
        yield made


@pytest.fixture(scope="module")
def invited(provider: OidcServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """Whom nobody has let in is refused: the default."""
    home = tmp_path_factory.mktemp("oidc") / "muster"
    with live_server(home, config=provider.config(home, name="The <Company>")) as server:
        yield server
        assert '"message": "bug ' not in server.log()


@pytest.fixture(scope="module")
def joined(provider: OidcServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """People of one domain and one group become members."""
    home = tmp_path_factory.mktemp("oidc") / "muster"
    config = provider.config(home, domains=["example.org"], group="ml", new_members="viewer")
    with live_server(home, config=config) as server:
        yield server


def let_in(server: LiveServer, user: str, role: str | None = "member") -> None:
    path = f"/v1/projects/default/members/{user}"
    with server.http() as http:
        done = http.put(path, json={"role": role}) if role else http.delete(path)
        assert done.status_code == 200, done.text


def release(server: LiveServer, user: str) -> list[dict[str, Any]]:
    with muster.Client(server.url, server.token) as client:
        return [dict(one) for one in client.release_provider_account(user)]


def events(server: LiveServer, kind: str, **given: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.get("/v1/events", kind=kind, last=True, limit=1000, **given)["events"]
    return found


def refused(answer: httpx.Response, status: int, words: str) -> None:
    """A page that says so, and no session."""
    assert (answer.status_code, "began=" in answer.headers.get("location", "")) == (status, False), answer.text
    assert words in answer.text
    assert answer.headers["content-type"].startswith("text/html")
    assert "script" not in answer.text
    assert "muster_session_" not in answer.headers.get("set-cookie", "")


# Who gets in


def test_a_member_signs_in_and_is_led_to_the_page(invited: LiveServer, provider: OidcServer) -> None:
    provider.account("s-ada", email="Ada@Example.org", email_verified=True)
    let_in(invited, "ada@example.org", "admin")
    with browser(invited) as client:
        assert client.get(PROVIDER).json() == {"name": "The <Company>", "url": BEGIN}
        ended = sign_in(client, provider, "s-ada", "/runs?q=a%20b&x=1")
        assert ended.status_code == 303
        to = urlsplit(ended.headers["location"])
        assert (to.netloc, to.path, to.query) == ("", "/sign-in", "")
        assert parse_qs(to.fragment)["page"] == ["/runs?q=a%20b&x=1"]
        (cookie,) = [one for one in ended.headers.get_list("set-cookie") if one.startswith("muster_session_")]
        for part in ("HttpOnly", "SameSite=strict", "Path=/v1;", "Max-Age=43200"):
            assert part in cookie
        told = client.get(SESSION).json()
        assert (told["user"], told["superuser"], told["projects"]) == ("ada@example.org", False, {"default": "admin"})
        assert client.post("/v1/runs", json={"project": "default"}).status_code == 201
        del client.headers[CSRF]
        assert client.get(SESSION).status_code == 401, "the cookie alone is no session"
    began = events(invited, "session.began", actor="ada@example.org")[-1]["data"]
    assert (began["how"], began["token"]) == ("provider", told["token"])
    told = json.dumps(events(invited, "provider_account.")) + invited.log()
    assert provider.secret not in told
    assert "s-ada" in told


def test_the_same_account_has_one_token_whose_end_is_the_end_of_its_sessions(
    invited: LiveServer, provider: OidcServer
) -> None:
    provider.account("s-tom", email="tom@example.org", email_verified=True)
    let_in(invited, "tom@example.org")
    with browser(invited) as first, browser(invited) as second, browser(invited) as third:
        for client in (first, second):
            sign_in(client, provider, "s-tom")
        token = first.get(SESSION).json()["token"]
        assert second.get(SESSION).json()["token"] == token
        with invited.http() as root:
            assert root.delete(f"/v1/tokens/{token}").status_code == 200
        assert first.get(SESSION).status_code == second.get(SESSION).status_code == 401
        sign_in(third, provider, "s-tom")
        assert third.get(SESSION).json()["token"] != token
        assert third.get(SESSION).json()["user"] == "tom@example.org"


def test_who_is_no_member_is_told_how_to_become_one(invited: LiveServer, provider: OidcServer) -> None:
    provider.account("s-eve", email="eve@example.org", email_verified=True)
    with browser(invited) as client:
        refused(sign_in(client, provider, "s-eve"), 403, "muster project member PROJECT eve@example.org member")
        assert client.get(SESSION).status_code == 401
    assert not [one for one in invited.get(ACCOUNTS)["accounts"] if one["subject"] == "s-eve"]
    until(lambda: events(invited, "auth.failed"), "the failed sign-in")


def test_who_has_left_every_project_is_refused_and_may_come_back(invited: LiveServer, provider: OidcServer) -> None:
    provider.account("s-leo", email="leo@example.org", email_verified=True)
    let_in(invited, "leo@example.org")
    with browser(invited) as client:
        sign_in(client, provider, "s-leo")
        let_in(invited, "leo@example.org", None)
        assert client.get(SESSION).json()["projects"] == {}
        assert client.post("/v1/runs", json={"project": "default"}).status_code == 404
        refused(sign_in(client, provider, "s-leo"), 403, "leo@example.org")
        let_in(invited, "leo@example.org")
        assert sign_in(client, provider, "s-leo").status_code == 303


@pytest.mark.parametrize(
    "claims", [{"email_verified": False}, {}, {"email_verified": "yes"}, {"email": "a b@example.org"}, {"email": None}]
)
def test_an_address_that_nobody_verified_is_no_name(
    invited: LiveServer, provider: OidcServer, claims: dict[str, Any]
) -> None:
    let_in(invited, "max@example.org")
    verified = {"email_verified": True} if "email" in claims else {}
    provider.account("s-max", **{"email": "max@example.org", **verified, **claims})
    with browser(invited) as client:
        refused(sign_in(client, provider, "s-max"), 403, "verified e-mail address")


def test_an_address_that_changes_hands_gives_nobody_another_account(invited: LiveServer, provider: OidcServer) -> None:
    provider.account("s-old", email="kim@example.org", email_verified=True)
    let_in(invited, "kim@example.org")
    with browser(invited) as old, browser(invited) as new:
        sign_in(old, provider, "s-old")
        provider.account("s-old", email="kim.lee@example.org", email_verified=True)
        provider.account("s-new", email="kim@example.org", email_verified=True)
        refused(sign_in(new, provider, "s-new"), 403, "another account of the provider")
        sign_in(old, provider, "s-old")
        assert old.get(SESSION).json()["user"] == "kim@example.org"
        assert [one["subject"] for one in release(invited, "kim@example.org")] == ["s-old"]
        assert old.get(SESSION).status_code == 401
        assert sign_in(new, provider, "s-new").status_code == 303
        assert new.get(SESSION).json()["user"] == "kim@example.org"
        refused(sign_in(old, provider, "s-old"), 403, "kim.lee@example.org")
    assert release(invited, "nobody@example.org") == []


def test_new_people_of_the_domain_and_the_group_become_members_once(joined: LiveServer, provider: OidcServer) -> None:
    good = {"email_verified": True, "groups": ["x", "ml"]}
    provider.account("s-new", email="new@example.org", **good)
    provider.account("s-far", email="far@evil-example.org", **good)
    provider.account("s-out", email="out@example.org", email_verified=True, groups=["mlx"])
    provider.account("s-sub", email="sub@x.example.org", **good)
    with browser(joined) as client:
        refused(sign_in(client, provider, "s-far"), 403, "domain")
        refused(sign_in(client, provider, "s-sub"), 403, "domain")
        refused(sign_in(client, provider, "s-out"), 403, "group")
        assert sign_in(client, provider, "s-new").status_code == 303
        assert client.get(SESSION).json()["projects"] == {"default": "viewer"}
        let_in(joined, "new@example.org", None)
        refused(sign_in(client, provider, "s-new"), 403, "member of no project")
        assert joined.get("/v1/projects")["projects"][0]["members"] == {}


def test_groups_decide_roles_at_each_sign_in(provider: OidcServer, tmp_path: Path) -> None:
    home = tmp_path / "muster"
    roles = ["ml=default:member", "leads=default:admin", "ml=vision:viewer", "ml=gone:admin"]
    with live_server(home, config=provider.config(home, roles=roles)) as server, browser(server) as client:
        server.post("/v1/projects", {"name": "vision"})

        def sign(*groups: str) -> httpx.Response:
            provider.account("s-g", email="gus@example.org", email_verified=True, groups=list(groups))
            return sign_in(client, provider, "s-g")

        refused(sign("other"), 403, "member of no project")
        assert sign("ml").status_code == 303
        assert client.get(SESSION).json()["projects"] == {"default": "member", "vision": "viewer"}
        let_in(server, "gus@example.org", "viewer")  # by hand, which holds until the next time
        assert sign("leads", "x").status_code == 303
        assert client.get(SESSION).json()["projects"] == {"default": "admin"}
        assert sign("ml").status_code == 303  # the last admin of a project stays one
        assert client.get(SESSION).json()["projects"] == {"default": "admin", "vision": "viewer"}
        let_in(server, "lea@example.org", "admin")
        assert sign("ml").status_code == 303
        assert client.get(SESSION).json()["projects"] == {"default": "member", "vision": "viewer"}
        refused(sign(), 403, "member of no project")  # and his roles are gone, for tokens that he made as well
        assert client.get("/v1/jobs").status_code in (401, 403) or not client.get("/v1/projects").json()["projects"]
        changed = [(one["data"]["name"], one["data"]["role"]) for one in events(server, "project.member")]
        assert ("default", None) in changed
        assert ("vision", None) in changed
        of_vision = [one for one in events(server, "project.member") if one["data"]["name"] == "vision"]
        assert {one["actor"] for one in of_vision} == {"muster"}


def test_nobody_joins_under_the_name_of_somebody_with_a_token(joined: LiveServer, provider: OidcServer) -> None:
    joined.post("/v1/tokens", {"user": "root@example.org", "superuser": True})
    provider.account("s-root", email="root@example.org", email_verified=True, groups="ml")
    with browser(joined) as client:
        refused(sign_in(client, provider, "s-root"), 403, "member of no project")


def test_a_server_without_a_provider_says_so(server: LiveServer) -> None:
    with browser(server) as client:
        assert client.get(PROVIDER).json() == {"name": None, "url": None}
        refused(client.get(BEGIN), 400, "muster open")
        refused(client.get(f"{BEGIN}/callback"), 400, "muster open")


# What must not work


@pytest.fixture
def ada(invited: LiveServer, provider: OidcServer) -> str:
    provider.account("s-ada", email="ada@example.org", email_verified=True)
    let_in(invited, "ada@example.org", "admin")
    return "s-ada"


def test_a_sign_in_is_ended_once(invited: LiveServer, provider: OidcServer, ada: str) -> None:
    with browser(invited) as client:
        back = at_provider(client, provider, client.get(BEGIN), ada)
        raw = "; ".join(f"{one.name}={one.value}" for one in client.cookies.jar if "oidc" in one.name)
        assert client.get(back).status_code == 303
        assert "muster_oidc" not in str(client.cookies)
    with browser(invited) as thief:
        refused(thief.get(back, headers={"Cookie": raw}), 401, "over already")
        refused(thief.get(back), 401, "did not begin this sign-in")


def test_a_browser_ends_only_what_it_began(invited: LiveServer, provider: OidcServer, ada: str) -> None:
    with browser(invited) as victim, browser(invited) as attacker:
        back = at_provider(attacker, provider, attacker.get(BEGIN), ada)
        own = victim.get(BEGIN)
        refused(victim.get(back), 401, "did not begin this sign-in")
        for state in ("", "é", "x" * 200):
            refused(victim.get(f"{BEGIN}/callback", params={"state": state, "code": "x"}), 401, "did not begin")
        # With its own state, and the code of somebody else, which PKCE ties to the browser that asked for it.
        state = parse_qs(urlsplit(own.headers["location"]).query)["state"][0]
        given = {name: values[0] for name, values in parse_qs(urlsplit(back).query).items()}
        refused(victim.get(f"{BEGIN}/callback", params={**given, "state": state}), 401, "does not take the code")
        assert victim.get(SESSION).status_code == 401


def test_an_answer_of_another_provider_is_refused(invited: LiveServer, provider: OidcServer, ada: str) -> None:
    for issuer in ("https://evil.example", None):
        with browser(invited) as client:
            back = httpx.URL(at_provider(client, provider, client.get(BEGIN), ada))
            mixed = back.copy_set_param("iss", issuer) if issuer else back.copy_remove_param("iss")
            refused(client.get(mixed), 401, "another provider")


def test_a_changed_cookie_is_refused(invited: LiveServer, provider: OidcServer, ada: str) -> None:
    with browser(invited) as client:
        back = at_provider(client, provider, client.get(BEGIN), ada)
        (cookie,) = [one for one in client.cookies.jar if "muster_oidc" in one.name]
        value = str(cookie.value)
        for changed in ("", value[:-6], value[:50] + ("A" if value[50] != "A" else "B") + value[51:], "é", "x" * 5000):
            raw = f"{cookie.name}={changed}".encode("latin-1")
            refused(client.get(back, headers={b"Cookie": raw}), 401, "did not begin")
        twice = f"{cookie.name}={value}; {cookie.name}=other"
        refused(client.get(back, headers={"Cookie": twice}), 401, "did not begin")


def test_the_provider_s_own_words_are_not_shown(invited: LiveServer, provider: OidcServer) -> None:
    with browser(invited) as client:
        back = at_provider(client, provider, client.get(BEGIN))
        assert "error=access_denied" in back
        answer = client.get(back)
        refused(answer, 403, "cancelled")
        assert "words of the provider" not in answer.text
        begun = client.get(BEGIN)
        state = parse_qs(urlsplit(begun.headers["location"]).query)["state"][0]
        told = {"state": state, "error": "<script>", "iss": provider.issuer}
        refused(client.get(f"{BEGIN}/callback", params=told), 403, "The provider refused the sign-in.")


@pytest.mark.parametrize("page", ["//evil.example", "/\\evil.example", "https://evil.example", "", "/a\nb", "/é"])
def test_a_sign_in_leads_to_a_page_of_this_server(invited: LiveServer, page: str) -> None:
    with browser(invited) as client:
        assert client.get(BEGIN, params={"page": page}).status_code == 400


def test_what_the_provider_is_asked(invited: LiveServer, provider: OidcServer) -> None:
    with browser(invited) as client:
        begun, again = client.get(BEGIN), client.get(BEGIN)
    to = urlsplit(begun.headers["location"])
    asked = {name: values[0] for name, values in parse_qs(to.query).items()}
    assert f"{to.scheme}://{to.netloc}" == provider.issuer
    assert asked["redirect_uri"] == f"{invited.url}{BEGIN}/callback"
    assert (asked["response_type"], asked["code_challenge_method"]) == ("code", "S256")
    assert asked["scope"].split() == ["openid", "email", "profile"]
    for name in ("state", "nonce", "code_challenge"):
        assert len(asked[name]) == 43
        assert asked[name] not in again.headers["location"]
    cookie = begun.headers["set-cookie"]
    for part in ("HttpOnly", "SameSite=lax", f"Path={BEGIN};", "Max-Age=600"):
        assert part in cookie
    assert asked["nonce"] not in cookie
    assert provider.secret not in begun.headers["location"]


def test_without_encryption_it_works_on_this_machine_alone(invited: LiveServer) -> None:
    with browser(invited) as client:
        refused(client.get(BEGIN, headers={"Host": "10.1.2.3:6878"}), 403, "public_url")
        assert client.get(BEGIN, headers={"Host": "evil.example"}).status_code == 421


def test_behind_a_proxy_the_public_address_counts(provider: OidcServer, tmp_path: Path) -> None:
    home, public = tmp_path / "muster", "https://muster.example.org"
    with live_server(home, config=provider.config(home, public_url=public)) as server, browser(server) as client:
        assert client.get(PROVIDER).json()["url"] == public + BEGIN
        begun = client.get(BEGIN, headers={"Host": "muster.example.org"})
        asked = parse_qs(urlsplit(begun.headers["location"]).query)
        assert asked["redirect_uri"] == [f"{public}{BEGIN}/callback"]
        assert begun.headers["set-cookie"].startswith("__Secure-muster_oidc_")
        assert "; Secure" in begun.headers["set-cookie"]
        refused(client.get(BEGIN), 400, f"Open {public}/sign-in")


def test_the_provider_goes_away_and_comes_back_with_other_keys(
    invited: LiveServer, provider: OidcServer, ada: str
) -> None:
    with browser(invited) as client:
        assert sign_in(client, provider, ada).status_code == 303, "its keys are known now"
        back = at_provider(client, provider, client.get(BEGIN), ada)
        provider.stop()
        refused(client.get(back), 503, "can&#x27;t be reached")
        provider.start()
        provider.account(ada, email="ada@example.org", email_verified=True)
        assert sign_in(client, provider, ada).status_code == 303


def test_only_administrators_see_and_release_accounts(invited: LiveServer, provider: OidcServer, ada: str) -> None:
    with browser(invited) as client:
        sign_in(client, provider, ada)
        assert client.get(ACCOUNTS).status_code == client.delete(f"{ACCOUNTS}/ada@example.org").status_code == 403
    found = [one for one in invited.get(ACCOUNTS)["accounts"] if one["user"] == "ada@example.org"]
    assert [(one["issuer"], one["subject"]) for one in found] == [(provider.issuer, ada)]
