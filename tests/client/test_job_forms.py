"""A job that a program built reaches the server as the job it is, whatever form its fields have in a file."""

from __future__ import annotations

import pytest

from muster.client.spec import batch_item, submission
from muster.core.parse import parse_job
from muster.core.spec import Checkpoint, JobSpec, Topology, WorkerResources

GPUS = {"accelerator": "H100", "accelerators": 1}
SPECS = [
    JobSpec(name="a", run="x"),
    JobSpec(name="a", run="x", num_nodes=8, min_nodes=2),
    JobSpec(name="a", run="x", num_nodes=1, min_nodes=1),
    JobSpec(name="a", run="x", resources=WorkerResources(**GPUS, share=125, accelerator_memory=80 * 10**9)),
    JobSpec(name="a", run="x", resources=WorkerResources(accelerator="GPU", accelerators=4, memory=64 * 2**30)),
    JobSpec(name="a", run="x", topology=Topology(require="rack"), group="g", near=("c4@v1",), deadline=7200.5),
    JobSpec(name="a", run="x", off_peak=True, checkpoint=Checkpoint(every="auto"), max_duration=60),
]


@pytest.mark.parametrize("spec", SPECS)
def test_a_model_becomes_a_job_file_that_says_the_same(spec: JobSpec) -> None:
    assert parse_job(submission(spec, {}, None)["spec"]) == spec
    assert parse_job(batch_item(spec, "key")["spec"]) == spec
