"""Jobs to render for managed services, and what their requests are held against."""

import json
import re
from functools import cache
from pathlib import Path

import botocore.loaders
import botocore.model
import botocore.validate
import jsonschema_rs

from muster.core.parse import parse_job
from muster.engines.rendering import render_job

SECTIONS = {
    "sagemaker": {"role": "arn:aws:iam::111122223333:role/train", "output": "s3://bucket/out"},
    "vertex": {"project": "my-project", "location": "europe-west4", "staging_bucket": "gs://bucket/staging"},
    "azureml": {"subscription": "00000000-0000-0000-0000-000000000000", "resource_group": "ml", "workspace": "lab"},
}
SERVICES = tuple(SECTIONS)
# What shells, JSON, Kubernetes-like expansion and Azure's own references would each like to change.
HARD = (
    "printf '%s|' \"it's\" 'a  b' \"$LR\" $(echo sub) '$(MASTER_ADDR)' '$$(X)' '${{inputs.x}}'\n"
    "printf '%s|' 'täst ☃ \\n \\\\' `echo tick`\n"
    "cat <<'EOF'\n\ttab and \"quotes\" and trailing blank \nEOF\n"
)


def job(**fields):
    """A job with a section for every service."""
    sections = {name: {**SECTIONS[name], **fields.pop(name, {})} for name in SERVICES}
    written = {"name": "gpt-small", "run": "python train.py", "image": "registry.example/team/train:3", **fields}
    return parse_job({**written, **sections})


def rendered(service, **fields):
    return render_job(job(**fields), service)


def body(service, **fields):
    return rendered(service, **fields).documents[-1]


@cache
def sagemaker_shape():
    raw = botocore.loaders.Loader().load_service_model("sagemaker", "service-2", "2017-07-24")
    return botocore.model.ServiceModel(raw, "sagemaker").operation_model("CreateTrainingJob").input_shape


@cache
def schema(name):
    return jsonschema_rs.validator_for(json.loads((Path(__file__).parent / "schemas" / name).read_text()))


def problems(service, document):
    """What the service's published reference has against a request."""
    if service == "sagemaker":
        told = botocore.validate.ParamValidator().validate(document, sagemaker_shape())
        return [told.generate_report()] if told.has_errors() else list(beyond(document, sagemaker_shape(), "body"))
    name = "vertex_custom_job.json" if service == "vertex" else "azureml_job.json"
    return [f"{error.instance_path}: {error.message}" for error in schema(name).iter_errors(document)]


def beyond(value, shape, where):
    """What the service checks and botocore leaves to it: patterns, enums and upper bounds."""
    facts = shape.metadata
    size = len(value) if isinstance(value, str | list | dict) else value
    if "max" in facts and size > facts["max"]:
        yield f"{where}: {size} is over {facts['max']}"
    if facts.get("enum") and value not in facts["enum"]:
        yield f"{where}: {value!r} is none of the enum"
    if isinstance(value, str) and "pattern" in facts and not re.fullmatch(_python(facts["pattern"]), value):
        yield f"{where}: {value!r} does not match {facts['pattern']}"
    if shape.type_name == "structure":
        for name, inner in value.items():
            yield from beyond(inner, shape.members[name], f"{where}.{name}")
    elif shape.type_name == "list":
        for number, inner in enumerate(value):
            yield from beyond(inner, shape.member, f"{where}[{number}]")
    elif shape.type_name == "map":
        for name, inner in value.items():
            yield from beyond(name, shape.key, f"{where} key")
            yield from beyond(inner, shape.value, f"{where}.{name}")


def _python(pattern):
    r"""Java's `\p{L}\p{N}` and `\p{Z}` in a class, as Python writes them."""
    return pattern.replace(r"\p{L}\p{Z}\p{N}_", r"\w \u00a0").replace(r"\p{Alnum}", "a-zA-Z0-9")
