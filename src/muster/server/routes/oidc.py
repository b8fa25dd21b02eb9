"""Sign-in of browsers through an OpenID Connect provider, and the accounts there that users are bound to."""

from __future__ import annotations

from typing import Annotated, Final
from urllib.parse import quote, urlencode, urlsplit

from fastapi import Query, Request, Response
from fastapi.responses import RedirectResponse

from muster.api.session import ProviderAccountList, ProviderAccountView, SignInProvider
from muster.core.entities.provider_account import (
    PROVIDER_ACCOUNTS,
    ProviderAccount,
    ProviderAccountReleased,
    account_of,
)
from muster.core.entities.token import TokenRevoked
from muster.core.errors import Invalid, MusterError, NotAllowed, Unauthenticated
from muster.core.event import Event
from muster.core.state import State
from muster.server.auth import stand_in
from muster.server.context import Caller, Leading, leader_of, service_of
from muster.server.leader import Leader
from muster.server.oidc.flow import SECONDS, OidcFlows
from muster.server.oidc.people import Admission, admit, person_of
from muster.server.oidc.refusal_page import refusal_page
from muster.server.oidc.settings import is_loopback
from muster.server.routes.access import User
from muster.server.routes.session import Page, record_session, set_session_cookie
from muster.server.sign_ins import address_of
from muster.server.typed_routes import needs, typed_router
from muster.server.web.credentials import cookies_of, needs_secure, own_origin
from muster.server.web.site import OIDC
from muster.store.base import Entry

router = typed_router(prefix="/v1", tags=["session"])

_CALLBACK: Final = f"{OIDC}/callback"
Answered = Annotated[str | None, Query(max_length=4000)]


@router.get("/session/provider", openapi_extra=needs("nobody"))
def provider(request: Request) -> SignInProvider:
    """The provider that people sign in through, for the sign-in page; nulls where there is none."""
    oidc = service_of(request).oidc
    if oidc is None:
        return {"name": None, "url": None}
    return {"name": oidc.settings.shown_name, "url": f"{oidc.settings.public_url}{OIDC}"}


@router.get("/session/oidc", openapi_extra=needs("nobody"))
def begin_at_provider(request: Request, page: Page = "/") -> Response:
    """Sends a browser to the provider, which sends it back to `/v1/session/oidc/callback`."""
    try:
        oidc = _configured(request)
        address, cookie = oidc.begin(_own_address(request, oidc) + _CALLBACK, page)
    except MusterError as error:
        return refusal_page(error)
    answer = RedirectResponse(address, 303)
    _set_flow_cookie(answer, request, oidc, cookie, SECONDS)
    return answer


@router.get("/session/oidc/callback", openapi_extra=needs("nobody"))
def end_at_provider(
    request: Request,
    state: Annotated[str, Query(max_length=200)] = "",
    code: Answered = None,
    error: Answered = None,
    iss: Answered = None,
) -> Response:
    """Begins a session for whom the provider sends back, and leads to the page that was asked for."""
    try:
        oidc, leader = _configured(request), leader_of(request)
        flow = oidc.take(_flow_cookie(request, oidc), state)
    except MusterError as refused:
        return _refused(request, refused)
    answer: Response
    try:
        person = person_of(oidc.end(flow, code, error, iss), oidc.settings)
        admitted: list[Admission] = []

        def propose(now: State) -> Entry:
            admitted[:] = [admit(now, person, oidc.settings, leader.clock.now())]
            return Entry(admitted[0].events)

        leader.propose(propose)
        if admitted[0].refused is not None:
            raise admitted[0].refused
        answer = _begun(request, leader, admitted[0].token, flow.page)
    except MusterError as refused:
        answer = _refused(request, refused)
    _set_flow_cookie(answer, request, oidc, "", 0)
    return answer


@router.get("/provider-accounts", openapi_extra=needs("superuser"))
def list_provider_accounts(leader: Leading, caller: Caller) -> ProviderAccountList:
    """The accounts at the provider that have signed in, and as which users."""
    caller.need_superuser()
    accounts = leader.look(lambda state: list(PROVIDER_ACCOUNTS.all(state).values()))
    return {"accounts": [_view(one) for one in accounts]}


@router.delete("/provider-accounts/{user}", openapi_extra=needs("superuser"))
def release_provider_account(user: User, leader: Leading, caller: Caller) -> ProviderAccountList:
    """Ends the sessions of the account that is bound to a user, and lets another one be bound. Answers with the
    account; with none if there was none."""
    caller.need_superuser()
    released: list[ProviderAccount] = []

    def propose(state: State) -> Entry:
        found, now = account_of(state, user), leader.clock.now()
        released[:] = [found] if found is not None else []
        if found is None:
            return Entry()
        events = [Event(ProviderAccountReleased(found.id, user), now, caller.user)]
        token = state.tokens.get(found.token)
        if token is not None and token.revoked_at is None:
            events.append(Event(TokenRevoked(found.token), now, caller.user))
        return Entry(events)

    leader.propose(propose)
    return {"accounts": [_view(one) for one in released]}


def _begun(request: Request, leader: Leader, token: str, page: str) -> Response:
    """The session's second half is in the part of the address that browsers keep to themselves; the page takes it out
    at once, as it does with the code of a one-time link."""
    sessions, now = leader.sessions, leader.clock.now()
    found = stand_in(sessions.begin(token, now, None), leader.store.state(), now)
    session = record_session(request, leader, found, "provider")
    began = urlencode({"began": sessions.csrf(session), "page": page}, quote_via=quote)
    answer = RedirectResponse(f"/sign-in#{began}", 303)
    set_session_cookie(answer, request, leader, sessions.signed(session), session.expires_at - session.began_at)
    return answer


def _refused(request: Request, error: MusterError) -> Response:
    leader = service_of(request).leader
    if leader is not None and isinstance(error, Unauthenticated | NotAllowed):
        leader.sign_ins.failed(address_of(request.scope), "")
    return refusal_page(error)


def _configured(request: Request) -> OidcFlows:
    oidc = service_of(request).oidc
    if oidc is None:
        raise Invalid("Nobody signs in through a provider here.", "`muster open` prints a link that signs you in.")
    return oidc


def _own_address(request: Request, oidc: OidcFlows) -> str:
    """The origin that the provider sends the browser back to: the configured one, else the one of the request, whose
    Host the guard has checked. Raises where the browser would come back without its cookie."""
    public, here = oidc.settings.public_url, own_origin(request.scope)
    if not public:
        if request.scope["scheme"] != "https" and not is_loopback(urlsplit(here).hostname or ""):
            raise NotAllowed(
                "Sign-in through a provider needs HTTPS.", "Behind a proxy with TLS, set `public_url` of [oidc]."
            )
        return here
    if _place(public, public) != _place(here, public):
        raise Invalid(f"Sign-in through a provider works at {public}.", f"Open {public}/sign-in.")
    return public


def _place(origin: str, public: str) -> tuple[str | None, int | None]:
    """Host and port. A proxy may have ended TLS before, so the usual port is that of the public address."""
    try:
        parts = urlsplit(origin)
        return parts.hostname, parts.port or (443 if public.startswith("https:") else 80)
    except ValueError:
        return None, None


def _flow_cookie(request: Request, oidc: OidcFlows) -> str | None:
    found = {value for name, value in cookies_of(request.scope) if name == _flow_cookie_name(request, oidc)}
    return next(iter(found)) if len(found) == 1 else None  # several: another program on this host has set one


def _set_flow_cookie(answer: Response, request: Request, oidc: OidcFlows, value: str, seconds: float) -> None:
    """Lax: it comes along when the provider sends the browser back."""
    name, encrypted = _flow_cookie_name(request, oidc), needs_secure(request.scope)
    answer.set_cookie(name, value, int(seconds), path=OIDC, secure=encrypted, httponly=True, samesite="lax")


def _flow_cookie_name(request: Request, oidc: OidcFlows) -> str:
    return f"__Secure-{oidc.cookie}" if needs_secure(request.scope) else oidc.cookie


def _view(one: ProviderAccount) -> ProviderAccountView:
    return {
        "user": one.user,
        "issuer": one.issuer,
        "subject": one.subject,
        "token": one.token,
        "bound_at": one.bound_at,
    }
