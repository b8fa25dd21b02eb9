"""The sections of a job file for managed services: Muster renders requests for them and does not run them."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, Field

from muster.core.notation import Notation
from muster.core.spec_engines import Word
from muster.core.spec_types import CANONICAL, Bytes

_WORD: Final = "one word"


class _Canonical(BaseModel):
    model_config = CANONICAL


class SageMakerSection(_Canonical):
    """What a SageMaker training job needs; for `muster render`."""

    role: Annotated[
        Word | None,
        Field(description="ARN of the role that it runs as."),
        Notation("text", _WORD, "arn:aws:iam::111122223333:role/train"),
    ] = None
    instance_type: Annotated[
        Word | None,
        Field(description="Instance type. From the accelerators unless given."),
        Notation("text", _WORD, "ml.p5.48xlarge"),
    ] = None
    region: Annotated[Word | None, Field(description="Region."), Notation("text", _WORD, "eu-west-1")] = None
    output: Annotated[
        Word | None, Field(description="Where its output goes."), Notation("text", _WORD, "s3://bucket/out")
    ] = None
    input: Annotated[
        Word | None, Field(description="Where its input comes from."), Notation("text", _WORD, "s3://bucket/data")
    ] = None
    volume_size: Annotated[
        Bytes | None,
        Field(description="Disk of each instance."),
        Notation("size", "a size with its unit, such as `500GB`", "500GB"),
    ] = None
    subnets: Annotated[
        tuple[Word, ...],
        Field(description="Subnets of its network."),
        Notation("list", "a list of ids", "[subnet-0a1b2c3d]", item="a subnet's id"),
    ] = ()
    security_groups: Annotated[
        tuple[Word, ...],
        Field(description="Security groups of its network."),
        Notation("list", "a list of ids", "[sg-0a1b2c3d]", item="a security group's id"),
    ] = ()


class VertexSection(_Canonical):
    """What a Vertex AI custom job needs; for `muster render`."""

    project: Annotated[
        Word | None, Field(description="Google Cloud project."), Notation("text", _WORD, "my-project")
    ] = None
    location: Annotated[Word | None, Field(description="Location."), Notation("text", _WORD, "europe-west4")] = None
    machine_type: Annotated[
        Word | None,
        Field(description="Machine type. From the accelerators unless given."),
        Notation("text", _WORD, "a3-highgpu-8g"),
    ] = None
    accelerator_type: Annotated[
        Word | None,
        Field(description="Accelerator type. From the accelerators unless given."),
        Notation("text", _WORD, "NVIDIA_H100_80GB"),
    ] = None
    staging_bucket: Annotated[
        Word | None, Field(description="Where its output goes."), Notation("text", _WORD, "gs://bucket/staging")
    ] = None
    service_account: Annotated[
        Word | None,
        Field(description="Service account that it runs as."),
        Notation("text", _WORD, "trainer@my-project.iam.gserviceaccount.com"),
    ] = None
    network: Annotated[
        Word | None,
        Field(description="Network that it is in."),
        Notation("text", _WORD, "projects/12345/global/networks/default"),
    ] = None


class AzureMLSection(_Canonical):
    """What an Azure ML command job needs; for `muster render`."""

    subscription: Annotated[
        Word | None, Field(description="Subscription."), Notation("text", _WORD, "00000000-0000-0000-0000-000000000000")
    ] = None
    resource_group: Annotated[Word | None, Field(description="Resource group."), Notation("text", _WORD, "ml")] = None
    workspace: Annotated[Word | None, Field(description="Workspace."), Notation("text", _WORD, "research")] = None
    compute: Annotated[Word | None, Field(description="Compute target."), Notation("text", _WORD, "gpu-cluster")] = None
    environment: Annotated[
        Word | None,
        Field(description="Environment. Made from `image` unless given."),
        Notation("text", _WORD, "azureml:training:3"),
    ] = None
    experiment: Annotated[
        Word | None, Field(description="Experiment. The project unless given."), Notation("text", _WORD, "ablations")
    ] = None
