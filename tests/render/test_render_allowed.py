"""What job files may ask of a cluster: nothing but what is harmless, until an administrator lists it by name."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from render_kit import a_gang, a_job, all_valid, container_of, pod_of

from muster.core.errors import Invalid
from muster.engines.kubernetes.allow import LISTS, Allow, ProjectSettings
from muster.engines.kubernetes.render import manifests, object_name, secret_name
from muster.engines.kubernetes.render_allowed import refusals
from muster.engines.kubernetes.settings import FORMS, KubeSettings, PoolSettings
from muster.engines.rendering import gang_of

SETTINGS = KubeSettings(
    installation="0123456789",
    key=b"k" * 32,
    namespace="training",
    service_account="muster-worker",
    queue="research",
    checkpoints="hostPath:/mnt/all",
    pull_secrets=("of-the-engine",),
    labels={"cost": "ml"},
    annotations={"example.com/who": "muster"},
    pools={"h100": PoolSettings({"gpu": "h100"}, accelerator="H100", tolerations=("reserved=ml:NoSchedule",))},
)
VICTIM = secret_name(SETTINGS.key, "victim-3", 1)
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
UNCONFINED = {"seccompProfile": {"type": "Unconfined"}}
NO_NODES = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
WORKER = {"job": "worker", "jobset": "node", "trainjob": "node", "pytorchjob": "pytorch"}


def _worker(**container: Any) -> dict[str, Any]:
    return {"pod": {"containers": [{"name": "worker", **container}]}}


def _volume(**source: Any) -> dict[str, Any]:
    return {"pod": {"volumes": [{"name": "mine", **source}]}}


def _projected(**source: Any) -> dict[str, Any]:
    return _volume(projected={"sources": [source]})


def _from(**source: Any) -> dict[str, Any]:
    return _worker(env=[{"name": "STOLEN", "valueFrom": source}])


def _asked(options: dict[str, Any], settings: KubeSettings = SETTINGS, **more: Any) -> list[str]:
    gang = a_gang(options=options, project="language", **more)
    return [f"{one.where} {one.given} | {one.expected} | {one.hint}" for one in refusals(gang, settings, "k8s")]


# What a job says → the list whose setting would allow it.
BY_NAME: list[tuple[str, str, dict[str, Any]]] = [
    ("secrets", "keys", {"volumes": {"/keys": "secret:keys"}}),
    ("secrets", "keys", _volume(secret={"secretName": "keys"})),
    ("secrets", "keys", _projected(secret={"name": "keys"})),
    ("secrets", "keys", _from(secretKeyRef={"name": "keys", "key": "token"})),
    ("secrets", "keys", _worker(envFrom=[{"secretRef": {"name": "keys"}}])),
    ("secrets", "keys", {"pod": {"volumes": [{"name": "gang", "secret": {"secretName": "keys"}}]}}),
    ("config_maps", "other", _volume(configMap={"name": "other"})),
    ("config_maps", "other", _projected(configMap={"name": "other"})),
    ("config_maps", "other", _from(configMapKeyRef={"name": "other", "key": "x"})),
    ("config_maps", "other", _worker(envFrom=[{"prefix": "A_", "configMapRef": {"name": "other"}}])),
    ("config_maps", "other", {"pod": {"volumes": [{"name": "package", "configMap": {"name": "other"}}]}}),
    ("pull_secrets", "registry", {"pull_secrets": ["registry"]}),
    ("pull_secrets", "registry", {"pod": {"imagePullSecrets": [{"name": "registry"}]}}),
    ("claims", "datasets", {"volumes": {"/data": "pvc:datasets"}}),
    ("claims", "datasets", _volume(persistentVolumeClaim={"claimName": "datasets"})),
    ("host_paths", "/mnt/nvme", {"volumes": {"/host": "hostPath:/mnt/nvme"}}),
    ("host_paths", "/mnt/nvme", _volume(hostPath={"path": "/mnt/nvme", "type": "Directory"})),
    ("service_accounts", "cluster-admin", {"service_account": "cluster-admin"}),
    ("service_accounts", "cluster-admin", {"pod": {"serviceAccountName": "cluster-admin"}}),
    ("service_accounts", "cluster-admin", {"pod": {"serviceAccount": "cluster-admin"}}),
    ("priority_classes", "system-node-critical", {"priority_class": "system-node-critical"}),
    ("priority_classes", "system-node-critical", {"pod": {"priorityClassName": "system-node-critical"}}),
    ("runtime_classes", "kata", {"pod": {"runtimeClassName": "kata"}}),
    ("schedulers", "volcano", {"scheduler": "volcano"}),
    ("schedulers", "mine", {"pod": {"schedulerName": "mine"}}),
    ("queues", "of-another-team", {"queue": "of-another-team"}),
    ("tolerations", CONTROL_PLANE, {"tolerations": [CONTROL_PLANE]}),
    ("resources", "rdma/hca", _worker(resources={"limits": {"rdma/hca": "1"}})),
    ("resources", "nvidia.com/gpu", _worker(resources={"limits": {"nvidia.com/gpu": "16"}})),
    ("capabilities", "IPC_LOCK", _worker(securityContext={"capabilities": {"add": ["IPC_LOCK"]}})),
    ("labels", "kueue.x-k8s.io/queue-name", {"labels": {"kueue.x-k8s.io/queue-name": "of-another-team"}}),
    ("labels", "team", {"labels": {"team": "nlp"}}),
    ("annotations", "iam.amazonaws.com/role", {"annotations": {"iam.amazonaws.com/role": "admin"}}),
    ("annotations", "example.com/who", {"annotations": {"example.com/who": "somebody-else"}}),
]  # fmt: skip
# What no list allows, and the part of the pod that is named for it.
NEVER: list[tuple[str, dict[str, Any]]] = [
    ("pod.hostNetwork", {"pod": {"hostNetwork": True}}),
    ("pod.hostPID", {"pod": {"hostPID": True}}),
    ("pod.hostIPC", {"pod": {"hostIPC": True}}),
    ("pod.hostUsers", {"pod": {"hostUsers": True}}),
    ("pod.nodeName", {"pod": {"nodeName": "control-plane-1"}}),
    ("pod.shareProcessNamespace", {"pod": {"shareProcessNamespace": True}}),
    ("pod.automountServiceAccountToken", {"pod": {"automountServiceAccountToken": True}}),
    ("pod.terminationGracePeriodSeconds", {"pod": {"terminationGracePeriodSeconds": 10**9}}),
    ("pod.restartPolicy", {"pod": {"restartPolicy": "Always"}}),
    ("pod.priority", {"pod": {"priority": 2_000_001_000}}),
    ("pod.initContainers", {"pod": {"initContainers": [{"name": "first", "image": "evil"}]}}),
    ("pod.ephemeralContainers", {"pod": {"ephemeralContainers": [{"name": "first", "image": "evil"}]}}),
    ("pod.containers.side", {"pod": {"containers": [{"name": "side", "image": "evil"}]}}),
    ("pod.resourceClaims", {"pod": {"resourceClaims": [{"name": "all", "resourceClaimName": "of-another"}]}}),
    ("pod.affinity.podAffinity", {"pod": {"affinity": {"podAffinity": {}}}}),
    ("pod.nodeSelector.gpu", {"node_selector": {"gpu": "b200"}}),
    ("pod.securityContext.seccompProfile.type", {"pod": {"securityContext": UNCONFINED}}),
    ("pod.securityContext.sysctls", {"pod": {"securityContext": {"sysctls": [{"name": "kernel.x", "value": "1"}]}}}),
    ("pod.securityContext.runAsNonRoot", {"pod": {"securityContext": {"runAsNonRoot": False}}}),
    ("pod.containers.worker.securityContext.privileged", _worker(securityContext={"privileged": True})),
    ("pod.containers.worker.securityContext.procMount", _worker(securityContext={"procMount": "Unmasked"})),
    ("pod.containers.worker.securityContext.allowPrivilegeEscalation",
     _worker(securityContext={"allowPrivilegeEscalation": True})),
    ("pod.containers.worker.securityContext.capabilities.drop",
     _worker(securityContext={"capabilities": {"drop": []}})),
    ("pod.containers.worker.ports.80.hostPort", _worker(ports=[{"containerPort": 80, "hostPort": 80}])),
    ("pod.containers.worker.command.0", _worker(command=["sh"])),
    ("pod.containers.worker.lifecycle", _worker(lifecycle={"postStart": {"exec": {"command": ["sh"]}}})),
    ("pod.containers.worker.volumeDevices", _worker(volumeDevices=[{"name": "gang", "devicePath": "/dev/x"}])),
    ("pod.containers.worker.volumeMounts./x.mountPropagation",
     _worker(volumeMounts=[{"name": "scratch", "mountPath": "/x", "mountPropagation": "Bidirectional"}])),
    ("pod.containers.worker.env.STOLEN.valueFrom.fileKeyRef", _from(fileKeyRef={"volumeName": "x", "path": "y"})),
    ("pod.volumes.mine.projected.sources.0.serviceAccountToken", _projected(serviceAccountToken={"path": "token"})),
    ("pod.volumes.mine.projected.sources.0.podCertificate", _projected(podCertificate={"signerName": "x/y"})),
    ("pod.volumes.mine.csi", _volume(csi={"driver": "secrets-store.csi.k8s.io"})),
    ("pod.volumes.mine.nfs", _volume(nfs={"server": "10.0.0.1", "path": "/"})),
    ("pod.volumes.mine.ephemeral", _volume(ephemeral={"volumeClaimTemplate": {"spec": {"dataSource": {"name": "x"}}}})),
    ("pod.volumes.mine.azureFile", _volume(azureFile={"secretName": "keys"})),
    ("pod.volumes.mine.ofTomorrow", _volume(ofTomorrow={"secretName": "keys"})),
    ("pod.fieldOfTomorrow", {"pod": {"fieldOfTomorrow": 1}}),
]  # fmt: skip
HARMLESS: list[dict[str, Any]] = [
    {},
    {"node_selector": {"disk": "nvme"}, "topology": "topology.kubernetes.io/zone", "shared_memory": 16 << 30},
    {"volumes": {"/tmp/x": "emptyDir"}, "namespace": "training", "queue": "research"},
    {"pod": {"securityContext": {"runAsUser": 1000, "fsGroup": 1000, "runAsNonRoot": True}, "hostUsers": False}},
    {"pod": {"affinity": {"nodeAffinity": NO_NODES}}},
    {"pod": {"dnsConfig": {"options": [{"name": "ndots", "value": "1"}]}, "activeDeadlineSeconds": 60}},
    {"tolerations": ["reserved=ml:NoSchedule"]},
    {"pod": {"volumes": [{"name": "shared-memory", "emptyDir": {"sizeLimit": "1Gi"}}], "tolerations": []}},
    _worker(env=[{"name": "NCCL_DEBUG", "value": "INFO"}], workingDir="/w", resources={"limits": {"cpu": "4"}}),
    _from(fieldRef={"fieldPath": "status.podIP"}),
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("listed", "name", "options"), BY_NAME)
def test_what_has_a_name_is_refused_until_it_is_listed(form, listed, name, options) -> None:
    options = {"form": form, **options}
    told = _asked(options)
    assert told
    assert all(f"`{listed}`" in one and name in one for one in told), told
    assert any("[engines.k8s.projects.language]" in one for one in told)
    allowed = Allow(**{listed: (name,)})
    assert _asked(options, replace(SETTINGS, allow=allowed)) == []
    assert _asked(options, replace(SETTINGS, projects={"language": ProjectSettings(allow=allowed)})) == []
    assert _asked(options, replace(SETTINGS, projects={"vision": ProjectSettings(allow=allowed)})) == told


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("place", "options"), NEVER)
def test_what_no_list_names_is_refused_whatever_is_listed(form, place, options) -> None:
    """Also under every form's own name for the worker's container."""
    everything = Allow(**{name: ("*",) for name in LISTS if name not in ("service_accounts", "tolerations")})
    place = place.replace("containers.worker", f"containers.{WORKER[form]}")
    for settings in (SETTINGS, replace(SETTINGS, allow=everything)):
        told = _asked({"form": form, **options}, settings)
        assert [one for one in told if one.startswith(f"{place} ")], told
        assert all('pod_settings = "any"' in one for one in told), told
    assert _asked({"form": form, **options}, replace(SETTINGS, allow=Allow(pod_settings="any"))) == []


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("options", HARMLESS)
def test_what_is_harmless_needs_no_setting(form, options) -> None:
    assert _asked({"form": form, **options}) == []
    all_valid(manifests(a_gang(options={"form": form, **options}), SETTINGS, None))


@pytest.mark.parametrize("allow", [Allow(pod_settings="any"), Allow(secrets=("*",), pull_secrets=("*",))])
@pytest.mark.parametrize("name", [VICTIM, object_name("0123456789", "victim-3", 1), "muster-gang-x"])
@pytest.mark.parametrize("make", [
    lambda name: {"volumes": {"/keys": f"secret:{name}"}},
    lambda name: {"pod": {"volumes": [{"name": "gang", "secret": {"secretName": name}}]}},
    lambda name: _projected(secret={"name": name}),
    lambda name: _from(secretKeyRef={"name": name, "key": "gang.json"}),
    lambda name: _worker(envFrom=[{"secretRef": {"name": name}}]),
    lambda name: {"pull_secrets": [name]},
    lambda name: _volume(csi={"driver": "x", "nodePublishSecretRef": {"name": name}}),
    lambda name: {"pod": {"initContainers": [{"name": "a", "image": "b", "envFrom": [{"secretRef": {"name": name}}]}]}},
])  # fmt: skip
def test_another_gangs_secret_is_refused_however_much_is_allowed(make, name, allow) -> None:
    assert any(name in one for one in _asked(make(name), replace(SETTINGS, allow=allow)))


def test_the_name_of_a_gangs_secret_comes_of_the_key_and_of_nothing_that_others_see() -> None:
    made = manifests(a_gang(), SETTINGS, "{}")
    (name,) = [one["metadata"]["name"] for one in made if one["kind"] == "Secret"]
    assert name == secret_name(SETTINGS.key, "gpt-small-7", 3) == pod_of(made)["volumes"][0]["secret"]["secretName"]
    other = manifests(a_gang(), replace(SETTINGS, key=b"j" * 32), "{}")
    assert name not in str(other)
    digest = name.removeprefix("muster-gang-")
    shown = [one["metadata"] for one in made if one["kind"] != "Secret"]
    assert digest not in str(shown)
    assert len({secret_name(SETTINGS.key, job, attempt) for job in ("a-1", "a-11") for attempt in (1, 11)}) == 4


def test_a_folder_is_allowed_with_what_is_below_it_and_nothing_beside() -> None:
    settings = replace(SETTINGS, allow=Allow(host_paths=("/mnt/nvme",)))
    for path, fits in {"/mnt/nvme/a": True, "/mnt/nvme2": False, "/mnt/nvme/../..": False, "/": False}.items():
        assert (_asked({"volumes": {"/x": f"hostPath:{path}"}}, settings) == []) is fits, path


def test_a_toleration_is_allowed_as_it_is_listed_or_narrower() -> None:
    settings = replace(SETTINGS, allow=Allow(tolerations=("spot:NoSchedule", "team=a")))
    for text, fits in {"spot:NoSchedule": True, "spot": False, "team=a:NoExecute": True, "team=b": False}.items():
        assert (_asked({"tolerations": [text]}, settings) == []) is fits, text
    assert _asked({"pod": {"tolerations": [{"operator": "Exists"}]}}, settings)


def test_an_account_that_is_listed_may_have_its_token() -> None:
    settings = replace(SETTINGS, allow=Allow(service_accounts=("trainer",)))
    token = {"pod": {"automountServiceAccountToken": True}}
    assert _asked({"service_account": "trainer", **token}, settings) == []
    assert _asked(token, settings)
    assert pod_of(manifests(a_gang(), SETTINGS, None))["automountServiceAccountToken"] is False


def test_images_are_any_until_some_are_listed() -> None:
    assert _asked({}, image="evil.example.com/x") == []
    settings = replace(SETTINGS, allow=Allow(images=("registry.example.com/*",)))
    assert _asked({}, settings, image="registry.example.com/train:1") == []
    (told,) = _asked({}, settings, image="evil.example.com/x")
    assert "`images`" in told
    assert _asked(_worker(image="evil.example.com/x"), settings)
    assert _asked({}, settings) == []  # the engine's own


@pytest.mark.parametrize("options", [
    {"pod": {"containers": None}}, {"pod": {"volumes": {}}}, {"pod": {"securityContext": None}},
    {"pod": {"securityContext": []}}, {"pod": {"containers": [{"name": {}}]}},
    {"pod": {"containers": [{"name": "worker", "securityContext": None}]}},
])  # fmt: skip
def test_what_muster_has_put_there_can_not_be_taken_away(options) -> None:
    for form in FORMS:
        with pytest.raises(Invalid, match=r"kubernetes\.pod"):
            refusals(a_gang(options={"form": form, **options}), replace(SETTINGS, allow=Allow(pod_settings="any")))


def test_a_second_container_of_the_workers_name_is_nobodys() -> None:
    for form, name in WORKER.items():
        if name != "worker":
            assert any("containers." in one for one in _asked({"form": form, "pod": {"containers": [{"name": name}]}}))


def test_projects_have_namespaces_and_nobody_else_gets_there() -> None:
    settings = replace(SETTINGS, projects={"language": ProjectSettings("ml-language")}, namespaces=("shared",))
    made = manifests(a_gang(project="language"), settings, "{}")
    assert {one["metadata"]["namespace"] for one in made} == {"ml-language"}
    assert _asked({"namespace": "ml-language"}, settings) == _asked({"namespace": "shared"}, settings) == []
    assert "ml-language, shared" in _asked({"namespace": "training"}, settings)[0]
    vision = a_gang(project="vision", options={"namespace": "ml-language"})
    for allow in (Allow(), Allow(pod_settings="any")):
        assert "kubernetes.namespace" in refusals(vision, replace(settings, allow=allow))[0].where
    assert refusals(a_gang(project="vision"), settings) == []
    (told,) = refusals(a_gang(project="vision"), replace(settings, unlisted_projects="refuse"), "k8s")
    assert "[engines.k8s.projects.vision]" in told.hint


def test_json_and_aliases_in_a_job_file_are_seen_as_what_they_are() -> None:
    text = """
        kubernetes: {"pod": {"hostNetwork": true, "volumes": [{"name": "a", "hostPath": {"path": "/"}}]}, shm_size: 1GB,
                     "volumes": {"/keys": "secret:keys"}}
    """
    gang = gang_of(a_job(text), "kubernetes")
    places = {one.where for one in refusals(gang, SETTINGS)}
    assert places == {"pod.hostNetwork", "pod.volumes.a.hostPath.path", "pod.volumes.mount-0.secret.secretName"}


def test_every_list_is_checked_somewhere() -> None:
    assert (
        {listed for listed, _, _ in BY_NAME} | {"images"}
        == set(LISTS)
        == {one.name for one in fields(Allow) if one.name != "pod_settings"}
    )


def test_gangs_give_up_what_a_program_does_not_need() -> None:
    made = manifests(a_gang(), KubeSettings(), None)
    assert pod_of(made)["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    assert container_of(made)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    strict = KubeSettings(run_as_non_root=True)
    assert pod_of(manifests(a_gang(), strict, None))["securityContext"]["runAsNonRoot"] is True
    for own in (
        {"pod": {"securityContext": {"runAsNonRoot": False}}},
        _worker(securityContext={"runAsNonRoot": False}),
    ):
        assert _asked(own, strict)


@pytest.mark.parametrize("form", FORMS)
def test_a_gang_is_reached_by_its_own_pods_alone_where_that_is_set(form) -> None:
    made = manifests(a_gang(options={"form": form}), replace(SETTINGS, network_policy=True), "{}")
    all_valid(made)
    (policy,) = [one for one in made if one["kind"] == "NetworkPolicy"]
    own = {
        "matchLabels": {
            key: value for key, value in made[-1]["metadata"]["labels"].items() if "muster" in f"{key}{value}"
        }
    }
    assert policy["spec"]["podSelector"] == own
    assert policy["spec"]["ingress"] == [{"from": [{"podSelector": own}]}]
    assert made[-1] is not policy
    assert refusals(a_gang(options={"form": form}), replace(SETTINGS, network_policy=True)) == []


_WORDS = st.sampled_from(
    ["hostPath", "path", "/", "secret", "secretName", "keys", "name", "worker", "volumes", "containers", "gang", "env",
     "tolerations", "securityContext", "privileged", "projected", "sources", "serviceAccountName", "image"]
)  # fmt: skip
_TREES = st.recursive(
    st.one_of(_WORDS, st.booleans(), st.integers(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_WORDS, inner, max_size=3)),
    max_leaves=8,
)


@given(st.dictionaries(_WORDS, _TREES, max_size=3), st.sampled_from(FORMS))
def test_whatever_is_written_never_gets_a_foreign_thing_unasked(pod, form) -> None:
    """Either it can't be rendered, or it is refused, or nothing of it is in what would be applied."""
    gang = a_gang(options={"form": form, "pod": pod})
    try:
        if refusals(gang, SETTINGS):
            return
    except Invalid:
        return
    made = str(manifests(gang, SETTINGS, None))
    assert "'path': '/'" not in made
    assert "'secretName': 'keys'" not in made
    assert "privileged" not in made
    assert "'serviceAccountName': 'muster-worker'" in made
