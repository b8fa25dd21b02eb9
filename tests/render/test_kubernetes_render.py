"""A gang as objects of Kubernetes: valid by the published schemas, nothing secret in the open, the same every time."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from render_kit import RUN, TOKEN, a_gang, all_valid, container_of, of_kind, pod_of

from muster.core.errors import Invalid
from muster.core.resources import Resources
from muster.engines.describe import Home, launch_of
from muster.engines.kubernetes.render import (
    NAME_MAX,
    gang_json,
    gang_labels,
    label_value,
    manifests,
    object_name,
    package_name,
)
from muster.engines.kubernetes.render_check import check, templates
from muster.engines.kubernetes.settings import FORMS, KubeSettings, PoolSettings, checkpoint_dir, worker_of
from muster.runtime import boot_kubernetes
from muster.runtime.boot_gang import GangFile

SETTINGS = KubeSettings(installation="0123456789", namespace="research")
LAST = {"job": "Job", "jobset": "JobSet", "trainjob": "TrainJob", "pytorchjob": "PyTorchJob"}
FULL = {
    "service_account": "trainer",
    "node_selector": {"disk": "nvme"},
    "tolerations": ["dedicated=ml:NoSchedule", "spot:NoExecute", "old"],
    "priority_class": "batch-high",
    "shared_memory": 16 << 30,
    "volumes": {"/data": "pvc:datasets", "/host": "hostPath:/mnt/nvme", "/tmp/x": "emptyDir", "/keys": "secret:keys"},
    "pull_secrets": ["registry"],
    "topology": "topology.kubernetes.io/zone",
    "labels": {"team": "nlp"},
    "annotations": {"example.com/note": "first"},
    "pod": {"securityContext": {"runAsUser": 1000, "fsGroup": 1000}},
}


def _rendered(
    settings: KubeSettings = SETTINGS, launch: str | None = '{"launch": {}}', **options: object
) -> list[dict]:
    return manifests(a_gang(options=options), settings, launch)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("queue", ["", "team-a"])
@pytest.mark.parametrize("scheduler", ["default-scheduler", "volcano", "kai-scheduler"])
@pytest.mark.parametrize("options", [{}, FULL], ids=["plain", "full"])
def test_every_form_is_valid_and_the_one_that_starts_it_comes_last(form, queue, scheduler, options) -> None:
    made = _rendered(form=form, queue=queue, scheduler=scheduler, **options)
    all_valid(made)
    assert made[-1]["kind"] == LAST[form]
    names = {document["metadata"]["name"] for document in made if document["kind"] != "Secret"}
    assert names == {object_name("0123456789", "gpt-small-7", 3)}
    assert {document["metadata"]["namespace"] for document in made} == {"research"}


@pytest.mark.parametrize("form", FORMS)
def test_everything_bears_whose_it_is(form) -> None:
    marks = gang_labels("0123456789", "gpt-small-7", 3)
    assert marks["muster.dev/installation"] == "0123456789"
    made = _rendered(form=form, labels={"team": "nlp", "muster.dev/job": "another-1"})
    found = [document["metadata"]["labels"] for document in made]
    found += [template["metadata"]["labels"] for document in made for _, template in templates(document)]
    for labels in found:
        assert marks.items() <= labels.items()
        assert labels["team"] == "nlp"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scheduler", ["default-scheduler", "volcano", "kai-scheduler"])
def test_what_is_the_users_or_secret_is_in_the_secret_alone(form, scheduler) -> None:
    gang = a_gang(options={"form": form, "scheduler": scheduler})
    home = Home(Path("/srv/muster"), "0123456789", lambda: ["https://muster.example.com"])
    text = gang_json(launch_of(gang, 0, "", home, checkpoint_dir(SETTINGS, gang.job)), SETTINGS.port)
    made = manifests(gang, SETTINGS, text)
    secret = of_kind(made, "Secret")
    held = json.loads(base64.b64decode(secret["data"]["gang.json"]))
    assert (held["launch"]["token"], held["launch"]["run"], held["port"]) == (TOKEN, RUN, SETTINGS.port)
    rest = json.dumps([document for document in made if document is not secret], ensure_ascii=False)
    for word in (TOKEN, base64.b64encode(TOKEN.encode()).decode(), "train.py", "value-of-an-environment", "HF_TOKEN"):
        assert word not in rest
    assert {"name": "gang", "secret": {"secretName": secret["metadata"]["name"], "defaultMode": 0o444}} in pod_of(made)[
        "volumes"
    ]


def test_without_a_launch_there_is_a_reference_and_no_secret() -> None:
    made = _rendered(launch=None)
    assert [document["kind"] for document in made] == ["Service", "Job"]
    assert pod_of(made)["volumes"][0]["secret"]["secretName"].startswith("muster-gang-")


def test_the_package_is_named_or_carried() -> None:
    assert pod_of(_rendered())["volumes"][1]["configMap"]["name"] == "muster-worker"
    made = manifests(a_gang(), SETTINGS, None, b"PK zip")
    carried = of_kind(made, "ConfigMap")
    assert made[0] is carried
    assert base64.b64decode(carried["binaryData"]["muster.pyz"]) == b"PK zip"
    assert carried["metadata"]["name"] == package_name(SETTINGS, b"PK zip") != package_name(SETTINGS, b"PK other")
    assert pod_of(made)["volumes"][1]["configMap"]["name"] == carried["metadata"]["name"]
    all_valid(made)


@pytest.mark.parametrize("form", FORMS)
def test_nothing_is_started_again_and_time_is_left_to_save(form) -> None:
    made = manifests(a_gang(stop_grace=44.5, options={"form": form}), SETTINGS, None)
    pod = pod_of(made)
    assert (pod["restartPolicy"], pod["terminationGracePeriodSeconds"]) == ("Never", 60)
    assert json.dumps(made).count('"backoffLimit": 0') == 1


@pytest.mark.parametrize(("form", "master"), [
    ("job", "{0}-0.{0}"), ("jobset", "{0}-node-0-0.{0}"), ("trainjob", "{0}-node-0-0.{0}"),
    ("pytorchjob", "{0}-worker-0"),
])  # fmt: skip
def test_a_pod_finds_its_place_as_the_launcher_reads_it(form, master, tmp_path) -> None:
    """What the manifest sets is what `boot` looks for."""
    gang = a_gang(options={"form": form})
    home = Home(tmp_path, "0123456789", lambda: ["https://muster.example.com"])
    text = gang_json(launch_of(gang, 0, "", home, "/muster/checkpoints/x"), 29400)
    made = manifests(gang, SETTINGS, text)
    (tmp_path / "gang.json").write_bytes(base64.b64decode(of_kind(made, "Secret")["data"]["gang.json"]))
    pod = {"metadata": _marks(form, 1), "spec": {"nodeName": "gke-1"}}
    environment = {one["name"]: _value(one, pod) for one in container_of(made)["env"]}
    place = boot_kubernetes.find(GangFile.read(tmp_path), environment)
    assert (place.worker, place.node, place.port) == (1, "gke-1", 29400)
    assert place.address == master.format(made[-1]["metadata"]["name"])
    assert worker_of(pod) == 1


def _marks(form: str, worker: int) -> dict:
    """What the controller of that form writes on a pod."""
    if form == "pytorchjob":
        return {"labels": {"training.kubeflow.org/replica-index": str(worker)}}
    index = {"batch.kubernetes.io/job-completion-index": str(worker)}
    return {"labels": index, "annotations": index}


def _value(variable: dict, pod: dict) -> str:
    if "value" in variable:
        return str(variable["value"])
    path = variable["valueFrom"]["fieldRef"]["fieldPath"]
    if path == "spec.nodeName":
        return str(pod["spec"]["nodeName"])
    found = re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path)
    assert found
    return str(pod["metadata"][found[1]][found[2]])


def test_pods_of_a_job_have_names_before_they_are_ready() -> None:
    made = _rendered(launch=None)
    service, job = made
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"].items() <= job["spec"]["template"]["metadata"]["labels"].items()
    assert pod_of(made)["subdomain"] == service["metadata"]["name"]


def test_accelerators_are_whole_and_their_own() -> None:
    wants = container_of(_rendered())["resources"]
    assert wants["requests"] == {"cpu": "16", "memory": "64000000000", "nvidia.com/gpu": "8"}
    assert wants["limits"] == {"memory": "64000000000", "nvidia.com/gpu": "8"}
    small = manifests(a_gang(1, ask=Resources(500), memory=None), SETTINGS, None)
    assert container_of(small)["resources"] == {"requests": {"cpu": "500m"}}
    assert "tolerations" not in pod_of(small)


def test_half_an_accelerator_is_refused_but_by_the_scheduler_that_shares_them() -> None:
    half = Resources(1000, 0, 1, "H100", share=500)
    with pytest.raises(Invalid, match="whole ones"):
        manifests(a_gang(1, ask=half), SETTINGS, None)
    made = manifests(a_gang(1, ask=half, options={"scheduler": "kai-scheduler", "queue": "nlp"}), SETTINGS, None)
    all_valid(made)
    (template,) = [template for document in made for _, template in templates(document)]
    assert template["metadata"]["annotations"]["gpu-fraction"] == "0.5"
    assert "nvidia.com/gpu" not in json.dumps(container_of(made)["resources"])


@pytest.mark.parametrize("form", FORMS)
def test_kueue_admits_what_names_its_queue(form) -> None:
    made = _rendered(form=form, queue="team-a", topology="topology.kubernetes.io/rack")
    last = made[-1]
    assert last["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
    assert (last["spec"]["runPolicy"] if form == "pytorchjob" else last["spec"])["suspend"] is True
    (template,) = [template for document in made for _, template in templates(document)]
    near = "kueue.x-k8s.io/podset-required-topology"
    assert template["metadata"]["annotations"][near] == "topology.kubernetes.io/rack"
    assert "podAffinity" not in template["spec"].get("affinity", {})
    alone = _rendered(form=form)
    assert "suspend" not in json.dumps(alone)
    assert "kueue" not in json.dumps(alone)


def test_without_kueue_the_gang_is_kept_together_by_affinity() -> None:
    made = _rendered(topology="topology.kubernetes.io/rack")
    (term,) = pod_of(made)["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["topologyKey"] == "topology.kubernetes.io/rack"
    assert term["labelSelector"]["matchLabels"] == gang_labels("0123456789", "gpt-small-7", 3)


def test_levels_of_a_jobs_topology_are_labels_of_the_clusters_nodes() -> None:
    settings = replace(SETTINGS, topology={"rack": "example.com/rack", "zone": "topology.kubernetes.io/zone"})
    both = manifests(a_gang(require="zone", prefer="rack"), settings, None)
    affinity = pod_of(both)["affinity"]["podAffinity"]
    (must,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
    (wish,) = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    assert must["topologyKey"] == "topology.kubernetes.io/zone"
    assert wish["podAffinityTerm"]["topologyKey"] == "example.com/rack"
    all_valid(both)
    queued = manifests(a_gang(prefer="rack", options={"queue": "team-a"}), settings, None)
    (template,) = [template for document in queued for _, template in templates(document)]
    assert template["metadata"]["annotations"]["kueue.x-k8s.io/podset-preferred-topology"] == "example.com/rack"
    assert "podAffinity" not in template["spec"].get("affinity", {})
    unknown = manifests(a_gang(require="aisle"), settings, None)
    assert "podAffinity" not in pod_of(unknown)["affinity"]


@pytest.mark.parametrize(
    ("priority", "given", "found"),
    [(50, {}, None), (74, {}, None), (75, {}, "soon"), (100, {}, "now"), (100, {"priority_class": "mine"}, "mine")],
)
def test_priorities_are_classes_of_the_cluster(priority: int, given: dict[str, str], found: str | None) -> None:
    settings = replace(SETTINGS, priority_classes={"high": "soon", "90": "now"})
    made = manifests(a_gang(priority=priority, options=given), settings, None)
    assert pod_of(made).get("priorityClassName") == found


def test_the_workers_of_a_gang_are_kept_apart_where_there_are_nodes_enough() -> None:
    (term,) = pod_of(_rendered())["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"


@pytest.mark.parametrize("form", FORMS)
def test_volcano_gets_a_group_of_the_whole_gang(form) -> None:
    made = _rendered(form=form, scheduler="volcano", queue="team-a", priority_class="high")
    group = of_kind(made, "PodGroup")
    assert group["spec"] == {"minMember": 2, "queue": "team-a", "priorityClassName": "high"}
    (template,) = [template for document in made for _, template in templates(document)]
    assert template["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == group["metadata"]["name"]
    assert template["spec"]["schedulerName"] == "volcano"
    assert "kueue" not in json.dumps(made)


def test_kai_groups_jobsets_so_gangs_become_some() -> None:
    made = _rendered(scheduler="kai-scheduler", queue="team-a")
    assert made[-1]["kind"] == "JobSet"
    (template,) = [template for document in made for _, template in templates(document)]
    assert template["metadata"]["labels"]["kai.scheduler/queue"] == "team-a"
    assert template["spec"]["schedulerName"] == "kai-scheduler"
    assert manifests(a_gang(1, options={"scheduler": "kai-scheduler"}), SETTINGS, None)[-1]["kind"] == "Job"
    assert _rendered(scheduler="kai-scheduler", form="job")[-1]["kind"] == "Job"


def test_a_trainjob_has_a_runtime_of_its_own() -> None:
    runtime, job = _rendered(launch=None, form="trainjob")
    assert job["spec"]["runtimeRef"]["kind"] == runtime["kind"] == "TrainingRuntime"
    assert job["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"]
    (replicated,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    assert replicated["template"]["metadata"]["labels"] == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    assert container_of([runtime])["name"] == "node"


def test_the_pool_says_which_nodes() -> None:
    pools = {
        "a100": PoolSettings({"gpu": "a100"}, "slow", "A100"),
        "h100": PoolSettings({"gpu": "h100"}, "fast", "H100", "example.com/gpu", ("reserved=ml:NoSchedule",)),
    }
    settings = KubeSettings(pools=pools)
    for gang in (a_gang(pool="h100"), a_gang()):
        made = manifests(gang, settings, None)
        all_valid(made)
        pod = pod_of(made)
        assert pod["nodeSelector"] == {"gpu": "h100"}
        assert pod["tolerations"] == [
            {"key": "reserved", "operator": "Equal", "value": "ml", "effect": "NoSchedule"},
            {"key": "example.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        ]
        assert container_of(made)["resources"]["limits"]["example.com/gpu"] == "8"
        assert made[-1]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "fast"
    assert pod_of(manifests(a_gang(pool="a100"), settings, None))["nodeSelector"] == {"gpu": "a100"}


@pytest.mark.parametrize(("checkpoints", "folder", "source"), [
    ("", "/muster/scratch/checkpoints/gpt-7", None),
    ("s3://bucket/muster/", "s3://bucket/muster/gpt-7", None),
    ("pvc:shared", "/muster/checkpoints/gpt-7", {"persistentVolumeClaim": {"claimName": "shared"}}),
    ("hostPath:/mnt/all", "/muster/checkpoints/gpt-7", {"hostPath": {"path": "/mnt/all"}}),
])  # fmt: skip
def test_checkpoints_are_where_the_launch_says(checkpoints, folder, source) -> None:
    settings = KubeSettings(checkpoints=checkpoints)
    assert checkpoint_dir(settings, "gpt-7") == folder
    made = manifests(a_gang(), settings, None)
    all_valid(made)
    mounted = {volume["name"]: volume for volume in pod_of(made)["volumes"]}.get("checkpoints")
    assert mounted == (None if source is None else {"name": "checkpoints", **source})
    if source is not None:
        mounts = {mount["name"]: mount["mountPath"] for mount in container_of(made)["volumeMounts"]}
        assert folder.startswith(mounts["checkpoints"])


def test_the_pod_of_the_job_file_is_merged_in_last() -> None:
    pod = {
        "hostNetwork": True,
        "terminationGracePeriodSeconds": 600,
        "containers": [
            {"name": "worker", "env": [{"name": "NCCL_DEBUG", "value": "INFO"}], "securityContext": {"runAsUser": 7}},
            {"name": "proxy", "image": "proxy:1"},
        ],
        "volumes": [{"name": "shared-memory", "emptyDir": {"sizeLimit": "1Gi"}}],
        "tolerations": [],
    }
    for form, name in (("job", "worker"), ("jobset", "node"), ("pytorchjob", "pytorch")):
        made = _rendered(form=form, pod=pod)
        all_valid(made)
        spec = pod_of(made)
        worker, proxy = spec["containers"]
        assert (worker["name"], proxy["name"]) == (name, "proxy")
        assert [one["name"] for one in worker["env"]] == ["MUSTER_NODE", "MUSTER_WORKER", "MUSTER_MASTER", "NCCL_DEBUG"]
        assert worker["command"]
        assert worker["securityContext"]["runAsUser"] == 7
        assert worker["securityContext"]["allowPrivilegeEscalation"] is False
        assert spec["volumes"][3] == {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}
        assert (spec["terminationGracePeriodSeconds"], spec["hostNetwork"], spec["tolerations"]) == (600, True, [])


@pytest.mark.parametrize(("options", "words"), [
    ({"form": "jobst"}, "jobset"),
    ({"nodeselector": {}}, "node_selector"),
    ({"tolerations": ["gpu:Never"]}, "key=value:Effect"),
    ({"volumes": {"/data": "nfs:server"}}, "pvc:NAME"),
    ({"pod": {"containers": [{"image": "x"}]}}, "merged by it"),
])  # fmt: skip
def test_what_no_cluster_would_take_is_refused_with_what_to_do(options, words) -> None:
    with pytest.raises(Invalid) as told:
        manifests(a_gang(options=options), SETTINGS, None)
    assert words in str(told.value)


@given(st.text(min_size=1, max_size=80), st.integers(1, 10**6), st.text(alphabet="0123456789abcdef", max_size=10))
def test_any_job_has_names_and_labels_that_the_api_takes(job, attempt, installation) -> None:
    name = object_name(installation, job, attempt)
    assert re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", name)
    assert len(name) <= NAME_MAX
    assert name != object_name(installation, job, attempt + 1) != object_name(installation + "0", job, attempt + 1)
    assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", label_value(job))


@given(st.data())
def test_any_gang_of_any_shape_passes_the_checks(data) -> None:
    kind = data.draw(st.sampled_from(["", "GPU", "H100"]))
    count = data.draw(st.integers(1, 16)) if kind else 0
    ask = Resources(data.draw(st.integers(1, 10**6)), data.draw(st.integers(0, 2**44)), count, kind)
    gang = a_gang(
        data.draw(st.integers(1, 1000)),
        job=data.draw(st.text(min_size=1, max_size=60)),
        ask=ask,
        stop_grace=data.draw(st.floats(0, 86_400)),
        name=data.draw(st.text(max_size=50)),
        options={"form": data.draw(st.sampled_from(FORMS)), "scheduler": data.draw(st.sampled_from(["", "volcano"]))},
    )
    made = manifests(gang, SETTINGS, "{}")
    assert check(made) == []
    assert made == manifests(gang, SETTINGS, "{}")
