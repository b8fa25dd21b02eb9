"""The page that a browser is shown when a sign-in through the provider did not work: no scripts, nothing external."""

from __future__ import annotations

from html import escape
from typing import Final

from fastapi.responses import HTMLResponse

from muster.core.errors import MusterError
from muster.server.answers import STATUS

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"
_STYLE: Final = (
    ":root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:32rem;margin:12vh auto;"
    "padding:0 1rem}"
)


def refusal_page(error: MusterError) -> HTMLResponse:
    page = (
        f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>Sign in · Muster</title><style>{_STYLE}</style><main><h1>You are not signed in</h1>"
        f"<p>{escape(error.message)}</p><p>{escape(error.hint)}</p><p><a href='/sign-in'>To the sign-in page</a></p>"
        "</main></html>"
    )
    return HTMLResponse(page, STATUS.get(type(error), 400), {"Content-Security-Policy": _POLICY})
