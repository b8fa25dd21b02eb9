"""Sessions of browsers: sign in, sign out, who is it; and links that show one run."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated, Final
from urllib.parse import quote, urlsplit

from fastapi import Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field, SecretStr
from pydantic_core import to_json

from muster import __version__
from muster.api.session import Capability, SessionBegan, SessionEnded, SessionLink, SessionView, ShareLink, ShareRevoked
from muster.core import server_events
from muster.core.errors import Invalid, NotAllowed, NotFound, Unauthenticated
from muster.core.event import Event
from muster.server.auth import Identity, authenticate, stand_in
from muster.server.context import Caller, Leading, Tracked
from muster.server.leader import Leader
from muster.server.record_context import find_run
from muster.server.sign_ins import address_of
from muster.server.typed_routes import JsonAnswer, needs, typed_router
from muster.server.web.credentials import SIGN_IN, cookie_name, needs_secure, own_origin
from muster.server.web.signing import LONGEST, Session
from muster.store.base import Entry, EventFilter

router = typed_router(prefix=SIGN_IN, tags=["session"])

_PAGE: Final = (
    r"^/([!-.0-\[\]-~][!-\[\]-~]*)?$"  # a path of this server, never another one's address: `//HOST`, `/\HOST`
)
_SHARES: Final = 10_000  # the newest links of shares, among which one that is revoked is looked for
_COOKIE_PATH: Final = "/v1"  # no other path needs it, MLflow's pages least of all
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  (what a server may listen on)
Page = Annotated[str, Field(max_length=1000, pattern=_PAGE, description="where it leads, such as /queue")]
ShareId = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")]


class SignInBody(BaseModel):
    """One of them."""

    model_config = ConfigDict(extra="forbid")

    code: SecretStr | None = Field(None, max_length=100, description="of a one-time link: what follows its #")
    token: SecretStr | None = Field(None, max_length=500, description="an access token")
    share: SecretStr | None = Field(None, max_length=LONGEST, description="of a link that shows one run")


class LinkBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    page: Page = "/"


class ShareBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    run: str = Field(min_length=1, max_length=500, pattern=r"^[^\x00]*$")
    page: Page | None = Field(None, description="where it leads; the run's page when null")
    days: float = Field(7, gt=0, le=90)


@router.post("", status_code=201, openapi_extra=needs("nobody"))
def sign_in(body: SignInBody, request: Request, leader: Leading) -> JsonAnswer[SessionBegan]:
    """Begins a session of a browser and sets its cookie. A failed try is recorded as a failed sign-in."""
    try:
        found, how, page = _signed_in(leader, body)
    except Unauthenticated:
        leader.sign_ins.failed(address_of(request.scope), f"Bearer {_secret(body.token)}")
        raise
    session = record_session(request, leader, found, how)
    told: SessionBegan = {**_view(leader, found), "csrf": leader.sessions.csrf(session), "page": page}
    answer: JsonAnswer[SessionBegan] = JsonAnswer(to_json(told, inf_nan_mode="strings"), 201)
    set_session_cookie(answer, request, leader, leader.sessions.signed(session), session.expires_at - session.began_at)
    return answer


@router.get("", openapi_extra=needs("anyone"))
def who(leader: Leading, caller: Caller) -> SessionView:
    return _view(leader, caller)


@router.delete("", openapi_extra=needs("anyone"))
def sign_out(request: Request, leader: Leading, caller: Caller) -> JsonAnswer[SessionEnded]:
    """Ends the session of the request's cookie; nothing can be done with the cookie any more."""
    session, now = caller.session, leader.clock.now()
    if session is None:
        raise Invalid("The request was sent with a token, and not by a session.", "`muster token revoke` ends a token.")
    leader.sessions.end(session.id, session.expires_at, now)
    ended = server_events.SessionEnded(session.id, session.token, session.expires_at)
    leader.propose(lambda state: Entry([Event(ended, now, caller.token.user)]))
    told: SessionEnded = {"ended": True}
    answer: JsonAnswer[SessionEnded] = JsonAnswer(to_json(told))
    set_session_cookie(answer, request, leader, "", 0)
    return answer


@router.post("/links", status_code=201, openapi_extra=needs("anyone"))
def make_link(request: Request, leader: Leading, caller: Caller, body: LinkBody | None = None) -> SessionLink:
    """Makes a one-time link that signs a browser in as the caller, for 5 minutes. Only a token does, so that nobody
    who gets hold of a session can make it last longer."""
    if caller.session is not None:
        raise NotAllowed("A session makes no link to sign in with.", "`muster open` makes one, with a token.")
    page = body.page if body is not None else "/"
    code, expires = leader.sessions.link(caller.token.id, page, leader.clock.now())
    return {"url": f"{_address(request, leader)}/sign-in#{code}", "expires_at": expires}


@router.post("/shares", status_code=201, openapi_extra=needs("member"))
def share_run(body: ShareBody, request: Request, leader: Leading, caller: Caller, track: Tracked) -> ShareLink:
    """Makes a link that shows one run, and nothing else, to whoever has it. It ends with the token that made it."""
    run, now = find_run(leader, track, caller, body.run, "member"), leader.clock.now()
    until = min(now + body.days * 86_400, caller.token.expires_at or float("inf"))
    made = leader.sessions.share(
        caller.token.id, run.id, run.project, body.page or f"/runs/{quote(run.id, safe='')}", now, until
    )
    event = Event(server_events.ShareMade(made.id, made.token, until), now, caller.user, run.project, run.id)
    leader.propose(lambda state: Entry([event]))
    url = f"{_address(request, leader)}/sign-in#share={leader.sessions.signed_share(made)}"
    return {"id": made.id, "url": url, "run": run.id, "expires_at": until}


@router.delete("/shares/{share}", openapi_extra=needs("member"))
def revoke_share(share: ShareId, leader: Leading, caller: Caller) -> ShareRevoked:
    """Makes the link of a share worthless, and ends every session that began with it."""
    made = _share_of(leader, share)
    if made is None or caller.role(leader.store.state(), made.project) is None:
        raise NotFound(f"There is no link {share!r} that you can see.", "`muster events --kind share.made` lists them.")
    caller.need(leader.store.state(), made.project, "member")
    assert isinstance(made.data, server_events.ShareMade)
    until, now = made.data.expires_at, leader.clock.now()
    leader.sessions.end(share, until, now)
    event = Event(server_events.ShareRevoked(share, until), now, caller.user, made.project, made.job)
    leader.propose(lambda state: Entry([event]))
    return {"id": share, "run": made.job}


def _signed_in(leader: Leader, body: SignInBody) -> tuple[Identity, str, str]:
    """The identity of a new session, how it was proved, and the page that it begins with. Raises Unauthenticated."""
    if sum(one is not None for one in (body.code, body.token, body.share)) != 1:
        raise Invalid("A sign-in needs one of `code`, `token` and `share`.", "`muster open` prints a link with a code.")
    sessions, state, now = leader.sessions, leader.store.state(), leader.clock.now()
    if body.token is not None:
        token = authenticate(f"Bearer {_secret(body.token)}", state, now).token
        return stand_in(sessions.begin(token.id, now, token.expires_at), state, now), "token", "/"
    if body.code is not None:
        link = sessions.use(_secret(body.code), now)
        token = stand_in(sessions.begin(link.token, now, None), state, now).token
        return stand_in(sessions.begin(token.id, now, token.expires_at), state, now), "link", link.page
    made = sessions.read_share(_secret(body.share), now)
    found = stand_in(sessions.begin(made.token, now, made.expires_at, made.share), state, now)
    if not found.projects(state):
        raise Unauthenticated("Who made this link may not see the run any more.", "Ask somebody else for one.")
    return found, "share", made.page


def _view(leader: Leader, caller: Identity) -> SessionView:
    state, session = leader.store.state(), caller.session
    visible = caller.projects(state)
    names = list(state.projects) if visible is None else visible
    return {
        "user": caller.token.user,
        "role": caller.token.role if caller.share is None else "viewer",
        "superuser": caller.superuser,
        "finance": caller.token.finance,
        "projects": {name: caller.role(state, name) for name in names},
        "token": caller.token.id,
        "began_at": session.began_at if session is not None else caller.token.created_at,
        "expires_at": session.expires_at if session is not None else caller.token.expires_at,
        "run": caller.share.run if caller.share is not None else None,
        "version": __version__,
        "capabilities": _capabilities(leader),
    }


def _capabilities(leader: Leader) -> list[Capability]:
    there: dict[Capability, bool] = {
        "record": leader.track is not None,
        "studies": leader.studies is not None,
        "exec": leader.settings.exec == "on",
        "mlflow": find_spec("mlflow") is not None,
    }
    return [name for name, has in there.items() if has]


def _address(request: Request, leader: Leader) -> str:
    """The address under which the client reached the server; one that a browser can use, where that is none."""
    found = own_origin(request.scope)
    for everywhere, here in _EVERYWHERE.items():
        if urlsplit(found).hostname == everywhere:
            advertised = leader.settings.advertised
            return advertised[0] if advertised else found.replace(everywhere, here, 1)
    return found


def _share_of(leader: Leader, share: str) -> Event | None:
    made = leader.store.events(EventFilter(kind="share.made", last=True, limit=_SHARES))
    return next(
        (one for one in made if isinstance(one.data, server_events.ShareMade) and one.data.share == share), None
    )


def record_session(request: Request, leader: Leader, found: Identity, how: str) -> Session:
    """Logs that a session of a browser began, before the browser is told of it."""
    session = found.session
    assert session is not None
    run, project = (session.share.run, session.share.project) if session.share else ("", "")
    address, ends = address_of(request.scope), session.expires_at
    began = server_events.SessionBegan(session.id, session.token, how, address, ends, run)
    event = Event(began, leader.clock.now(), found.token.user, project, run)
    leader.propose(lambda state: Entry([event]))
    return session


def set_session_cookie(answer: Response, request: Request, leader: Leader, value: str, seconds: float) -> None:
    name, encrypted = cookie_name(request.scope, leader.sessions), needs_secure(request.scope)
    answer.set_cookie(
        name, value, int(seconds), path=_COOKIE_PATH, secure=encrypted, httponly=True, samesite="strict"
    )  # fmt: skip


def _secret(given: SecretStr | None) -> str:
    return given.get_secret_value() if given is not None else ""
