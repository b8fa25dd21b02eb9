"""Job files for editors: their JSON Schema, and changes of fields in their text."""

from __future__ import annotations

from typing import Any, cast

from pydantic import BaseModel, ConfigDict, Field

from muster.api.jobs import JobFileView, JobSchemaView
from muster.core.job_text import change_fields, fields_of
from muster.core.schema import muster_schema
from muster.server.context import Caller
from muster.server.typed_routes import needs, typed_router

router = typed_router(prefix="/v1", tags=["jobs"])


class JobFileBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    yaml: str = Field(description="the text of a job file", max_length=1 << 20)
    set: dict[str, Any] = Field(
        {},
        max_length=100,
        description="fields to change, such as `resources.cpus`, as written; null removes one",
    )


@router.get("/schema/job", openapi_extra=needs("anyone"))
def job_schema(caller: Caller) -> JobSchemaView:
    """The JSON Schema of a job file, as `muster schema` prints it."""
    return cast(JobSchemaView, muster_schema())


@router.post("/schema/job", openapi_extra=needs("anyone"))
def job_file(body: JobFileBody, caller: Caller) -> JobFileView:
    """Changes fields in the text of a job file, and gives its fields as they are written. Nothing is submitted.

    Comments and the layout of other lines stay where that is possible.
    """
    text = change_fields(body.yaml, body.set, "The job file")
    return {"yaml": text, "fields": fields_of(text, "The job file")}
