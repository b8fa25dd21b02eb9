"""Headers of every answer, so that a browser takes it for what it says it is and shows it in no other site's page."""

from __future__ import annotations

from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_EACH: Final = {
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"SAMEORIGIN",
    b"referrer-policy": b"same-origin",
}


class Headers:
    """Adds those that an answer has not."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        await self._app(scope, receive, adding(send, _EACH))


def adding(send: Send, given: dict[bytes, bytes]) -> Send:
    """Sends with these headers, where an answer has none of that name."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            names = {name.lower() for name, _ in headers}
            message["headers"] = [*headers, *(one for one in given.items() if one[0] not in names)]
        await send(message)

    return sent
