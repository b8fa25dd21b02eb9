"""The adapter alone, against an API server and controllers without kubelets: what is half done, refused, away, left."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kube_kit import HUGE, KEY, Cluster, gang

from live import until
from muster.core.errors import EngineError
from muster.engines.base import Seat
from muster.engines.describe import Home
from muster.engines.kubernetes import link as link_module
from muster.engines.kubernetes.adapter import KubernetesAdapter
from muster.engines.kubernetes.config import read
from muster.engines.kubernetes.gangs import KubernetesGang
from muster.engines.kubernetes.settings import worker_of
from muster.engines.remote import Held, Look, Order
from rigs.kube_store import ApiError
from rigs.kubelet import set_ready
from rigs.kubernetes_rig import kubeconfig


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    made.start()
    yield made
    made.close()


def seen(adapter: KubernetesAdapter, check: Any) -> Look:
    found: list[Look] = []

    def matches() -> bool:
        found[:] = [adapter.look(True)]
        return bool(check(found[0]))

    until(matches, "the look")
    return found[0]


def wanted(key: tuple[str, int]) -> bool:
    return True


def there(look: Look) -> bool:
    return [(one.job, one.attempt) for one in look.workers] == [KEY]


def test_a_gang_is_handed_over_with_its_token_in_a_secret_that_goes_with_it(cluster: Cluster) -> None:
    adapter = cluster.adapter()
    assert adapter.launch([gang()], wanted) == {}
    (secret,) = cluster.store.list("Secret")
    told = json.loads(base64.b64decode(secret["data"]["gang.json"]))
    assert (told["launch"]["token"], told["launch"]["run"]) == ("att_secret", "train")
    (job,) = cluster.store.list("Job")
    assert secret["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
    assert "att_secret" not in json.dumps([cluster.store.list(kind) for kind in ("Job", "Pod", "Service", "ConfigMap")])
    assert cluster.store.list("Job")[0]["metadata"]["managedFields"][0]["manager"] in (
        "kube-controller-manager",
        "muster",
    )


def test_handing_over_twice_is_handing_over_once(cluster: Cluster) -> None:
    adapter = cluster.adapter()
    adapter.launch([gang()], wanted)
    (before,) = cluster.store.list("Job")
    assert adapter.launch([gang()], wanted) == {}
    assert cluster.adapter().launch([gang()], wanted) == {}
    (after,) = cluster.store.list("Job")
    assert before["metadata"]["uid"] == after["metadata"]["uid"]


def test_what_was_left_half_done_is_taken_up(cluster: Cluster) -> None:
    cluster.api.refuses["PATCH", "jobs"] = ApiError(503, "ServiceUnavailable", "the server is busy")
    answer = cluster.adapter().launch([gang()], wanted)[KEY]
    assert isinstance(answer, Held)
    assert "busy" in str(answer.error), "the server as a whole is away"
    assert cluster.kinds() == ["Secret", "Service"]
    cluster.api.refuses.clear()
    again = cluster.adapter()
    assert again.launch([gang()], wanted) == {}
    seen(again, there)


def test_what_is_refused_leaves_nothing(cluster: Cluster) -> None:
    cluster.api.refuses["PATCH", "jobs"] = ApiError(422, "Invalid", "spec.template: Invalid value")
    refused = cluster.adapter().launch([gang()], wanted)
    assert "spec.template: Invalid value" in str(refused[KEY])
    assert cluster.kinds() == []


def test_what_waits_is_stopped_at_once_and_reported_until_it_is_forgotten(cluster: Cluster) -> None:
    adapter = cluster.adapter()
    adapter.launch([gang(ask=HUGE)], wanted)
    look = seen(adapter, lambda look: look.waits and look.waits[0].code == "Unschedulable")
    assert "Insufficient cpu" in look.waits[0].message
    adapter.stop([Order(*KEY, 30.0, "user_stop")])
    look = seen(adapter, lambda look: look.workers[0].status == "ended")
    assert look.workers[0].exit is not None
    assert (look.workers[0].exit.outcome, look.workers[0].exit.reason) == ("stopped", "user_stop")
    adapter.forget([KEY])
    seen(adapter, lambda look: not look.workers)
    until(lambda: cluster.kinds() == [], "everything to be gone")


def test_a_stop_before_the_first_look_is_a_stop(cluster: Cluster) -> None:
    adapter = cluster.adapter()
    adapter.launch([gang(ask=HUGE)], wanted)
    adapter.stop([Order(*KEY, 0.0, "user_stop")])
    seen(adapter, lambda look: look.workers and look.workers[0].status == "ended")
    until(lambda: cluster.kinds() == [], "everything to be gone")


def test_a_new_server_finds_what_is_there_and_forgets_it_whole(cluster: Cluster) -> None:
    cluster.api.refuses["PATCH", "secrets"] = ApiError(500, "InternalError", "")
    first = cluster.adapter()
    assert isinstance(first.launch([gang(ask=HUGE)], wanted)[KEY], Held)
    cluster.api.refuses.clear()
    first.launch([gang(ask=HUGE)], wanted)
    first.close()
    second = cluster.adapter()
    assert [(one.job, one.worker) for one in second.look(False).workers] == [(KEY[0], 0)], "at the first look"
    second.forget([KEY])
    until(lambda: cluster.kinds() == [], "everything to be gone")
    assert second.look(False).workers == []


@pytest.mark.parametrize("form", ["job", "jobset"])
def test_a_pod_that_is_seen_before_its_main_object_is_no_deletion(
    cluster: Cluster, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watches are independent: the first pod of a gang may come before the object that makes the pods."""
    kind = {"job": "Job", "jobset": "JobSet"}[form]
    cluster.adapter().launch([gang(workers=2, ask=HUGE, options={"form": form})], wanted)
    until(lambda: len(cluster.store.list("Pod")) == 2, "its pods")
    adapter = cluster.adapter()
    link = adapter._link
    assert link is not None
    first = next(pod for pod in cluster.store.list("Pod") if worker_of(pod) == 0)
    monkeypatch.setattr(link, "gangs", lambda: {KEY: KubernetesGang(KEY, None, {0: first})})
    for _ in range(2):
        assert {one.status for one in adapter.look(False).workers} == {"pending"}
    (main,) = cluster.store.list(kind, labels=f"muster.dev/job={KEY[0]}")[:1]
    cluster.store.delete(kind, "training", main["metadata"]["name"])
    ended = [one.exit.reason for one in adapter.look(False).workers if one.exit is not None]
    assert ended == ["cancelled_outside"]


def test_pods_that_a_dead_node_keeps_are_not_reported_once_forgotten(cluster: Cluster) -> None:
    adapter = cluster.adapter(node_lost_after="0s")
    adapter.launch([gang()], wanted)
    seen(adapter, lambda look: look.workers and look.workers[0].node)
    where = cluster.store.list("Pod")[0]["spec"]["nodeName"]
    set_ready(cluster.store, where, "Unknown", "Kubelet stopped posting node status.")
    look = seen(adapter, lambda look: look.workers[0].status == "ended")
    assert look.workers[0].exit is not None
    assert look.workers[0].exit.reason == "node_lost"
    assert {one.health for one in look.nodes or () if one.name == where} == {"suspect"}
    adapter.forget([KEY])
    until(lambda: cluster.kinds() == ["Pod"], "all but the pod to be gone")
    assert adapter.look(False).workers == []


def test_the_place_in_kueues_queue_is_told(cluster: Cluster) -> None:
    adapter = cluster.adapter(queue="research")
    assert adapter.launch([gang(f"q-{number}") for number in range(3)], wanted) == {}
    look = seen(adapter, lambda look: sum("more needed" in wait.message for wait in look.waits) == 2)
    assert [wait for wait in look.waits if "Kueue" in wait.message]
    link = adapter._link
    assert link is not None
    link._positions_at = 0.0  # it is time to ask again
    look = adapter.look(False)
    places = sorted(wait.message[-24:] for wait in look.waits if "Kueue" in wait.message)
    assert places == ["(number 1 in its queue)".rjust(24), "(number 2 in its queue)".rjust(24)]


def test_a_cluster_that_is_away_is_said_to_be_and_found_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "AWAY_SECONDS", 0.0)
    adapter = cluster.adapter()
    said = adapter.open(lambda: None)
    assert "v1.37.0, namespace training" in said
    cluster.api.refuses["GET", "pods"] = ApiError(500, "InternalError", "etcd is away")
    cluster.api.breaks.set()

    def answer() -> str:
        try:
            return adapter.open(lambda: None)
        except EngineError as error:
            return error.message

    until(lambda: "etcd is away" in answer(), "it to be away")
    cluster.api.breaks.clear()
    cluster.api.refuses.clear()
    until(lambda: answer() == said, "it to be back")


def test_a_credential_that_is_no_longer_valid_is_read_again(cluster: Cluster) -> None:
    adapter = cluster.adapter()
    cluster.api.token = "another"
    cluster.api.breaks.set()

    def refused() -> bool:
        try:
            adapter.open(lambda: None)
        except EngineError as error:
            return "401" in error.message
        return False

    until(refused, "it to be refused")
    cluster.api.breaks.clear()
    config = kubeconfig(cluster.api.url, "training")
    config["users"][0]["user"]["token"] = "another"
    (cluster.folder / "kubeconfig").write_text(yaml.safe_dump(config))
    until(lambda: not refused(), "the new credential")
    assert adapter.look(True).nodes


def test_settings_say_which_nodes_are_which_pool(cluster: Cluster) -> None:
    pools = {"left": {"selector": {"kubernetes.io/hostname": "node-a"}, "accelerator": "H100"}}
    adapter = cluster.adapter(pools=pools)
    nodes = adapter.look(True).nodes or []
    assert [one.name for one in nodes if one.role == "machine"] == ["node-a"]
    assert adapter.launch([gang(pool="left", seats=[Seat("left/1")])], wanted) == {}
    (job,) = cluster.store.list("Job")
    assert job["spec"]["template"]["spec"]["nodeSelector"] == {"kubernetes.io/hostname": "node-a"}


def test_the_doctor_says_what_is_wrong(cluster: Cluster) -> None:
    def found(adapter: KubernetesAdapter) -> dict[str, str]:
        return {f"{one.status} {one.name}": one.detail for one in adapter.diagnose()}

    assert "fail credentials" in found(cluster.adapter(opened=False, kubeconfig="nothing"))
    wrong = found(cluster.adapter(opened=False, namespace="nowhere", queue="absent"))
    assert wrong["fail namespace"] == "there is no namespace nowhere"
    assert "absent" in wrong["fail Kueue"]
    good = found(cluster.adapter(opened=False))
    assert {"ok the API", "ok namespace", "ok rights", "ok pool", "ok package", "ok address"} <= good.keys()
    cluster.api.token = "another"
    assert "fail the API" in found(cluster.adapter(opened=False))


def test_the_gangs_of_a_project_are_in_its_namespace_with_all_that_they_need(cluster: Cluster) -> None:
    settings = {"projects": {"language": {"namespace": "default"}}, "network_policy": True}
    adapter = cluster.adapter(**settings)
    gangs = [gang("train-7", project="language", ask=HUGE), gang("train-8", project="vision", ask=HUGE)]
    assert adapter.launch(gangs, wanted) == {}
    for kind in ("Job", "Secret", "Service", "ConfigMap", "NetworkPolicy"):
        assert sorted(one["metadata"]["namespace"] for one in cluster.store.list(kind)) == ["default", "training"], kind
    seen(adapter, lambda look: {one.job for one in look.workers} == {"train-7", "train-8"})
    (policy, _) = sorted(cluster.store.list("NetworkPolicy"), key=lambda one: one["metadata"]["namespace"])
    assert policy["metadata"]["ownerReferences"][0]["kind"] == "Job"
    thief = gang("train-9", project="vision", options={"namespace": "default"})
    assert "kubernetes.namespace" in str(adapter.launch([thief], wanted)["train-9", 1])
    half = gang("train-10", project="language", ask=HUGE)
    cluster.api.refuses["PATCH", "jobs"] = ApiError(503, "ServiceUnavailable", "the server is busy")
    held = adapter.launch([half], wanted)["train-10", 1]
    assert isinstance(held, Held)
    assert "busy" in held.message
    cluster.api.refuses.clear()
    cluster.adapter(**settings).forget([("train-10", 1)])  # a new server, which does not know whose it was
    for kind in ("Secret", "Service", "NetworkPolicy"):
        assert len(cluster.store.list(kind)) == 2, kind


def test_what_the_settings_do_not_allow_is_refused_at_the_hand_over_too(cluster: Cluster) -> None:
    """For jobs that were accepted before the settings were what they are."""
    asked = {"pod": {"hostNetwork": True}, "volumes": {"/keys": "secret:keys"}}
    told = str(cluster.adapter().launch([gang(options=asked)], wanted)[KEY])
    assert "pod.hostNetwork" in told
    assert "`secrets` of [engines.k8s.allow]" in told
    assert cluster.kinds() == []
    open_to_all = cluster.adapter(allow={"secrets": ["keys"], "pod_settings": "any"})
    assert open_to_all.launch([gang(options=asked)], wanted) == {}


def test_a_server_that_comes_back_finds_the_gangs_secret_and_another_muster_does_not_know_its_name(
    cluster: Cluster,
) -> None:
    def adapter(key: bytes) -> KubernetesAdapter:
        home = Home(cluster.folder, "0123456789", lambda: ("http://muster:6878",), key=key)
        made = read("k8s", {"kubeconfig": "kubeconfig"}, home)
        cluster.adapters.append(made)
        made.open(lambda: None)
        return made

    for _ in range(2):
        assert adapter(b"k" * 32).launch([gang(ask=HUGE)], wanted) == {}
    (secret,) = cluster.store.list("Secret")
    assert secret["metadata"]["name"].startswith("muster-gang-")
    assert adapter(b"j" * 32).launch([gang("train-8", ask=HUGE)], wanted) == {}
    assert len(cluster.store.list("Secret")) == 2
