"""A job that a program built reaches the server as the job it is, whatever form its fields have in a file."""

from __future__ import annotations

import json

import pytest

from muster.client.spec import batch_item, submission
from muster.core.parse import parse_job
from muster.core.spec import Checkpoint, JobSpec, Topology, WorkerResources
from muster.core.spec_engines import KubernetesSection, SlurmSection
from muster.core.spec_managed import SageMakerSection

GPUS = {"accelerator": "H100", "accelerators": 1}
SPECS = [
    JobSpec(name="a", run="x"),
    JobSpec(name="a", run="x", num_nodes=8, min_nodes=2),
    JobSpec(name="a", run="x", num_nodes=1, min_nodes=1),
    JobSpec(name="a", run="x", resources=WorkerResources(**GPUS, share=125, accelerator_memory=80 * 10**9)),
    JobSpec(name="a", run="x", resources=WorkerResources(accelerator="GPU", accelerators=4, memory=64 * 2**30)),
    JobSpec(name="a", run="x", topology=Topology(require="rack"), group="g", near=("c4@v1",), deadline=7200.5),
    JobSpec(name="a", run="x", off_peak=True, checkpoint=Checkpoint(every="auto"), max_duration=60),
    JobSpec(name="a", run="x", image="train:1", slurm=SlurmSection(qos="high", extra=("--hint=nomultithread",))),
    JobSpec(name="a", run="x", kubernetes=KubernetesSection(shared_memory=2**34, pod={"hostNetwork": True, "n": 1})),
    JobSpec(name="a", run="x", log_limit=256_000_000, stop_grace=0.5, priority=20, envs={"A": "null", "B": "1.10"}),
    JobSpec(name="a", run="x", sagemaker=SageMakerSection(volume_size=10**11)),
]


@pytest.mark.parametrize("spec", SPECS)
def test_a_model_becomes_a_job_file_that_says_the_same(spec: JobSpec) -> None:
    sent = json.loads(json.dumps(submission(spec, {}, None)["spec"]))
    assert parse_job(sent) == spec
    assert parse_job(batch_item(spec, "key")["spec"]) == spec


@pytest.mark.parametrize("overrides", [{}, {"num_nodes": 2}])
def test_what_is_passed_on_has_its_types_with_overrides_too(overrides: dict[str, int]) -> None:
    free = '{pip: [a], config: {wait: 5, keep: "5", on: true}}'
    text = f"run: x\nenvs: {{LR: 3e-4}}\nray: {{driver: yes, runtime_env: {free}}}\n"
    body = submission(text, overrides, None)
    spec = parse_job(body["spec"] if overrides else body["yaml"])
    assert spec.ray is not None
    assert spec.ray.runtime_env == {"pip": ["a"], "config": {"wait": 5, "keep": "5", "on": True}}
    assert (spec.ray.driver, spec.envs["LR"]) == (True, "3e-4")
    (item,) = [batch_item(text, "key")]
    assert parse_job(item["spec"]).ray == spec.ray
