"""What the tests of rendering share: gangs, jobs, and the published schemas of what is rendered."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

from muster.core.parse import parse_job
from muster.core.resources import Resources
from muster.core.spec import JobSpec
from muster.engines.base import GangLaunch, Seat
from muster.engines.kubernetes.render_check import check, templates

KUBERNETES = "1.37"
TOKEN = "token-of-the-attempt"
RUN = 'python train.py --note "it\'s so" # $HOME `id` ünï'
# Objects that are not Kubernetes' own, by the schema in `schemas` that was made from their published definitions.
FOREIGN = {
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): "jobset",
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"): "trainjob",
    ("trainer.kubeflow.org/v1alpha1", "TrainingRuntime"): "trainingruntime",
    ("kubeflow.org/v1", "PyTorchJob"): "pytorchjob",
    ("scheduling.volcano.sh/v1beta1", "PodGroup"): "podgroup",
}
_SCHEMAS = {
    name: json.loads((Path(__file__).parent / "schemas" / f"{name}.json").read_text()) for name in FOREIGN.values()
}


def a_gang(nodes: int = 2, job: str = "gpt-small-7", **given: Any) -> GangLaunch:
    """One of two nodes with eight H100 each, unless something else is said."""
    said: dict[str, Any] = {
        "attempt": 3,
        "nproc": 8,
        "run": RUN,
        "workdir": "/home/ada/work",
        "envs": {"LR": "3e-4", "SECRET_LOOKING": "value-of-an-environment"},
        "secrets": ("HF_TOKEN",),
        "token": TOKEN,
        "checkpoint_keep": 3,
        "checkpoint_every": None,
        "max_duration": None,
        "memory": 64_000_000_000,
        "stop_grace": 30.0,
        "name": "gpt-small",
        "ask": Resources(16_000, 64_000_000_000, 8, "H100"),
    }
    return GangLaunch(job=job, seats=[Seat(f"h100/{i}") for i in range(nodes)], **{**said, **given})


def a_job(text: str = "", **fields: Any) -> JobSpec:
    raw = {"name": "gpt-small", "run": "python train.py", **(yaml.safe_load(text) or {}), **fields}
    return parse_job(raw, source="job.yaml", base=Path("/home/ada/work"))


def valid(document: Mapping[str, Any]) -> None:
    """Raises what is wrong with an object by its published schema, and with the pods in it by that of Kubernetes."""
    schema = FOREIGN.get((document["apiVersion"], document["kind"]))
    if schema is None:
        kubernetes_validate.validate(dict(document), KUBERNETES, strict=True)
    else:
        jsonschema.validate(document, _SCHEMAS[schema])
        for _, template in templates(document):
            pod = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "pod"}, "template": template}
            kubernetes_validate.validate(pod, KUBERNETES, strict=True)


def all_valid(documents: list[dict[str, Any]]) -> None:
    for document in documents:
        valid(document)
    assert check(documents) == []


def pod_of(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """The spec of the one pod template among them."""
    found = [template["spec"] for document in documents for _, template in templates(document)]
    assert len(found) == 1
    return dict(found[0])


def container_of(documents: list[dict[str, Any]]) -> dict[str, Any]:
    (container,) = pod_of(documents)["containers"]
    return dict(container)


def of_kind(documents: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = [document for document in documents if document["kind"] == kind]
    return found
