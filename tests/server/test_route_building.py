"""A route is built when it is first needed, and is then like any other."""

from __future__ import annotations

import pytest
from starlette.routing import Match

from muster.api.worker import SecretValues
from muster.server.typed_routes import TypedRoute, needs


async def _answer(name: str) -> SecretValues:
    return {"name": name}


def _route() -> TypedRoute:
    return TypedRoute("/things/{name}", _answer, methods=["GET"], openapi_extra=needs("viewer"))


def _scope(method: str, path: str) -> dict[str, object]:
    return {"type": "http", "method": method, "path": path, "root_path": ""}


def test_a_request_for_another_path_builds_nothing() -> None:
    route = _route()
    assert route.matches(_scope("GET", "/others/a"))[0] is Match.NONE
    assert "dependant" not in route.__dict__
    assert (route.role, route.methods, route.path_format) == ("viewer", {"GET"}, "/things/{name}")
    match, scope = route.matches(_scope("GET", "/things/a"))
    assert (match, scope["path_params"]) == (Match.FULL, {"name": "a"})
    assert "dependant" in route.__dict__
    assert (route.shape, route.methods) == (SecretValues, {"GET"})


def test_what_a_built_route_does_not_have_is_an_error() -> None:
    route = _route()
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = route.no_such_thing
    assert [one.name for one in route.dependant.path_params] == ["name"]


def test_a_route_says_who_may_use_it_when_it_is_declared() -> None:
    with pytest.raises(TypeError, match="must say who may use it"):
        TypedRoute("/things", _answer, methods=["GET"])
