"""The page of the HTTP API: every route with who may use it, what it answers and what it does."""

from __future__ import annotations

import re
from typing import Final

from fastapi.routing import APIRoute

from generator.markdown import code, first_sentence, generated, table
from muster.server.app import ROUTERS
from muster.server.typed_routes import routes_of

ABOUT: Final = """\
[The API](api.md) has the conventions: answers, errors, roles, pages and streams. A running server shows all of this
with parameters and fields at `/docs`, and for programs at `/openapi.json`.

"""
_MODULE: Final = re.compile(r"[\w.]+\.")


def rest_page() -> str:
    groups: dict[str, list[tuple[str, ...]]] = {}
    for route in routes_of(ROUTERS):
        role = (route.openapi_extra or {}).get("x-role", "")
        for method in sorted(route.methods):
            tag = str(route.tags[0]) if route.tags else "the server"
            row = (
                f"`{method} {route.path}`",
                first_sentence(route.endpoint.__doc__) or route.name.replace("_", " "),
                role,
                _answer(route),
            )
            groups.setdefault(tag, []).append(row)
    head = ("route", "what it does", "for", "answer")
    sections = (
        f"## {tag[0].upper()}{tag[1:]}\n\n{table(head, sorted(rows))}\n" for tag, rows in sorted(groups.items())
    )
    return (generated("The HTTP API", "the routes in src/muster/server") + ABOUT + "".join(sections)).rstrip() + "\n"


def _answer(route: APIRoute) -> str:
    said = route.endpoint.__annotations__.get("return", "")
    words = said if isinstance(said, str) else getattr(said, "__name__", str(said))
    return code(_MODULE.sub("", words))
