"""Routes that declare the shape of their answer and who may use them; both are in the OpenAPI document.

The return annotation of a route is its shape, a class of `muster.api`. Answers are not checked against it while the
server runs: the type checker does that, and the tests. An answer is encoded once, in the route's own thread, and by the
one rule for numbers (`muster.api.numbers`).
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cache, wraps
from typing import Any, Final, Generic, TypeVar, cast, get_args, get_origin

from fastapi import APIRouter, FastAPI, Response
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode
from pydantic_core import to_json
from starlette.routing import compile_path

from muster.api.errors import ErrorAnswer
from muster.api.words import Need

Shape = TypeVar("Shape")
ERRORS: Final = (400, 401, 403, 404, 405, 409, 413, 421, 422, 429, 500, 503)
_ERROR: Final = "what went wrong, and what to do"
_ROLE: Final = "x-role"
_SERIALIZED: Final[JsonSchemaMode] = "serialization"


def needs(role: Need) -> dict[str, Any]:
    """For `openapi_extra` of a route: who may use it. A test tries every route with every role."""
    return {_ROLE: role}


class JsonAnswer(Response, Generic[Shape]):
    """For a route that has its answer as JSON already."""

    media_type = "application/json"


class TypedRoute(APIRoute):
    """A route with a shape, unless it sends no JSON, and with a role.

    It is built when a request first matches it, or when it is described: to build all of them is a fifth of a server's
    start.
    """

    shape: Any

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        role: Need | None = (options.get("openapi_extra") or {}).get(_ROLE)
        if role is None:
            raise TypeError(f"The route {path} must say who may use it: openapi_extra=needs(...).")
        self.role = role
        self.path, self.methods = path, set(options["methods"])
        self.path_regex, self.path_format, self.param_convertors = compile_path(path)
        self._declared = endpoint, options

    def __getattr__(self, name: str) -> Any:
        """Called for what a route has only when it is built."""
        if "_declared" not in self.__dict__:
            raise AttributeError(name)
        self.build()
        return getattr(self, name)

    def build(self) -> None:
        if "_declared" in self.__dict__:
            endpoint, options = self._declared
            returned = inspect.get_annotations(endpoint, eval_str=True)["return"]
            if not _is_response(returned):
                endpoint = _encoding(endpoint, options.get("status_code") or 200)
            super().__init__(self.path, endpoint, **{**options, "response_model": None})
            self.shape = _shape_of(returned)
            del self._declared


def typed_router(**options: Any) -> APIRouter:
    errors: dict[int | str, dict[str, Any]] = {status: {"description": _ERROR} for status in ERRORS}
    return APIRouter(route_class=TypedRoute, responses=errors, **options)


def routes_of(routers: Iterable[APIRouter]) -> list[TypedRoute]:
    return [route for router in routers for route in router.routes if isinstance(route, TypedRoute)]


def describe(app: FastAPI, routes: Iterable[TypedRoute]) -> dict[str, Any]:
    """The OpenAPI document with the shape of every answer. Nothing of it is made before somebody asks for it."""
    typed = [route for route in routes if route.shape is not None]
    api = get_openapi(title=app.title, version=app.version, routes=app.routes)
    inputs: list[tuple[Any, JsonSchemaMode, TypeAdapter[Any]]] = []
    for index, shape in enumerate([ErrorAnswer, *(route.shape for route in typed)]):
        inputs.append((index, _SERIALIZED, adapter_of(shape)))
    schemas, found = TypeAdapter.json_schemas(inputs, ref_template="#/components/schemas/{model}")
    api["components"]["schemas"] |= found.get("$defs", {})
    for index, route in enumerate(typed, 1):
        for method in route.methods or ():
            answers = api["paths"][route.path_format][method.lower()]["responses"]
            success = answers[str(route.status_code or 200)]
            success["content"] = {"application/json": {"schema": schemas[(index, _SERIALIZED)]}}
    error = {"application/json": {"schema": schemas[(0, _SERIALIZED)]}}
    for operation in (one for path in api["paths"].values() for one in path.values()):
        for status, answer in operation["responses"].items():
            if int(status) >= 400 and "content" not in answer:
                answer["content"] = error
    return api


@cache
def adapter_of(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)


def _shape_of(returned: Any) -> Any:
    """The shape of an answer; None for an answer that is not JSON."""
    if get_origin(returned) is JsonAnswer:
        return get_args(returned)[0]
    return None if _is_response(returned) else returned


def _is_response(returned: Any) -> bool:
    kind = get_origin(returned) or returned
    return isinstance(kind, type) and issubclass(kind, Response)


def _encoding(endpoint: Callable[..., Any], status: int) -> Callable[..., Any]:
    """The endpoint with its answer as a response. FastAPI would check and copy the answer in another thread first."""

    def answer(body: object, given: Mapping[str, Any]) -> Response:
        set_by_route = given["response"].status_code if "response" in given else None
        content = to_json(body, inf_nan_mode="strings")
        return Response(content, set_by_route or status, media_type="application/json")

    if inspect.iscoroutinefunction(endpoint):
        waited = cast(Callable[..., Awaitable[object]], endpoint)

        @wraps(endpoint)
        async def later(**given: Any) -> Response:
            return answer(await waited(**given), given)

        return later

    @wraps(endpoint)
    def at_once(**given: Any) -> Response:
        return answer(endpoint(**given), given)

    return at_once
