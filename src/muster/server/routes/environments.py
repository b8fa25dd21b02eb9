"""Environments compared with known vulnerabilities: a list of packages, and what a run captured."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from muster.api.runs import EnvironmentCheck
from muster.core.advisories import captured_packages
from muster.server.context import HEAVY, Caller, Leading, Tracked
from muster.server.record_context import RunRef, find_run
from muster.server.typed_routes import needs, typed_router
from muster.server.vulnerable import check_packages

router = typed_router(prefix="/v1", tags=["environments"])

Package = Annotated[str, Field(min_length=1, max_length=200)]


class PackagesBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    packages: dict[Package, Annotated[list[Package], Field(max_length=100)]] = Field(
        max_length=20_000, description="package → its versions"
    )


@router.post("/environments/check", dependencies=HEAVY, openapi_extra=needs("anyone"))
def check_environment(body: PackagesBody, leader: Leading, caller: Caller) -> EnvironmentCheck:
    """Compares packages, such as those of a lock file, with the advisories of this server. Nothing is kept."""
    return check_packages(leader, body.packages)


@router.get("/runs/{ref}/environment/check", dependencies=HEAVY, openapi_extra=needs("viewer"))
def check_run(ref: RunRef, leader: Leading, track: Tracked, caller: Caller) -> EnvironmentCheck:
    """Compares the packages that a run captured with the advisories of this server, as they are now."""
    return check_packages(leader, captured_packages(find_run(leader, track, caller, ref).doc))
