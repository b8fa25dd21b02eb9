"""What a cluster says no with, as a real API server words it: whose trouble it is, and that it is nobody else's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kube_kit import HUGE, KEY, Cluster, gang

from live import until
from muster.engines import remote, unseen
from muster.engines.base import Wait, WorkerReport
from muster.engines.kubernetes import adapter as adapter_module
from muster.engines.kubernetes import faults
from muster.engines.kubernetes import link as link_module
from muster.engines.kubernetes import removal as removal_module
from muster.engines.remote import RemoteEngine
from rigs.kube_admission import quota
from rigs.kube_store import ApiError, event

MINE = "muster.dev/installation=0123456789"


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unseen, "HOLD_FIRST", 0.1)
    monkeypatch.setattr(unseen, "HOLD_LAST", 0.2)
    monkeypatch.setattr(remote, "AGAIN_FIRST", 0.1)
    monkeypatch.setattr(removal_module, "DELETE_AGAIN", 0.1)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    made.start()
    yield made
    made.close()


@contextmanager
def engine(cluster: Cluster, **settings: Any) -> Iterator[RemoteEngine]:
    adapter = cluster.adapter(opened=False, **{"allow": {"pod_settings": "any"}, **settings})
    adapter.look_every = 0.1
    made = RemoteEngine("k8s", adapter)
    made.start()
    try:
        until(made.answered, "the first look")
        yield made
    finally:
        made.close()


def end_of(engine: RemoteEngine, job: str = KEY[0]) -> WorkerReport:
    def found() -> WorkerReport | None:
        return next((one for one in engine.poll() if one.job == job and one.status == "ended"), None)

    ended = until(found, f"the end of {job}")
    assert ended is not None
    assert ended.exit is not None
    return ended


def wait_of(engine: RemoteEngine, code: str, job: str = KEY[0]) -> Wait:
    def found() -> Wait | None:
        return next((one for one in engine.waits() if one.job == job and one.code == code), None)

    wait = until(found, f"{job} to wait for {code}")
    assert wait is not None
    return wait


def until_forgotten(engine: RemoteEngine) -> None:
    """Until the engine has no deletion of the gang on its way, and no look that still shows it."""
    link = engine._adapter._link  # type: ignore[attr-defined]
    until(lambda: KEY not in engine._desired.forgets and KEY not in link.gangs(), "the forgetting to be over")
    over = threading.Event()
    engine._later(over.set)  # carried out when the look in progress has ended
    until(over.is_set, "a look that began with it to end")


def jobs(cluster: Cluster) -> set[str]:
    return {item["metadata"]["labels"]["muster.dev/job"] for item in cluster.store.list("Job", labels=MINE)}


def pod(**fields: Any) -> dict[str, Any]:
    return {"options": {"pod": fields}, "ask": HUGE}


# --- one gang's trouble is its own ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (pod(tolerationz=[]), ".spec.template.spec.tolerationz: field not declared in schema"),
        (pod(hostNetwork="yes"), ".spec.template.spec.hostNetwork: expected boolean, got &{yes}"),
        (pod(containers=[{"name": "worker", "env": [{"name": "X", "value": 1}]}]), "expected string, got"),
        (pod(initContainers=[{"name": "i", "image": "x", "env": [{"name": "X"}, {"name": "X"}]}]), "duplicate entries"),
        (
            pod(initContainers=[{"name": "i", "image": "x", "resources": {"limits": {"cpu": "lots"}}}]),
            "quantities must",
        ),
    ],
)
def test_a_mistake_in_one_job_fails_that_job_in_the_servers_words(
    cluster: Cluster, bad: dict[str, Any], said: str
) -> None:
    with engine(cluster) as made:
        for number in range(3):
            made.launch(gang(f"good-{number}", ask=HUGE))
        made.launch(gang("bad-1", **bad))
        made.launch(gang("good-9", ask=HUGE))
        end = end_of(made, "bad-1").exit
        assert end is not None
        assert (end.outcome, end.reason) == ("failed", "engine_refused")
        assert said in end.detail
        until(lambda: jobs(cluster) == {"good-0", "good-1", "good-2", "good-9"}, "the others to be there")
        assert made.condition().ok
        assert not made.condition().trouble
        made.forget("bad-1", 1)
        until(lambda: len(cluster.store.list("Secret", labels=MINE)) == 4, "the bad one's Secret to be gone")


def test_a_webhook_that_is_down_holds_what_it_concerns_and_nothing_else(cluster: Cluster) -> None:
    cluster.api.admission.webhooks["jobsets"] = "mjobset.kb.io"
    with engine(cluster) as made:
        made.launch(gang("set-1", options={"form": "jobset"}, ask=HUGE))
        made.launch(gang("plain-1", ask=HUGE))
        wait = wait_of(made, "WebhookDown", "set-1")
        assert 'failed calling webhook "mjobset.kb.io"' in wait.message
        assert "webhook" in wait.hint
        until(lambda: jobs(cluster) == {"plain-1"}, "the plain one")
        assert made.condition().ok
        cluster.api.admission.webhooks.clear()
        until(lambda: cluster.store.list("JobSet"), "the JobSet, once the webhook is back")
        until(lambda: not [one for one in made.waits() if one.code == "WebhookDown"], "the wait to be over")


def test_what_a_webhook_denies_is_the_jobs_affair(cluster: Cluster) -> None:
    cluster.api.admission.denials["jobs"] = "images must come from our registry"
    with engine(cluster) as made:
        made.launch(gang(ask=HUGE))
        end = end_of(made).exit
        assert end is not None
        assert "images must come from our registry" in end.detail


def test_an_error_without_a_cause_is_looked_into(cluster: Cluster) -> None:
    """With a dry run of the same object, and the question whether the server is well."""
    adapter = cluster.adapter(refuse_after="0s")
    link = adapter._link
    assert link is not None
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x", "namespace": "training"}}
    spec = {"restartPolicy": "Never", "containers": [{"name": "worker", "image": "x"}]}
    good = {**body, "spec": {"template": {"spec": spec}}}
    bad = {**body, "spec": {"template": {"spec": {**spec, "nonsense": 1}}}}
    odd = faults.KubeError(500, "", "Kubernetes said 500 : something odd")
    assert faults.examine(link.client, good, odd).kind == "held"
    found = faults.examine(link.client, bad, odd)
    assert (found.kind, "unknown field" in found.message) == ("refused", True)
    cluster.api.refuses["POST", "jobs"] = ApiError(500, "", "something odd")
    assert faults.examine(link.client, good, odd).kind == "held"
    cluster.api.unready = True
    assert faults.examine(link.client, good, odd).kind == "away"
    cluster.api.unready = False
    # While the server is well, an error that stays is the gang's, after `refuse_after`.
    cluster.api.refuses["PATCH", "jobs"] = ApiError(500, "", "something odd")
    assert "something odd" in str(adapter.launch([gang()], lambda key: True)[KEY])


# --- quotas and stops -------------------------------------------------------------------------------------------------
def test_a_quota_holds_a_gang_until_there_is_room(cluster: Cluster) -> None:
    cluster.store.create(quota("training", **{"count/jobs.batch": "1"}))
    with engine(cluster) as made:
        made.launch(gang("first-1", ask=HUGE))
        until(lambda: jobs(cluster) == {"first-1"}, "the first")
        made.launch(gang(ask=HUGE))
        wait = wait_of(made, "ExceededQuota")
        assert "exceeded quota: compute, requested: count/jobs.batch=1, used: count/jobs.batch=1" in wait.message
        assert wait.hint
        made.stop("first-1", 1, 0.0, "user_stop")
        end_of(made, "first-1")
        made.forget("first-1", 1)
        until(lambda: jobs(cluster) == {KEY[0]}, "the second")


@pytest.mark.parametrize("point", ["held", "secret", "service", "job"])
def test_a_stop_wins_over_a_quota_and_leaves_nothing(
    cluster: Cluster, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it comes while the gang is held, or as one of its objects was just made."""
    cluster.store.create(quota("training", **{"count/jobs.batch": "0" if point == "held" else "9"}))
    with engine(cluster) as made:

        def stop_after(item: dict[str, Any]) -> None:
            if item["kind"].lower() == point and item["metadata"].get("labels", {}).get("muster.dev/job"):
                made.stop(*KEY, 5.0, "user_stop")

        cluster.store.admit.append(stop_after)
        made.launch(gang(ask=HUGE))
        if point == "held":
            wait_of(made, "ExceededQuota")
            made.stop(*KEY, 5.0, "user_stop")
        end = end_of(made).exit
        assert end is not None
        assert (end.outcome, end.reason) == ("stopped", "user_stop")
        made.forget(*KEY)
        for item in cluster.store.list("ResourceQuota"):
            cluster.store.delete("ResourceQuota", "training", item["metadata"]["name"])
        until(lambda: cluster.kinds() == [], "everything to be gone")
        until_forgotten(made)
        calls = len(cluster.api.calls)
        made.launch(gang("next-1", ask=HUGE))
        until(lambda: jobs(cluster) == {"next-1"}, "the next one")
        assert not [path for _, path in cluster.api.calls[calls:] if KEY[0] in path and "jobs" in path]


def test_what_came_late_by_an_answer_that_was_lost_is_taken_away(cluster: Cluster) -> None:
    with engine(cluster) as made:
        made.launch(gang(ask=HUGE))
        until(lambda: jobs(cluster), "its Job")
        body = cluster.store.list("Job", labels=MINE)[0]
        made.stop(*KEY, 0.0, "user_stop")
        end_of(made)
        made.forget(*KEY)
        until(lambda: cluster.kinds() == [], "everything to be gone")
        meta = {name: body["metadata"][name] for name in ("name", "namespace", "labels", "annotations")}
        cluster.store.create({**body, "metadata": meta})  # the call that timed out is carried out only now
        until(lambda: cluster.kinds() == [], "the late one to be gone")


# --- rights -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["jobs", "secrets", "configmaps"])
def test_a_missing_right_is_the_engines_trouble_and_mends(cluster: Cluster, kind: str) -> None:
    cluster.api.admission.denied.add(("patch", kind))
    with engine(cluster) as made:
        made.launch(gang(ask=HUGE))
        wait = wait_of(made, "MissingRight")
        assert f"system:serviceaccount:muster:muster may not patch {kind}" in wait.message
        assert "deploy/base/access.yaml" in wait.hint
        condition = until(lambda: made.condition() if made.condition().trouble else None, "the engine to say so")
        assert condition is not None
        assert f"may not patch {kind}" in condition.trouble
        assert [one for one in made.diagnose() if one.status == "fail" and f"patch {kind}" in one.detail]
        cluster.api.admission.denied.clear()
        until(lambda: jobs(cluster) == {KEY[0]}, "it to be there")
        until(lambda: not made.condition().trouble, "the engine to be well")


def test_a_missing_right_to_look_takes_no_job_with_it(cluster: Cluster) -> None:
    with engine(cluster) as made:
        cluster.api.admission.denied |= {("list", "pods"), ("watch", "pods")}
        cluster.api.breaks.set()
        until(lambda: not made.condition().ok, "it to be away")
        assert "pods" in made.condition().detail
        cluster.api.breaks.clear()
        made.launch(gang(ask=HUGE))
        assert wait_of(made, "away").message
        cluster.api.admission.denied.clear()
        until(lambda: jobs(cluster) == {KEY[0]}, "it to be there")


def test_a_namespace_without_rights_holds_up_its_own_project_alone(cluster: Cluster) -> None:
    cluster.api.admission.strange.add("default")
    with engine(cluster, projects={"language": {"namespace": "default"}}) as made:
        made.launch(gang("theirs-1", project="language", ask=HUGE))
        made.launch(gang(ask=HUGE))
        until(lambda: jobs(cluster) == {KEY[0]}, "the job of the other project")
        until(lambda: "default" in made.condition().trouble, "the engine to say so")
        assert wait_of(made, "MissingRight", "theirs-1").message
        cluster.api.admission.strange.clear()
        until(lambda: jobs(cluster) == {KEY[0], "theirs-1"}, "both")
        until(lambda: not made.condition().trouble, "the engine to be well")


def test_what_may_not_be_cleared_up_keeps_nobody_waiting(cluster: Cluster) -> None:
    denied = {(verb, "networkpolicies") for verb in ("patch", "delete", "deletecollection")}
    cluster.api.admission.denied |= denied
    with engine(cluster, network_policy=True) as made:
        made.launch(gang(ask=HUGE))
        wait_of(made, "MissingRight")
        made.stop(*KEY, 5.0, "user_stop")
        end_of(made)
        made.forget(*KEY)
        cluster.api.admission.denied -= {("patch", "networkpolicies")}
        made.launch(gang("next-1", ask=HUGE))
        until(lambda: jobs(cluster) == {"next-1"}, "the next one, all the same")


def test_what_may_not_be_deleted_is_told_and_deleted_later(cluster: Cluster) -> None:
    with engine(cluster) as made:
        made.launch(gang(ask=HUGE))
        until(lambda: [one for one in made.waits() if one.code == "Unschedulable"], "it to be there")
        cluster.api.admission.denied.add(("delete", "jobs"))
        made.stop(*KEY, 0.0, "user_stop")
        until(lambda: "may not delete jobs.batch" in made.condition().trouble, "the engine to say so")
        made.launch(gang("next-1", ask=HUGE))
        until(lambda: "next-1" in jobs(cluster), "the next one, all the same")
        cluster.api.admission.denied.clear()
        end_of(made)
        until(lambda: jobs(cluster) == {"next-1"}, "it to be gone")


# --- what is left behind ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("stopped", [False, True])
def test_what_an_owner_leaves_behind_is_cleared_by_its_labels(cluster: Cluster, stopped: bool) -> None:
    with engine(cluster) as made:
        made.launch(gang(ask=HUGE))
        until(lambda: [one for one in made.waits() if one.code == "Unschedulable"], "it to be there")
        (job,) = cluster.store.list("Job")
        cluster.store.delete("Job", "training", job["metadata"]["name"], {"propagationPolicy": "Orphan"})
        until(lambda: cluster.kinds() == ["Pod", "Secret", "Service"], "the Job to be gone alone")
        if stopped:
            made.stop(*KEY, 0.0, "gang_member_died")
            end_of(made)
        made.forget(*KEY)
        until(lambda: cluster.kinds() == [], "everything to be gone")


def test_a_job_that_somebody_deletes_is_told_as_that(cluster: Cluster) -> None:
    with engine(cluster) as made:
        made.launch(gang(ask=HUGE))
        until(lambda: [one for one in made.waits() if one.code == "Unschedulable"], "it to be there")
        (job,) = cluster.store.list("Job")
        cluster.store.delete("Job", "training", job["metadata"]["name"])
        end = end_of(made).exit
        assert end is not None
        assert (end.outcome, end.reason) == ("failed", "cancelled_outside")
        assert "not by Muster nor by Kueue" in end.detail


@pytest.mark.parametrize("allowed", [True, False])
def test_a_hand_over_that_was_broken_off_is_cleared_without_the_right_to_delete_many(
    cluster: Cluster, allowed: bool
) -> None:
    if not allowed:
        cluster.api.admission.denied |= {("deletecollection", "secrets"), ("deletecollection", "services")}
    cluster.api.admission.webhooks["jobs"] = "vjob.kb.io"
    with engine(cluster) as made:
        made.launch(gang(ask=HUGE))
        wait_of(made, "WebhookDown")
        assert cluster.kinds() == ["Secret", "Service"]
        made.stop(*KEY, 5.0, "user_stop")
        end_of(made)
        until(lambda: cluster.kinds() == [], "everything to be gone")


def test_what_belongs_to_no_gang_is_swept_up(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as what a server had made of a gang when it was killed, and nobody hands over again."""
    cluster.api.admission.webhooks["jobs"] = "vjob.kb.io"
    first = cluster.adapter()
    first.launch([gang("killed-1")], lambda key: True)
    assert cluster.kinds() == ["Secret", "Service"]
    foreign = {
        "name": "theirs",
        "namespace": "training",
        "labels": {"muster.dev/installation": "x", "muster.dev/job": "y"},
    }
    cluster.store.create({"apiVersion": "v1", "kind": "Secret", "metadata": foreign})
    cluster.api.admission.webhooks.clear()
    monkeypatch.setattr(removal_module, "SWEEP", 0.0)
    with engine(cluster) as made:
        made.launch(gang(ask=HUGE))
        until(lambda: jobs(cluster) == {KEY[0]}, "its Job")
        until(lambda: cluster.kinds() == ["Job", "Pod", "Secret", "Service"], "what the killed server left to be gone")
        assert cluster.store.find("Secret", "training", "theirs") is not None


def test_the_launchers_package_is_made_again(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a pod waits for it, and where a launch finds it gone."""

    def packages() -> list[str]:
        return [item["metadata"]["name"] for item in cluster.store.list("ConfigMap", labels=MINE)]

    with engine(cluster) as made:
        made.launch(gang(ask=HUGE))
        until(lambda: cluster.store.list("Pod", labels=MINE), "its pod")
    (name,) = packages()
    cluster.store.delete("ConfigMap", "training", name)
    (waits,) = cluster.store.list("Pod", labels=MINE)
    event(
        cluster.store, waits, "FailedMount", f'MountVolume.SetUp failed for volume "p" : configmap "{name}" not found'
    )
    with engine(cluster) as made:  # of a new server, which has shipped nothing yet
        until(lambda: packages() == [name], "it to be there again")
        cluster.store.delete("ConfigMap", "training", name)
        made.launch(gang("soon-1", ask=HUGE))
        until(lambda: "soon-1" in jobs(cluster), "one that begins soon after")
        assert packages() == []  # the event is old: it is not made again at every look
        monkeypatch.setattr(adapter_module, "PACKAGE_CHECK", 0.0)
        made.launch(gang("next-1", ask=HUGE))
        until(lambda: "next-1" in jobs(cluster), "the next one")
        assert packages() == [name]


# --- what comes and goes ----------------------------------------------------------------------------------------------
def test_kinds_that_are_installed_later_are_followed_and_those_that_go_are_let_go(cluster: Cluster) -> None:
    cluster.api.absent |= {"jobset.x-k8s.io", "kueue.x-k8s.io"}
    with engine(cluster) as made:
        made.launch(gang("early-1", options={"form": "jobset"}, ask=HUGE))
        end = end_of(made, "early-1").exit
        assert end is not None
        assert "has no JobSet (jobset.x-k8s.io/v1alpha2)" in end.detail
        assert "`form: job`" in end.detail
        cluster.api.absent.clear()
        made.launch(gang("late-1", options={"form": "jobset"}, ask=HUGE))
        until(lambda: ("late-1", 1) in made._seen, "the JobSet to be seen")
        made.launch(gang("queued-1", options={"queue": "research"}, ask=HUGE))
        made.launch(gang("queued-2", options={"queue": "research"}, ask=HUGE))
        until(lambda: [one for one in made.waits() if "more needed" in one.message], "Kueue's word")
        cluster.api.absent.add("jobset.x-k8s.io")
        for item in cluster.store.list("JobSet"):
            cluster.store.delete("JobSet", "training", item["metadata"]["name"])
        cluster.api.breaks.set()
        link = made._adapter._link  # type: ignore[attr-defined]
        until(lambda: len(link.starters()) == 1, "it to be let go")
        cluster.api.breaks.clear()
        assert end_of(made, "late-1").exit is not None
        made.launch(gang("after-1", ask=HUGE))
        until(lambda: "after-1" in jobs(cluster), "plain ones to go on")
        assert made.condition().ok


def test_it_is_back_as_soon_as_the_cluster_answers(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the word of the first watch that works again: not by the engine's own pause, which is long by then."""
    monkeypatch.setattr(link_module, "AWAY_SECONDS", 0.0)
    with engine(cluster) as made:
        for kind in ("pods", "jobs", "nodes"):
            cluster.api.refuses["GET", kind] = ApiError(503, "ServiceUnavailable", "etcd is away")
        cluster.api.breaks.set()
        until(lambda: not made.condition().ok, "it to be away")
        made.launch(gang(ask=HUGE))
        monkeypatch.setattr(remote, "AGAIN_FIRST", 3600.0)
        assert wait_of(made, "away")
        cluster.api.breaks.clear()
        cluster.api.refuses.clear()
        until(lambda: jobs(cluster) == {KEY[0]}, "it to be handed over")


# --- pods that can't be made or started -------------------------------------------------------------------------------
def test_a_pod_that_can_never_be_made_fails_its_job_and_one_over_quota_waits(cluster: Cluster) -> None:
    said = 'pods "x" is forbidden: error looking up service account training/nobody: serviceaccount "nobody" not found'

    def no_account(item: dict[str, Any]) -> None:
        if item["kind"] == "Pod" and item["spec"].get("serviceAccountName") == "nobody":
            raise ApiError(403, "Forbidden", said)

    cluster.store.admit.append(no_account)
    cluster.store.create(quota("training", **{"count/pods": "0"}))
    with engine(cluster, refuse_after="0s") as made:
        made.launch(gang(ask=HUGE))
        wait = wait_of(made, "FailedCreate")
        assert "exceeded quota: compute" in wait.message
        assert "refuse_after" in wait.hint
        made.launch(gang("bad-1", options={"service_account": "nobody"}, ask=HUGE))
        cluster.store.delete("ResourceQuota", "training", "compute")
        end = end_of(made, "bad-1").exit
        assert end is not None
        assert end.reason == "pod_refused"
        assert 'serviceaccount "nobody" not found' in end.detail
        assert wait_of(made, "Unschedulable"), "the other goes on"


def test_a_mount_of_what_is_not_there_fails_its_job(cluster: Cluster) -> None:
    with engine(cluster, refuse_after="0s") as made:
        made.launch(gang())
        until(lambda: [one for one in cluster.store.list("Pod") if one["spec"].get("nodeName")], "its pod on a node")
        (placed,) = cluster.store.list("Pod")
        event(cluster.store, placed, "FailedMount", 'MountVolume.SetUp failed for volume "v" : secret "gone" not found')
        end = end_of(made).exit
        assert end is not None
        assert (end.reason, 'secret "gone" not found' in end.detail) == ("pod_refused", True)


def test_stops_go_several_at_once_and_a_new_job_does_not_wait_behind_them(cluster: Cluster) -> None:
    names = [f"many-{number}" for number in range(removal_module.CALLERS * 2)]
    with engine(cluster) as made:
        for name in names:
            made.launch(gang(name, ask=HUGE))
        until(lambda: {one.job for one in made.waits() if one.code == "Unschedulable"} == set(names), "all of them")
        together = threading.Barrier(removal_module.CALLERS)
        cluster.api.before_delete = together.wait  # as many deletions as may be must be under way at once
        for name in names:
            made.stop(name, 1, 0.0, "user_stop")
        for name in names:
            end_of(made, name)
        assert not together.broken
        cluster.api.before_delete = lambda: None
        for name in names:
            made.forget(name, 1)
        made.launch(gang("next-1", ask=HUGE))
        until(lambda: jobs(cluster) == {"next-1"}, "the new one, and all others to be gone")


def test_orders_are_carried_out_in_portions_with_launches_first(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "PORTION", 2)
    with engine(cluster) as made:
        names = [f"many-{number}" for number in range(6)]
        for name in names:
            made.launch(gang(name, ask=HUGE))
        until(lambda: {one.job for one in made.waits() if one.code == "Unschedulable"} == set(names), "all of them")
        asked: list[int] = []

        def launch_next() -> None:
            """From within the first deletion of all."""
            if not asked:
                made.launch(gang("next-1", ask=HUGE))
            asked.append(len(jobs(cluster) & {"next-1"}))

        cluster.api.before_delete = launch_next
        for name in names:
            made.stop(name, 1, 0.0, "user_stop")
        until(lambda: jobs(cluster) == {"next-1"}, "the new one, and all others to be stopped")
        assert 1 in asked, "the new one came after all deletions"
