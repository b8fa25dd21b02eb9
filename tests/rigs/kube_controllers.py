"""Stand-ins for the controllers of a cluster: Jobs, JobSets, garbage, pods of nodes that are no more."""

from __future__ import annotations

import threading
import traceback
from typing import Any

from rigs.kube_apply import copied
from rigs.kube_edit import condition, delete, edit, unfinalize
from rigs.kube_kueue import run_kueue
from rigs.kube_scheduler import schedule
from rigs.kube_store import ApiError, Object, Store, event, now_text

TRACKING = "batch.kubernetes.io/job-tracking"


class Controllers:
    """One thread that goes over everything whenever something has changed."""

    def __init__(self, store: Store, quotas: dict[str, int] | None = None) -> None:
        self.store = store
        self.quotas = quotas or {}  # LocalQueue → pods that may run at once
        self.errors: list[str] = []
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="controllers", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join(180)

    def _run(self) -> None:
        version = 0
        while not self._closing.is_set():
            version = self.store.wait(version, 0.2)
            for step in (collect_garbage, run_kueue, run_jobsets, run_jobs, collect_pods, schedule):
                try:
                    step(self.store, self.quotas) if step is run_kueue else step(self.store)
                except ApiError:
                    continue  # somebody was faster; the next round sees it
                except Exception:
                    self.errors.append(traceback.format_exc())


# --- garbage ----------------------------------------------------------------------------------------------------------
def collect_garbage(store: Store) -> None:
    """What is owned goes with its owners; who is deleted in the foreground stays until all that is owned has gone."""
    with store.lock:  # of one instant: an owner that is made meanwhile is not taken for one that has gone
        items = [item for kind in store.items.values() for item in kind.values()]
    uids = {item["metadata"]["uid"] for item in items}
    owned: dict[str, list[Object]] = {}
    for item in items:
        owners = [one["uid"] for one in item["metadata"].get("ownerReferences") or []]
        for uid in owners:
            owned.setdefault(uid, []).append(item)
        if owners and uids.isdisjoint(owners):
            delete(store, item)
    for item in items:
        below = owned.get(item["metadata"]["uid"], [])
        if "orphan" in (item["metadata"].get("finalizers") or []):
            for one in below:
                edit(store, one, lambda o, uid=item["metadata"]["uid"]: _disown(o, uid))
            unfinalize(store, item, "orphan")
        if "foregroundDeletion" in (item["metadata"].get("finalizers") or []):
            for one in below:
                delete(store, one)
            if not below:
                unfinalize(store, item, "foregroundDeletion")


def _disown(item: Object, uid: str) -> None:
    left = [owner for owner in item["metadata"]["ownerReferences"] if owner["uid"] != uid]
    item["metadata"]["ownerReferences"] = left
    if not left:
        del item["metadata"]["ownerReferences"]


def collect_pods(store: Store) -> None:
    """Pods of nodes that are no more."""
    nodes = {node["metadata"]["name"] for node in store.list("Node")}
    for pod in store.list("Pod"):
        if pod["spec"].get("nodeName") and pod["spec"]["nodeName"] not in nodes:
            told = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "DeletionByPodGC",
                "message": "node is gone",
            }
            edit(store, pod, lambda p, told=told: p["status"].update(
                phase="Failed", conditions=[*(p["status"].get("conditions") or []), told]
            ) if p["status"].get("phase") != "Failed" else None)  # fmt: skip
            delete(store, pod, {"gracePeriodSeconds": 0})


# --- Jobs -------------------------------------------------------------------------------------------------------------
def run_jobs(store: Store) -> None:
    by_owner: dict[str, list[Object]] = {}
    living = {job["metadata"]["uid"] for job in store.list("Job")}
    for pod in store.list("Pod"):
        owner = next((o["uid"] for o in pod["metadata"].get("ownerReferences") or [] if o["kind"] == "Job"), "")
        by_owner.setdefault(owner, []).append(pod)
        if owner not in living and TRACKING in (pod["metadata"].get("finalizers") or []):
            unfinalize(store, pod, TRACKING)
    for job in store.list("Job"):
        _run_job(store, job, by_owner.get(job["metadata"]["uid"], []))


def _run_job(store: Store, job: Object, pods: list[Object]) -> None:
    over = any(
        c["type"] in ("Complete", "Failed") and c["status"] == "True" for c in job["status"].get("conditions") or []
    )
    ended = [p for p in pods if p["status"].get("phase") in ("Succeeded", "Failed")]
    leaving = [p for p in pods if p["metadata"].get("deletionTimestamp") and p not in ended]
    count = {name: job["status"].get(name, 0) for name in ("succeeded", "failed")}
    for pod in ended:
        if TRACKING in (pod["metadata"].get("finalizers") or []):
            if not job["spec"].get("suspend"):
                count["succeeded" if pod["status"]["phase"] == "Succeeded" else "failed"] += 1
            unfinalize(store, pod, TRACKING)
    for pod in leaving if job["metadata"].get("deletionTimestamp") or over or job["spec"].get("suspend") else []:
        unfinalize(store, pod, TRACKING)
    active = [p for p in pods if p not in ended and p not in leaving]
    conditions = list(job["status"].get("conditions") or [])
    if not over and not job["metadata"].get("deletionTimestamp"):
        conditions = _steer_job(store, job, pods, active, leaving, count, conditions)
    status = {
        **job["status"], **count, "active": len(active), "conditions": conditions,
        "startTime": job["status"].get("startTime") or (None if job["spec"].get("suspend") else now_text()),
    }  # fmt: skip
    if status != job["status"]:  # to edit it would copy it, and mostly for nothing: this looks at every Job there is
        edit(store, job, lambda j: j.update(status=status))


def _steer_job(
    store: Store,
    job: Object,
    pods: list[Object],
    active: list[Object],
    leaving: list[Object],
    count: Any,
    conditions: Any,
) -> list[Object]:
    wanted = job["spec"].get("completions", 1)
    if job["spec"].get("suspend"):
        for pod in active:
            delete(store, pod)
        return [
            *(c for c in conditions if c["type"] != "Suspended"),
            condition("Suspended", "JobSuspended", "Job suspended"),
        ]
    conditions = [c for c in conditions if c["type"] != "Suspended"]
    # A pod that is being deleted counts as failed when it has gone.
    gone = len(leaving)
    if count["failed"] + gone > job["spec"].get("backoffLimit", 6):
        for pod in active:
            delete(store, pod)
        return [
            *conditions,
            condition("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"),
        ]
    if count["succeeded"] >= wanted:
        return [*conditions, condition("Complete", "CompletionsReached", "Reached expected number of succeeded pods")]
    there = {p["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] for p in pods}
    for index in range(wanted):
        if str(index) not in there and count["failed"] + count["succeeded"] == 0:
            _try_pod(store, job, index)
    return conditions


def _try_pod(store: Store, job: Object, index: int) -> None:
    """What the server says no with is told in an event, once for each word; it is tried again at the next round."""
    try:
        _make_pod(store, job, index)
    except ApiError as error:
        told = f"Error creating: {error.message}"
        about = f"involvedObject.uid={job['metadata']['uid']},reason=FailedCreate"
        if told not in [one["message"] for one in store.list("Event", job["metadata"]["namespace"], fields=about)]:
            event(store, job, "FailedCreate", told)


def _make_pod(store: Store, job: Object, index: int) -> None:
    template, about = copied(job["spec"]["template"]), job["metadata"]
    meta = template.get("metadata") or {}
    marks = {
        "batch.kubernetes.io/job-name": about["name"], "batch.kubernetes.io/controller-uid": about["uid"],
        "batch.kubernetes.io/job-completion-index": str(index),
    }  # fmt: skip
    spec = template["spec"]
    spec["hostname"] = f"{about['name']}-{index}"
    for container in spec["containers"]:
        container.setdefault("env", []).append({"name": "JOB_COMPLETION_INDEX", "value": str(index)})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": about["name"], "uid": about["uid"], "controller": True,
             "blockOwnerDeletion": True}  # fmt: skip
    store.create({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "generateName": f"{about['name']}-{index}-", "namespace": about["namespace"],
            "labels": {**(meta.get("labels") or {}), **marks},
            "annotations": {**(meta.get("annotations") or {}), "batch.kubernetes.io/job-completion-index": str(index)},
            "ownerReferences": [owner], "finalizers": [TRACKING],
        },
        "spec": spec,
    }, "kube-controller-manager")  # fmt: skip


# --- JobSets ----------------------------------------------------------------------------------------------------------
def run_jobsets(store: Store) -> None:
    for made in store.list("JobSet"):
        about, status = made["metadata"], made.get("status") or {}
        if about.get("deletionTimestamp") or status.get("terminalState") or made["spec"].get("suspend"):
            continue
        replicated = made["spec"]["replicatedJobs"][0]
        name = f"{about['name']}-{replicated['name']}-0"
        child = store.find("Job", about["namespace"], name)
        if child is None:
            owner = {"apiVersion": made["apiVersion"], "kind": "JobSet", "name": about["name"], "uid": about["uid"],
                     "controller": True}  # fmt: skip
            spec = copied(replicated["template"]["spec"])
            spec["template"]["spec"]["subdomain"] = made["spec"].get("network", {}).get("subdomain") or about["name"]
            meta = {"name": name, "namespace": about["namespace"], "ownerReferences": [owner], "labels": {
                "jobset.sigs.k8s.io/jobset-name": about["name"], "jobset.sigs.k8s.io/job-index": "0"}}  # fmt: skip
            store.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}, "jobset")
            continue
        for ended in child["status"].get("conditions") or []:
            if ended["type"] in ("Complete", "Failed"):
                kind = "Completed" if ended["type"] == "Complete" else "Failed"
                end = {"terminalState": kind, "conditions": [condition(kind, kind, "jobset ended")]}
                edit(store, made, lambda j, end=end: j.update(status=end))
