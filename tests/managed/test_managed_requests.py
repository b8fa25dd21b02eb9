"""Requests for managed services: valid by the published references, and true to the job."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from managed_kit import HARD, SECTIONS, SERVICES, body, job, problems, rendered, sagemaker_shape

from muster.cli.main import main
from muster.core.errors import SpecError
from muster.core.spec import dump_job
from muster.engines.managed import sagemaker, vertex

TEXT = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=80)
FULL = {
    "num_nodes": 4,
    "resources": {"accelerators": "H100:8", "memory": "500GB"},
    "envs": {"LR": "3e-4", "LONG": "x" * 3000, "DOLLAR": "$(LR) ${{inputs.x}}", "EMPTY": ""},
    "secrets": ["HF_TOKEN"],
    "use_spot": "true",
    "max_duration": "90m",
    "checkpoint": {"every": "15m", "keep": "5"},
    "tags": {"Team/A": "Größe, 1", "task": "pretrain"},
    "purpose": "why",
    "run": HARD,
    "sagemaker": {
        "region": "eu-west-1",
        "input": "s3://bucket/data",
        "volume_size": "500GB",
        "subnets": ["subnet-0a1b"],
        "security_groups": ["sg-0a1b"],
    },
    "vertex": {"service_account": "t@p.iam.gserviceaccount.com", "network": "projects/12345/global/networks/lab"},
    "azureml": {"experiment": "ablations"},
}


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize(
    "fields", [{}, FULL, {"resources": {"accelerators": "A100-80GB:8"}}], ids=["least", "full", "a100"]
)
def test_a_request_is_what_the_published_reference_allows(service, fields):
    told = rendered(service, **fields)
    for document in told.documents:
        assert problems(service, document) == []
        assert json.loads(json.dumps(document)) == document
    assert told.run is False


@pytest.mark.parametrize(
    ("service", "change"),
    [
        ("sagemaker", lambda it: it.update(RoleArn="role")),
        ("sagemaker", lambda it: it["ResourceConfig"].update(InstanceType="ml.p9.large")),
        ("sagemaker", lambda it: it["Environment"].update(LONG="x" * 513)),
        ("sagemaker", lambda it: it["AlgorithmSpecification"]["ContainerArguments"].append("two\nlines")),
        ("sagemaker", lambda it: it["ResourceConfig"].update(InstanceCount="2")),
        ("vertex", lambda it: it["labels"].update(Upper="x")),
        ("vertex", lambda it: it["jobSpec"]["scheduling"].update(strategy="CHEAP")),
        ("vertex", lambda it: it["jobSpec"].pop("workerPoolSpecs")),
        ("azureml", lambda it: it["properties"].pop("environmentId")),
        ("azureml", lambda it: it["properties"].update(code="x")),
    ],
)
def test_the_checks_see_what_is_wrong(service, change):
    document = json.loads(json.dumps(body(service)))
    assert problems(service, document) == []
    change(document)
    assert problems(service, document)


@settings(max_examples=60, deadline=None)
@given(
    run=TEXT.filter(str.strip),
    envs=st.dictionaries(st.from_regex(r"A_[A-Z0-9_]{0,20}", fullmatch=True), TEXT, max_size=5),
    tags=st.dictionaries(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,99}", fullmatch=True), TEXT, max_size=5),
    service=st.sampled_from(SERVICES),
)
def test_whatever_the_text_is_the_request_is_valid(run, envs, tags, service):
    for document in rendered(service, run=run, envs=envs, tags=tags).documents:
        assert problems(service, document) == []


@pytest.mark.parametrize("service", SERVICES)
def test_a_secret_is_listed_and_never_a_value(service):
    told = rendered(service, secrets=["HF_TOKEN"])
    assert any("HF_TOKEN" in line and "Secret" in line for line in told.lost)
    assert "HF_TOKEN" not in json.dumps(list(told.documents))


@pytest.mark.parametrize("service", SERVICES)
def test_what_can_t_be_carried_is_listed(service):
    fields = {
        "num_nodes": {"min": 2, "max": 4},
        "placement": "spread",
        "topology": "rack",
        "priority": "high",
        "data": ["c4@v3"],
        "workdir": "code",
        "checkpoint": "auto",
    }
    lost = "\n".join(rendered(service, **fields).lost)
    for word in ("shrink", "placement", "topology", "priority", "c4@v3", "code", "auto"):
        assert word in lost
    assert rendered(service).lost == []


def test_nodes_spot_and_limits_in_each_service_s_own_words():
    fields = {"num_nodes": 4, "resources": {"accelerators": "H100:8"}, "use_spot": "true", "max_duration": "90m"}
    amazon = body("sagemaker", **fields)
    assert amazon["ResourceConfig"] == {"InstanceType": "ml.p5.48xlarge", "InstanceCount": 4, "VolumeSizeInGB": 30}
    assert amazon["EnableManagedSpotTraining"] is True
    assert amazon["StoppingCondition"] == {"MaxRuntimeInSeconds": 5400, "MaxWaitTimeInSeconds": 5400 + 86_400}
    google = body("vertex", **fields)["jobSpec"]
    assert [pool["replicaCount"] for pool in google["workerPoolSpecs"]] == ["1", "3"]
    assert google["workerPoolSpecs"][1]["machineSpec"] == {
        "machineType": "a3-highgpu-8g",
        "acceleratorType": "NVIDIA_H100_80GB",
        "acceleratorCount": 8,
    }
    assert google["scheduling"] == {"strategy": "SPOT", "timeout": "5400s", "restartJobOnWorkerRestart": True}
    azure = body("azureml", **fields)["properties"]
    assert azure["resources"] == {"instanceCount": 4, "instanceType": "Standard_ND96isr_H100_v5"}
    assert azure["queueSettings"] == {"jobTier": "Spot"}
    assert azure["distribution"] == {"distributionType": "PyTorch", "processCountPerInstance": 8}
    assert azure["limits"] == {"jobLimitsType": "Command", "timeout": "PT5400S"}


def test_sagemaker_waits_no_longer_than_a_deadline_and_no_longer_than_it_may():
    spot = {"use_spot": "true", "max_duration": "1h"}
    assert body("sagemaker", **spot, deadline="2h")["StoppingCondition"]["MaxWaitTimeInSeconds"] == 7200
    assert body("sagemaker", **spot, deadline="1m")["StoppingCondition"]["MaxWaitTimeInSeconds"] == 3600
    long = rendered("sagemaker", max_duration="60d")
    assert long.documents[0]["StoppingCondition"] == {"MaxRuntimeInSeconds": 28 * 86_400}
    assert any("max_duration" in line for line in long.lost)


@pytest.mark.parametrize("service", SERVICES)
def test_everything_that_is_missing_is_told_at_once(service):
    nothing = dict.fromkeys(SECTIONS[service])
    with pytest.raises(SpecError) as told:
        rendered(service, image=None, **{service: nothing})
    assert [problem.where for problem in told.value.problems] == [*(f"{service}.{name}" for name in nothing), "image"]


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize(
    ("resources", "words"),
    [({"accelerators": "TPUV9:4"}, "H100"), ({"accelerators": "H100:64"}, "more nodes"), ({"cpus": "5000"}, "CPUs")],
)
def test_hardware_that_no_machine_type_has_is_a_clear_error(service, resources, words):
    with pytest.raises(SpecError) as told:
        rendered(service, resources=resources)
    assert words in str(told.value)


@pytest.mark.parametrize(
    ("service", "resources", "machine"),
    [
        ("sagemaker", {"accelerators": "T4:1"}, "ml.g4dn.xlarge"),
        ("sagemaker", {"accelerators": "A100:8"}, "ml.p4d.24xlarge"),
        ("sagemaker", {"accelerators": "A100-80GB:8"}, "ml.p4de.24xlarge"),
        ("sagemaker", {"accelerators": "A100:8", "accelerator_memory": "60GB"}, "ml.p4de.24xlarge"),
        ("sagemaker", {"accelerators": "1"}, "ml.g4dn.xlarge"),
        ("sagemaker", {"cpus": "20"}, "ml.m7i.8xlarge"),
        ("sagemaker", {"cpus": "4", "memory": "30GB"}, "ml.r7i.xlarge"),
        ("vertex", {"accelerators": "H100:2"}, "a3-highgpu-2g"),
        ("vertex", {"accelerators": "L4:1", "cpus": "10"}, "g2-standard-12"),
        ("vertex", {"accelerators": "T4:2"}, "n1-standard-8"),
        ("azureml", {"accelerators": "A100:1"}, "Standard_NC24ads_A100_v4"),
        ("azureml", {"accelerators": "H100:8"}, "Standard_ND96isr_H100_v5"),
    ],
)
def test_the_smallest_machine_that_holds_a_worker_is_chosen(service, resources, machine):
    assert machine in json.dumps(body(service, resources=resources))


def test_every_machine_type_is_one_that_the_service_knows():
    known = sagemaker_shape().members["ResourceConfig"].members["InstanceType"].enum
    assert {machine.name for machine in sagemaker.MACHINES} <= set(known)
    for machine in vertex.MACHINES:
        spec = {"machineType": machine.name, "acceleratorType": machine.code, "acceleratorCount": machine.count}
        document = body("vertex")
        document["jobSpec"]["workerPoolSpecs"][0]["machineSpec"] = (
            spec if machine.code else {"machineType": machine.name}
        )
        assert problems("vertex", document) == []


def test_more_accelerators_than_asked_for_is_said():
    assert any("8 H100" in line and "asks for 2" in line for line in rendered(
        "sagemaker", resources={"accelerators": "H100:2"}).notes)  # fmt: skip
    assert any("asks for 0.5" in line for line in rendered("sagemaker", resources={"accelerators": "T4:0.5"}).notes)


def test_a_machine_type_of_the_job_s_own():
    assert body("sagemaker", sagemaker={"instance_type": "ml.p6e-gb200.36xlarge"})["ResourceConfig"]["InstanceType"]
    with pytest.raises(SpecError, match="2 CPUs"):
        rendered("sagemaker", resources={"cpus": "8"}, sagemaker={"instance_type": "ml.m7i.large"})
    mega = body("vertex", resources={"accelerators": "H100:8"}, vertex={"machine_type": "a3-megagpu-8g"})
    assert mega["jobSpec"]["workerPoolSpecs"][0]["machineSpec"]["acceleratorType"] == "NVIDIA_H100_MEGA_80GB"
    with pytest.raises(SpecError, match="accelerator_type"):
        rendered("vertex", resources={"accelerators": "GB200:4"}, vertex={"machine_type": "a4x-highgpu-4g"})


def test_bad_addresses_are_told():
    for section, words in (({"role": "train"}, "ARN"), ({"output": "/out"}, "S3"), ({"subnets": ["subnet-1"]}, "both")):
        with pytest.raises(SpecError, match=words):
            rendered("sagemaker", sagemaker=section)
    with pytest.raises(SpecError, match="Cloud Storage"):
        rendered("vertex", vertex={"staging_bucket": "s3://bucket"})
    with pytest.raises(SpecError, match="azureml:NAME:VERSION"):
        rendered("azureml", azureml={"environment": "training"})


def test_azure_uses_a_cluster_and_an_environment_of_the_workspace():
    told = rendered("azureml", image=None, use_spot="true", azureml={"compute": "gpu", "environment": "azureml:tr:3"})
    (document,) = told.documents
    assert problems("azureml", document) == []
    properties = document["properties"]
    assert properties["computeId"].endswith("/workspaces/lab/computes/gpu")
    assert properties["environmentId"].endswith("/workspaces/lab/environments/tr/versions/3")
    assert "queueSettings" not in properties
    assert any("use_spot" in line for line in told.lost)


def test_tags_are_made_legal_and_that_is_said():
    tags = {"Team/A": "Größe, 1", "aws-x": "y" * 300, "team_a": "second"}
    made = {tag["Key"]: tag["Value"] for tag in body("sagemaker", tags=tags)["Tags"]}
    assert made["Team/A"] == "Größe_ 1"
    assert len(made["aws-x"]) == 256
    told = rendered("vertex", tags=tags)
    assert told.documents[0]["labels"]["team_a"] == "größe__1"
    assert any("'team_a'" in line and "left out" in line for line in told.lost)
    many = {f"t{number}": "x" for number in range(80)}
    assert len(body("sagemaker", tags=many)["Tags"]) == 50
    assert sum("left out" in line for line in rendered("sagemaker", tags=many).lost) == 33


def test_a_command_too_long_for_the_service_is_refused_with_where():
    assert problems("sagemaker", body("sagemaker", run="echo " + "☃" * 31_000)) == []
    with pytest.raises(SpecError, match=re.escape("run, envs")):
        rendered("sagemaker", run="echo " + "☃" * 31_000, envs={"A": "☃" * 32_000})


@pytest.mark.parametrize("service", SERVICES)
def test_the_command_prints_the_request_and_says_that_it_was_not_run(service, tmp_path, capsys):
    file = tmp_path / "job.yaml"
    file.write_text(dump_job(job(num_nodes=2)))
    assert main(["render", str(file), "--engine", service, "-o", "json"]) == 0
    told = capsys.readouterr()
    document = json.loads(told.out)
    last = document[-1] if isinstance(document, list) else document
    assert problems(service, last) == []
    assert "not run" in told.err
    assert "Muster does not watch this job" in told.err
