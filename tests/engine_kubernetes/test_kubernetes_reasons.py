"""What a cluster says of pods and workloads becomes Muster's reasons and waits."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kube_kit import Object, condition, pod, terminated

from muster.engines.kubernetes import reasons
from muster.engines.kubernetes.gangs import WORKERS, KubernetesGang, Memo, View, cause_of, gather, report, report_gone
from muster.engines.remote import Order
from muster.wire import WorkerExit

KEY = ("a-1", 1)
OWN_WORD = WorkerExit("failed", "user_error", "Traceback: boom", 5.0, rank=1, exit_code=3)


def view(now: float = 100.0, lost: dict[str, str] | None = None) -> View:
    return View(now, 1000.0, lost or {}, 60.0, {})


def main(workers: int = 1, **more: Any) -> Object:
    notes = {WORKERS: str(workers), "muster.dev/job": "a-1"}
    about = {"name": "muster-a-1-1-x", "namespace": "training", "uid": "job", "annotations": notes,
             "labels": {"muster.dev/job": "a-1", "muster.dev/attempt": "1"}}  # fmt: skip
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": about, "spec": {}, "status": {}, **more}


@pytest.mark.parametrize(
    ("status", "reason", "outcome"),
    [
        ({"containerStatuses": terminated(137, "OOMKilled")}, "out_of_memory", "failed"),
        ({"reason": "Evicted", "message": "The node was low on resource: memory."}, "node_lost", "failed"),
        ({"reason": "Evicted", "message": "Pod ephemeral local storage usage exceeds the total limit of 1Gi."},
         "user_error", "failed"),
        ({"reason": "DeadlineExceeded", "message": "active longer than the deadline"}, "max_duration", "stopped"),
        ({"reason": "NodeShutdown"}, "node_lost", "failed"),
        ({"conditions": [condition("DisruptionTarget", "PreemptionByScheduler", "room")]}, "preempted", "failed"),
        ({"conditions": [condition("DisruptionTarget", "EvictionByEvictionAPI")]}, "preempted", "failed"),
        ({"conditions": [condition("DisruptionTarget", "DeletionByTaintManager")]}, "node_lost", "failed"),
        ({"conditions": [condition("DisruptionTarget", "TerminationByKubelet")]}, "node_lost", "failed"),
        ({"containerStatuses": terminated(137)}, "launcher_lost", "failed"),
        ({"containerStatuses": terminated(128, "StartError", "exec: python3: not found")}, "pod_refused", "failed"),
        ({"containerStatuses": terminated(1, message=json.dumps(OWN_WORD.to_dict()))}, "user_error", "failed"),
    ],
)  # fmt: skip
def test_how_a_pod_failed(status: dict[str, Any], reason: str, outcome: str) -> None:
    end, sure = reasons.end_of_pod(pod(phase="Failed", **status), 7.0)
    assert (end.reason, end.outcome, sure) == (reason, outcome, True)


def test_the_limit_that_was_passed_is_named() -> None:
    end, _ = reasons.end_of_pod(pod(phase="Failed", containerStatuses=terminated(137, "OOMKilled")), 7.0)
    assert "2Gi" in end.detail


def test_a_launcher_that_failed_is_given_time_to_say_why() -> None:
    end, sure = reasons.end_of_pod(pod(phase="Failed", containerStatuses=terminated(1)), 7.0)
    assert (end.exit_code, sure) == (1, False)


def test_the_launchers_own_word_stands_but_for_the_loss_of_its_node() -> None:
    told = json.dumps(WorkerExit("failed", "node_lost", "told to leave its node", 5.0).to_dict())
    failed = pod(phase="Failed", containerStatuses=terminated(1, message=told),
                 conditions=[condition("DisruptionTarget", "PreemptionByScheduler", "room for b")])  # fmt: skip
    end, _ = reasons.end_of_pod(failed, 7.0)
    assert (end.reason, end.detail) == (
        "preempted", "the scheduler gave its place to a pod of higher priority: room for b",
    )  # fmt: skip
    mine = json.dumps(OWN_WORD.to_dict())
    end, _ = reasons.end_of_pod(
        pod(phase="Failed", containerStatuses=terminated(1, message=mine)), 7.0, ("preempted", "")
    )
    assert end == OWN_WORD


def test_success_is_success_whatever_was_ordered() -> None:
    end, sure = reasons.end_of_pod(
        pod(phase="Succeeded", containerStatuses=terminated(0, "Completed")), 7.0, ("user_stop", "")
    )
    assert (end.outcome, end.time, sure) == ("succeeded", reasons.seconds_of("2026-01-01T00:10:00Z"), True)


# --- waits ------------------------------------------------------------------------------------------------------------
def test_the_schedulers_sentence_is_the_wait() -> None:
    said = condition(
        "PodScheduled", "Unschedulable", "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.", "False"
    )
    waiting = pod(node="", phase="Pending", conditions=[said])
    reports, wait = report(KubernetesGang(KEY, main(), {0: waiting}), Memo(), view())
    assert [one.status for one in reports] == ["pending"]
    assert wait is not None
    assert (wait.code, wait.message) == ("Unschedulable", "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")


def test_kueues_sentence_is_the_wait_with_the_place_in_the_queue() -> None:
    said = condition("QuotaReserved", "Pending", "insufficient unused quota for nvidia.com/gpu, 4 more needed", "False")
    workload = {"metadata": {"uid": "w"}, "spec": {}, "status": {"conditions": [said]}}
    gang = KubernetesGang(KEY, main(2, spec={"suspend": True}), workload=workload)
    reports, wait = report(gang, Memo(), View(0, 0, {}, 60, {"w": 2}))
    assert [one.status for one in reports] == ["pending", "pending"]
    assert wait is not None
    assert wait.code == "Pending"
    assert wait.message == "Kueue: insufficient unused quota for nvidia.com/gpu, 4 more needed (number 3 in its queue)"


def test_admission_checks_are_named() -> None:
    workload = {"metadata": {"uid": "w"}, "spec": {}, "status": {
        "conditions": [condition("QuotaReserved")],
        "admissionChecks": [{"name": "prov", "state": "Pending", "message": "waiting for capacity"}]}}  # fmt: skip
    assert reasons.workload_wait(workload, None) == (
        "AdmissionChecks", "quota is reserved, and it waits for prov: waiting for capacity",
    )  # fmt: skip


def test_part_of_a_gang_that_is_up_is_counted() -> None:
    up = pod(containerStatuses=[{"name": "worker", "state": {"running": {}}}])
    waiting = pod(node="", phase="Pending", conditions=[condition("PodScheduled", "Unschedulable", "no room", "False")])
    reports, wait = report(KubernetesGang(KEY, main(2), {0: up, 1: waiting}), Memo(), view())
    assert [(one.status, one.node) for one in reports] == [("running", "n1"), ("pending", "")]
    assert wait is not None
    assert wait.message == "1 of 2 workers are up; of the others: no room"


def test_an_image_that_cannot_be_had_is_waited_for_and_then_refused() -> None:
    waiting = [{"name": "worker", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "x/y: not found"}}}]
    gang, memo = KubernetesGang(KEY, main(), {0: pod(phase="Pending", containerStatuses=waiting)}), Memo()
    reports, wait = report(gang, memo, view(100.0))
    assert reports[0].status == "starting"
    assert wait is not None
    assert (wait.code, wait.message) == ("ImagePullBackOff", "ImagePullBackOff: x/y: not found")
    reports, _ = report(gang, memo, view(161.0))
    assert reports[0].exit is not None
    assert (reports[0].exit.reason, reports[0].sure) == ("image_unavailable", True)
    assert "x/y: not found" in reports[0].exit.detail


def test_a_pod_that_can_not_be_made_is_explained_by_the_event() -> None:
    events = [
        reasons.slim_event({
            "metadata": {"namespace": "training", "name": f"e{n}"}, "type": "Warning", "reason": "FailedCreate",
            "involvedObject": {"name": "muster-a-1-1-x", "uid": "job"}, "message": f"said {n}",
            "lastTimestamp": f"2026-01-01T00:00:0{n}Z",
        })
        for n in (1, 3, 2)
    ]  # fmt: skip
    gang = gather([main()], [], [], [], [event for event in events if event], {})[KEY]
    _, wait = report(gang, Memo(), view())
    assert wait is not None
    assert (wait.code, wait.message) == ("FailedCreate", "FailedCreate: said 3")


# --- gangs over time --------------------------------------------------------------------------------------------------
RUNNING = pod(containerStatuses=[{"name": "worker", "state": {"running": {}}}])


def test_a_node_that_is_lost_takes_its_worker_with_it() -> None:
    memo = Memo()
    report(KubernetesGang(KEY, main(), {0: RUNNING}), memo, view())
    (lost,), _ = report(
        KubernetesGang(KEY, main(), {0: RUNNING}), memo, view(lost={"n1": "the node is not ready: gone"})
    )
    assert lost.exit is not None
    assert (lost.status, lost.exit.reason, lost.exit.detail) == ("ended", "node_lost", "the node is not ready: gone")
    (after,), _ = report(KubernetesGang(KEY, main(), {0: RUNNING}), memo, view())
    assert after == lost, "what has ended does not come back"


def test_what_others_delete_is_an_end_with_that_word() -> None:
    memo = Memo()
    report(KubernetesGang(KEY, main(), {0: RUNNING}), memo, view())
    memo.gone[0] = RUNNING
    (end,) = report_gone(KEY, memo, view())
    assert end.exit is not None
    assert (end.exit.reason, end.sure) == ("cancelled_outside", True)
    assert "deleted in the cluster" in end.exit.detail
    assert report_gone(KEY, memo, view(500.0)) == [end], "until it is forgotten"


def test_what_we_delete_ends_by_our_order() -> None:
    memo = Memo()
    report(KubernetesGang(KEY, main(2), {0: RUNNING}), memo, view())
    memo.order, memo.removed = Order(*KEY, 30.0, "user_stop"), True
    ends = report_gone(KEY, memo, view())
    assert [one.exit.reason for one in ends if one.exit] == ["user_stop", "user_stop"]
    assert [one.exit.outcome for one in ends if one.exit] == ["stopped", "stopped"]


def test_why_a_worker_was_told_to_leave() -> None:
    leaving = {**RUNNING, "metadata": {**RUNNING["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    evicted = {"metadata": {"uid": "w"}, "status": {"conditions": [condition("Evicted", "Preempted", "for b")]}}
    preempted = {**leaving, "status": {"conditions": [condition("DisruptionTarget", "PreemptionByScheduler")]}}
    failed = main(status={"conditions": [condition("FailureTarget")]})
    after = Memo(order=Order(*KEY, 30.0, "preempted"))  # the server stopped the gang because of it
    assert cause_of(KubernetesGang(KEY, main(), {0: leaving}, evicted), after, 0, {}) == (
        "preempted", "Kueue evicted it (Preempted): for b",
    )  # fmt: skip
    order, broken = (Order(*KEY, 30.0, code) for code in ("quota_reclaimed", "gang_member_died"))
    assert cause_of(KubernetesGang(KEY, main(), {0: RUNNING}), Memo(), 0, {}) is None
    assert cause_of(KubernetesGang(KEY, main(), {0: leaving}), Memo(), 0, {}) == (
        "cancelled_outside", "its pod was deleted in the cluster, not by Muster nor by Kueue",
    )  # fmt: skip
    assert cause_of(KubernetesGang(KEY, main(), {0: leaving}, evicted), Memo(), 0, {}) == (
        "preempted", "Kueue evicted it (Preempted): for b",
    )  # fmt: skip
    for gang, memo, code in (
        (KubernetesGang(KEY, main(), {0: preempted}), Memo(), "preempted"),
        (KubernetesGang(KEY, main(), {0: preempted}), Memo(order=order), "quota_reclaimed"),
        (KubernetesGang(KEY, main(), {0: preempted}), Memo(order=broken), "preempted"),
        (KubernetesGang(KEY, main(), {0: leaving}), Memo(order=broken), "gang_member_died"),
        (KubernetesGang(KEY, failed, {0: leaving}), Memo(), "gang_member_died"),
        (KubernetesGang(KEY, None, {0: leaving}), Memo(), "cancelled_outside"),
        (KubernetesGang(KEY, None, {0: leaving}), Memo(order=order, removed=True), "quota_reclaimed"),
    ):
        found = cause_of(gang, memo, 0, {})
        assert found is not None
        assert found[0] == code
    for memo in (Memo(), Memo(order=broken)):  # a peer may be heard before
        assert cause_of(KubernetesGang(KEY, main(), {0: leaving}), memo, 0, {"n1": "away"}) == ("node_lost", "away")


def test_who_failed_first_is_not_taken_for_who_followed() -> None:
    failed = main(2, status={"conditions": [condition("Failed", "BackoffLimitExceeded", "limit")]})
    first = pod(phase="Failed", containerStatuses=terminated(137, "OOMKilled"))
    second = {**RUNNING, "metadata": {**RUNNING["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    (one, other), _ = report(KubernetesGang(KEY, failed, {0: first, 1: second}), Memo(), view())
    assert one.exit is not None
    assert (one.exit.reason, other.status) == ("out_of_memory", "running")
    memo = Memo(workers=2, gone={0: {**first, "metadata": second["metadata"]}, 1: second})
    ends, _ = report(KubernetesGang(KEY, failed), memo, view())
    assert [end.exit.reason for end in ends if end.exit] == ["out_of_memory", "gang_member_died"]


def test_a_restarted_server_reads_the_end_off_the_job() -> None:
    complete = main(2, status={"conditions": [condition("Complete")]})
    reports, _ = report(KubernetesGang(KEY, complete), Memo(), view())
    assert [one.exit.outcome for one in reports if one.exit] == ["succeeded", "succeeded"]
    failed = main(1, status={"conditions": [condition("Failed", "BackoffLimitExceeded", "limit")]})
    (end,), _ = report(KubernetesGang(KEY, failed), Memo(), view())
    assert end.exit is not None
    assert (end.exit.reason, end.exit.detail) == ("launcher_lost", "BackoffLimitExceeded: limit")


def test_what_a_controller_made_is_not_what_we_made() -> None:
    child = main()
    child["metadata"] = {**child["metadata"], "uid": "child", "ownerReferences": [{"uid": "job", "controller": True}]}
    found = gather([main(), child], [RUNNING], [], [], [], {})
    assert found[KEY].main is not None
    assert found[KEY].main["metadata"]["uid"] == "job"
    assert list(found[KEY].pods) == [0]
