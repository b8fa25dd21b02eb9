"""The FastAPI application: routes, middleware and error handlers."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from muster import __version__
from muster.api.errors import ErrorView, ProblemView
from muster.core.errors import Invalid, MusterError
from muster.server.answers import answer, error_answer
from muster.server.docs_page import POLICY, page
from muster.server.guard import Guard
from muster.server.mlflow.gate import Gate
from muster.server.prometheus.requests import MeterRequests
from muster.server.routes import (
    access,
    alerts,
    artifacts,
    blobs,
    capacity,
    cluster,
    compare,
    cost,
    cost_advice,
    cost_budgets,
    cost_export,
    cost_prices,
    data_sets,
    diagnosis,
    engines,
    environments,
    events,
    execs,
    external,
    failures,
    forecast,
    goodput,
    health,
    history,
    job_details,
    job_file,
    jobs,
    lineage,
    log_search,
    logbook,
    media,
    metrics,
    models,
    node_readings,
    oidc,
    optuna,
    policy,
    preflight,
    prometheus,
    promotion,
    provenance,
    queued,
    ranks,
    report,
    reproduction,
    reviews,
    rules,
    run_page,
    runs,
    saves,
    search,
    session,
    stacks,
    studies,
    study_trials,
    transfer,
    why,
    worker,
)
from muster.server.service import Service
from muster.server.sign_ins import WatchSignIns
from muster.server.typed_routes import describe, routes_of
from muster.server.web.site import PageRoute

log = logging.getLogger("muster.server")

ROUTERS: Final = tuple(
    module.router
    for module in (
        health,
        prometheus,
        jobs,
        why,
        job_details,
        log_search,
        job_file,
        execs,
        capacity,
        data_sets,
        saves,
        stacks,
        studies,
        study_trials,
        metrics,
        forecast,
        environments,
        events,
        node_readings,
        cluster,
        queued,
        engines,
        rules,
        policy,
        media,
        transfer,
        goodput,
        history,
        report,
        cost,
        cost_export,
        access,
        session,
        oidc,
        worker,
        external,
        blobs,
        artifacts,
        reproduction,
        logbook,
        lineage,
        models,
        promotion,
        reviews,
        provenance,
        optuna,
        search,
        failures,
        cost_prices,
        alerts,
        cost_budgets,
        ranks,
        compare,
        cost_advice,
        preflight,
        diagnosis,
        run_page,
        runs,
    )
)
DEPTH = 64  # maximum nesting of a request
_MOST_PROBLEMS = 100  # maximum problems listed for one request


def create_app(service: Service) -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.hub.attach(asyncio.get_running_loop())
        yield

    app = FastAPI(
        title="Muster",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.service = service
    # Routes are tried in this order: those that are asked most go first. Not by `include_router`, which builds every
    # route once more, when it is first asked for.
    app.mount("/mlflow", Gate())
    app.router.routes.extend(routes_of(sorted(ROUTERS, key=lambda router: router is not worker.router)))
    described: list[str] = []  # built on the first request

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = describe(app, routes_of(ROUTERS))
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        if not described:
            described.append(page(app.openapi()))
        return HTMLResponse(described[0], headers={"Content-Security-Policy": POLICY})

    # First: no route of the API is a page, and a page is several files that would each be compared with all routes.
    app.router.routes.insert(0, PageRoute())

    app.add_middleware(Guard, service=service)
    app.add_middleware(WatchSignIns)
    app.add_middleware(MeterRequests)
    app.add_exception_handler(MusterError, _muster_error)
    app.add_exception_handler(RequestValidationError, _bad_request)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(RecursionError, _too_deep)
    app.add_exception_handler(Exception, _our_bug)
    return app


async def _muster_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, MusterError)
    return error_answer(error)


async def _bad_request(request: Request, error: Exception) -> JSONResponse:
    """The request is malformed. The given values are left out of the answer: they may be secrets."""
    assert isinstance(error, RequestValidationError)
    problems: list[ProblemView] = [
        {
            "where": ".".join(str(part) for part in found["loc"]),
            "given": found["type"],
            "expected": found["msg"],
            "hint": "See /docs for what this route takes.",
        }
        for found in error.errors()[:_MOST_PROBLEMS]
    ]
    where = ", ".join(problem["where"] for problem in problems)
    body = Invalid(f"The request is not valid: {where}.", "Mend what `problems` names.").to_dict()
    body["problems"] = problems
    return answer(400, body)


async def _http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    codes = {404: "not_found", 405: "method_not_allowed", 413: "too_large"}
    code = codes.get(error.status_code, "invalid")
    body: ErrorView = {"code": code, "message": str(error.detail), "hint": "See /docs."}
    return answer(error.status_code, body, dict(error.headers or {}))


async def _gone(request: Request, error: Exception) -> JSONResponse:
    """The client disconnected in the middle. It gets no answer, and this is not an error of the server."""
    return answer(400, {"code": "invalid", "message": "The request was cut off.", "hint": "Send it again."})


async def _too_deep(request: Request, error: Exception) -> JSONResponse:
    log.warning("%s %s was nested too deeply", request.method, request.url.path)
    return error_answer(Invalid("The request is nested too deeply.", f"Send at most {DEPTH} levels."))


async def _our_bug(request: Request, error: Exception) -> JSONResponse:
    mark = uuid.uuid4().hex[:12]
    log.error("bug %s in %s %s", mark, request.method, request.url.path, exc_info=error)
    message = f"Something went wrong inside Muster (mark {mark})."
    return answer(500, {"code": "bug", "message": message, "hint": "The server's log has the details under that mark."})
