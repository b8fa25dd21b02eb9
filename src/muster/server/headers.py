"""Adds headers to answers."""

from __future__ import annotations

from starlette.types import Message, Send


def adding(send: Send, given: dict[bytes, bytes]) -> Send:
    """Adds these headers to an answer, unless it has one of the same name."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            names = {name.lower() for name, _ in headers}
            message["headers"] = [*headers, *(one for one in given.items() if one[0] not in names)]
        await send(message)

    return sent
